//! Answers are written to the letter: clients read these bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]

use rollcall_core::{DeviceId, DeviceKind, Published};
use serde_json::{Value, json};

use super::*;
use crate::call::Refused;

const STANDING: Standing = Standing { state: State::Online, version: 1_700_000_000_000_000, next_beat_ms: 30_000 };

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn text(reply: &Reply) -> &str {
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(reply.headers()[CACHE_CONTROL], "no-store");
    std::str::from_utf8(reply.body()).unwrap()
}

fn value(reply: &Reply) -> Value {
    serde_json::from_str(text(reply)).unwrap()
}

fn view(state: State) -> View {
    let (since, last_seen) = (Some(Time(1000)), Some(Time(2000)));
    View { published: Published { state, note: None, since, last_seen, version: 7 }, choice: None }
}

fn asked(users: &[&str], form: Form) -> LookUp {
    LookUp { viewer: None, users: users.iter().map(|name| user(name)).collect(), form }
}

#[test]
fn beat_response_has_next_beat() {
    let expected = r#"{"user":"bob","state":"online","version":1700000000000000,"next_beat_ms":30000}"#;
    assert_eq!(text(&heartbeat(&user("bob"), &STANDING)), expected);
}

#[test]
fn leave_response_has_no_next_beat() {
    let gone = Standing { state: State::Offline, ..STANDING };
    assert_eq!(text(&leave(&user("bob"), &gone)), r#"{"user":"bob","state":"offline","version":1700000000000000}"#);
}

#[test]
fn status_response_shows_stored_choice() {
    let note = Note { text: "lunch".into(), emoji: "🍜".into(), until: Some(Time(5)) };
    let choice = Choice { stance: Stance::Busy, at: Time(1), until: Some(Time(5)), note: Some(note) };
    let chosen = ChoiceResult { standing: Standing { state: State::Busy, ..STANDING }, choice };
    let expected = concat!(
        r#"{"user":"bob","state":"busy","version":1700000000000000,"choice":"busy","until":5,"#,
        r#""note":{"text":"lunch","emoji":"🍜","until":5}}"#
    );
    assert_eq!(text(&status(&user("bob"), &chosen)), expected);
    let choice = Choice { stance: Stance::Auto, at: Time(1), until: None, note: None };
    let reply = value(&status(&user("bob"), &ChoiceResult { choice, ..chosen }));
    assert_eq!((&reply["choice"], &reply["until"], &reply["note"]), (&json!("auto"), &Value::Null, &Value::Null));
}

#[test]
fn batch_response_keeps_request_order() {
    let device = DeviceId::parse("d").unwrap();
    let beat = |name| Beat { user: user(name), device: device.clone(), kind: DeviceKind::Web, active: true };
    let refused = |place, user, field: &str| Refused { place, user, problem: Problem::invalid(field, "is empty") };
    let beats = Beats {
        good: vec![beat("a"), beat("b"), beat("c")],
        refused: vec![refused(0, None, "user"), refused(2, Some(user("x")), "device"), refused(5, None, "user")],
    };
    let outcomes = [Ok(STANDING), Err(Error::Unavailable(1500))];
    let reply = value(&heartbeats(&beats, &outcomes));
    let list = reply["outcomes"].as_array().unwrap();
    let shape = |outcome: &Value| (outcome["user"].clone(), outcome["error"]["status"].clone());
    let expected = [
        (Value::Null, json!(400)),
        (json!("a"), Value::Null),
        (json!("x"), json!(400)),
        (json!("b"), json!(503)),
        (json!("c"), json!(500)),
        (Value::Null, json!(400)),
    ];
    assert_eq!(list.iter().map(shape).collect::<Vec<_>>(), expected);
    assert_eq!(
        list[1],
        json!({"user": "a", "state": "online", "version": 1_700_000_000_000_000_u64, "next_beat_ms": 30000})
    );
    assert_eq!((&list[2]["error"]["field"], &list[2]["error"]["rule"]), (&json!("device"), &json!("is empty")));
    assert_eq!(list[3]["error"]["retry_after_s"], 2);
}

#[test]
fn presence_has_all_members() {
    let expected = r#"{"user":"bob","state":"away","since":1000,"last_seen":2000,"version":7,"note":null}"#;
    let reply = look_up(&asked(&["bob"], Form::One), &[Ok(Some(view(State::Away)))]);
    assert_eq!(text(&reply), expected);
    assert_eq!(presence_json(&user("bob"), Some(&view(State::Away))), expected);
}

#[test]
fn choice_is_shown_only_to_its_user() {
    let choice = Choice { stance: Stance::Invisible, at: Time(1), until: Some(Time(9)), note: None };
    let own = View { choice: Some(choice), ..view(State::Offline) };
    let reply = value(&look_up(&asked(&["bob"], Form::One), &[Ok(Some(own))]));
    assert_eq!(reply["choice"], json!({"choice": "invisible", "until": 9}));
}

#[test]
fn hidden_user_is_all_null() {
    let expected = r#"{"user":"bob","state":null,"since":null,"last_seen":null,"version":null,"note":null}"#;
    assert_eq!(text(&look_up(&asked(&["bob"], Form::One), &[Ok(None)])), expected);
}

#[test]
fn list_keeps_order_and_fails_in_place() {
    let views = [Ok(Some(view(State::Online))), Err(Error::Unavailable(1)), Ok(None)];
    let reply = value(&look_up(&asked(&["b", "c", "a"], Form::List), &views));
    let list = reply["presences"].as_array().unwrap();
    assert_eq!((&list[0]["user"], &list[0]["state"]), (&json!("b"), &json!("online")));
    assert_eq!((&list[1]["user"], &list[1]["error"]["status"]), (&json!("c"), &json!(503)));
    assert_eq!((&list[2]["user"], &list[2]["state"]), (&json!("a"), &Value::Null));
}

#[test]
fn list_fails_if_every_user_failed() {
    let away = || Err(Error::Unavailable(1));
    for (form, views) in [
        (Form::One, vec![away()]),
        (Form::List, vec![away(), away()]),
        (Form::Compact, vec![Ok(None), away()]),
        (Form::Compact, vec![Ok(None)]),
    ] {
        let users = if form == Form::One { &["a"][..] } else { &["a", "b"] };
        let reply = look_up(&asked(users, form), &views);
        assert_eq!(reply.status(), if views.len() == users.len() { 503 } else { 500 });
    }
}

#[test]
fn compact_form_maps_ids_to_states() {
    let views = [Ok(Some(view(State::Online))), Ok(None), Ok(Some(view(State::Offline)))];
    let reply = look_up(&asked(&["2", "1", "3\""], Form::Compact), &views);
    assert_eq!(text(&reply), r#"{"2":"online","1":null,"3\"":"offline"}"#);
}

#[test]
fn typing_response_has_ttl_only_when_typing() {
    let conversation = ConversationId::parse("c1").unwrap();
    let started = TypingUpdate { user: user("bob"), conversation, typing: true };
    let expected = r#"{"conversation":"c1","user":"bob","typing":true,"ttl_ms":5000}"#;
    assert_eq!(text(&typing(&started, Span(5000))), expected);
    let stopped = TypingUpdate { typing: false, ..started };
    assert_eq!(text(&typing(&stopped, Span(5000))), r#"{"conversation":"c1","user":"bob","typing":false}"#);
}

#[test]
fn typists_response_has_expiry() {
    let conversation = ConversationId::parse("c1").unwrap();
    let expected = r#"{"conversation":"c1","typists":[{"user":"bob","until":1000},{"user":"eve","until":2000}]}"#;
    let (bob, eve) = (user("bob"), user("eve"));
    assert_eq!(text(&typists(&conversation, [(&bob, Time(1000)), (&eve, Time(2000))])), expected);
    assert_eq!(text(&typists(&conversation, [])), r#"{"conversation":"c1","typists":[]}"#);
}

#[test]
fn sweep_response_has_counts() {
    let settled = Settled { examined: 5, published: 1, rescheduled: 2, stale: 1, failed: 1 };
    assert_eq!(text(&sweep(&settled)), r#"{"examined":5,"published":1,"rescheduled":2,"stale":1,"failed":1}"#);
}
