//! Events are written to the letter, and nothing that a person wrote breaks out of its frame.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;

use proptest::prelude::*;
use rollcall_core::{Note, Published, State};
use serde_json::{Value, json};

use super::*;
use crate::call::{Form, LookUp};
use crate::responses;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn view(note: Option<&str>) -> View {
    let note = note.map(|text| Note { text: text.to_owned(), emoji: String::new(), until: None });
    let published =
        Published { state: State::Online, note, since: Some(Time(1)), last_seen: Some(Time(2)), version: 7 };
    View { published, choice: None }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A stream as a browser reads it: name, id and data of each event, and the id that is kept in the end.
fn read(stream: &str) -> (Vec<(String, String)>, String) {
    let (mut events, mut last_id) = (Vec::new(), String::new());
    let (mut name, mut data, mut id) = (String::new(), Vec::new(), None);
    for line in stream.replace("\r\n", "\n").split(['\n', '\r']) {
        if line.is_empty() {
            last_id = id.take().unwrap_or(last_id);
            let (name, data) = (std::mem::take(&mut name), std::mem::take(&mut data));
            if !data.is_empty() {
                events.push((name, data.join("\n")));
            }
            continue;
        }
        let (field, value) = line.split_once(": ").unwrap_or((line, ""));
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value.to_owned()),
            "id" if !value.contains('\0') => id = Some(value.to_owned()),
            _ => {}
        }
    }
    (events, last_id)
}

#[test]
fn pushed_presence_equals_queried_presence() {
    let look_up = LookUp { viewer: None, users: vec![user("bob")], form: Form::One };
    for view in [Some(view(Some("lunch"))), None] {
        let pushed = presence(&user("bob"), view.as_ref());
        assert_eq!(pushed.as_bytes(), responses::look_up(&look_up, &[Ok(view)]).body());
    }
}

#[test]
fn typing_event_carries_its_end() {
    let conversation = ConversationId::parse("c \"1\"").unwrap();
    let started = typing(&conversation, &user("bob"), Some(Time(5000)));
    assert_eq!(started, r#"{"conversation":"c \"1\"","user":"bob","typing":true,"until":5000}"#);
    let stopped = typing(&conversation, &user("bob"), None);
    assert_eq!(stopped, r#"{"conversation":"c \"1\"","user":"bob","typing":false,"until":null}"#);
}

#[test]
fn snapshot_says_whether_it_resumed() {
    let (bob, eve) = (presence(&user("bob"), None), presence(&user("eve"), Some(&view(None))));
    let types = typing(&ConversationId::parse("c").unwrap(), &user("eve"), Some(Time(1)));
    let whole = snapshot([bob.as_str(), eve.as_str()].into_iter(), [types.as_str()].into_iter(), false);
    let expected = json!({"presences": [value(&bob), value(&eve)], "typing": [value(&types)], "resumed": false});
    assert_eq!(value(&whole), expected);
    let nothing = snapshot(std::iter::empty(), std::iter::empty(), true);
    assert_eq!(nothing, r#"{"presences":[],"typing":[],"resumed":true}"#);
}

#[test]
fn pushed_problem_equals_its_response() {
    let refused = Problem::invalid("op", "is missing");
    assert_eq!(problem(&refused).as_bytes(), refused.clone().into_reply().body());
    let expired = r#"{"code":4401,"reason":"the token expired: reconnect with a fresh one"}"#;
    assert_eq!(close(Close::TokenExpired), expired);
    assert_eq!((reconnect(250).as_str(), done().as_str()), (r#"{"after_ms":250}"#, "{}"));
}

#[test]
fn sse_event_has_name_id_and_data() {
    assert_eq!(sse(PRESENCE, Some("17-0f"), "{}"), "event: presence\nid: 17-0f\ndata: {}\n\n");
    assert_eq!(sse(TYPING, None, r#"{"a":1}"#), "event: typing\ndata: {\"a\":1}\n\n");
    assert_eq!(sse_id("18"), "id: 18\n\n");
    let stream = [sse(PRESENCE, Some("17"), "{}"), sse_id("18")].concat();
    assert_eq!(read(&stream), (vec![("presence".to_owned(), "{}".to_owned())], "18".to_owned()));
}

#[test]
fn socket_event_prepends_name_id_and_ref() {
    let framed = socket(PRESENCE, Some("17"), None, r#"{"user":"bob"}"#);
    assert_eq!(framed, r#"{"event":"presence","id":"17","user":"bob"}"#);
    assert_eq!(socket(DONE, None, Some(u64::MAX), &done()), r#"{"event":"done","ref":18446744073709551615}"#);
    assert_eq!(socket(RECONNECT, None, None, &reconnect(5)), r#"{"event":"reconnect","after_ms":5}"#);
    assert_eq!(socket("x", None, None, "no object"), r#"{"event":"x"}"#);
}

#[test]
fn event_data_never_clashes_with_frame_members() {
    let conversation = ConversationId::parse("c").unwrap();
    let mut retry = Problem::invalid("a", "b");
    retry.retry_after_s = Some(1);
    for data in [
        presence(&user("bob"), Some(&view(Some("x")))),
        typing(&conversation, &user("bob"), None),
        snapshot(std::iter::empty(), std::iter::empty(), false),
        problem(&retry),
        reconnect(1),
        close(Close::Idle),
    ] {
        let object = value(&data);
        assert!(["event", "id", "ref"].iter().all(|name| object.get(name).is_none()), "{data}");
        let framed = value(&socket("e", Some("i"), Some(1), &data));
        assert_eq!(framed.as_object().unwrap().len(), object.as_object().unwrap().len() + 3);
    }
}

#[test]
fn close_codes_are_unique_and_reasons_fit() {
    let all = Close::ALL;
    assert_eq!(all.iter().map(|close| close.code()).collect::<HashSet<_>>().len(), all.len());
    // A control frame holds 125 bytes, of which the code takes two.
    assert!(all.iter().all(|close| (1..=123).contains(&close.reason().len())));
}

proptest! {
    #[test]
    fn user_text_cannot_break_sse_framing(
        text in any::<String>(),
        spiked in "[a\n\r\\x00: ]{0,20}(\n\nevent: presence\ndata: \\{\\}\n\n)?",
        id in any::<String>(),
    ) {
        for note in [&text, &spiked] {
            let data = presence(&user("bob"), Some(&view(Some(note))));
            let (events, _) = read(&sse(PRESENCE, Some("17"), &data));
            prop_assert_eq!(&events, &[("presence".to_owned(), data.clone())]);
            prop_assert_eq!(&value(&data)["note"]["text"], note);
        }
        for (event, id, data) in [(&text, &spiked, &id), (&spiked, &id, &text), (&id, &text, &spiked)] {
            let frame = sse(event, Some(id), data);
            prop_assert_eq!(frame.matches(['\n', '\r']).count(), 4);
            prop_assert!(read(&frame).0.len() <= 1);
            prop_assert_eq!(sse_id(id).matches(['\n', '\r']).count(), 2);
        }
    }

    #[test]
    fn user_text_cannot_break_socket_framing(text in any::<String>(), reference in any::<Option<u64>>()) {
        let data = presence(&user("bob"), Some(&view(Some(&text))));
        let framed = value(&socket(&text, Some(&text), reference, &data));
        prop_assert_eq!(&framed["event"], &text);
        prop_assert_eq!(&framed["id"], &text);
        prop_assert_eq!(framed.get("ref").and_then(Value::as_u64), reference);
        prop_assert_eq!(&framed["note"], &value(&data)["note"]);
    }
}
