//! Good messages are understood; every bad one is refused with its field, its rule and its `ref`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::result_large_err, reason = "what is tested returns it")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::caller::{Authentication, Scopes};
use crate::conversations::Conversations;

/// Alice, who takes part in `c1` and `c2`.
fn alice() -> Caller {
    Caller {
        user: UserId::parse("alice").unwrap(),
        scopes: Scopes::NONE,
        authentication: Authentication::Token,
        conversations: Conversations::parse(["c1", "c2"]).unwrap(),
        expires_at: Some(1000),
    }
}

fn decoded(text: &str) -> Result<(Option<u64>, Message), (Option<u64>, Problem)> {
    decode_message(text, &alice(), &Limits::default())
}

fn understood(text: &str) -> Message {
    decoded(text).unwrap().1
}

#[track_caller]
fn refused(text: &str, status: u16, field: &str, rule: &str) {
    let (_, problem) = decoded(text).unwrap_err();
    assert_eq!((problem.status().as_u16(), problem.field.as_deref().unwrap_or_default()), (status, field), "{text}");
    assert!(problem.rule.as_deref().unwrap_or_default().contains(rule), "{problem:?}");
}

fn users(names: &[&str]) -> Vec<UserId> {
    names.iter().map(|name| UserId::parse(*name).unwrap()).collect()
}

fn conversations(names: &[&str]) -> Vec<ConversationId> {
    names.iter().map(|name| ConversationId::parse(*name).unwrap()).collect()
}

#[test]
fn every_documented_message_decodes() {
    assert_eq!(understood(r#"{"op":"beat","active":false}"#), Message::Beat { active: false });
    assert_eq!(understood(r#"{"op":"beat"}"#), Message::Beat { active: true });
    let since = Some(EventId { version: 5, digest: None });
    let watch = r#"{"op":"watch","users":["b","a","b"],"conversations":["c2","c1","c2"],"since":"5"}"#;
    let expected = Message::Watch { users: users(&["b", "a"]), conversations: conversations(&["c2", "c1"]), since };
    assert_eq!(understood(watch), expected);
    let unwatch = r#"{"op":"unwatch","users":["a","a"],"conversations":[]}"#;
    assert_eq!(understood(unwatch), Message::Unwatch { users: users(&["a"]), conversations: vec![] });
    let typing = r#"{"op":"typing","conversation":"c1","typing":true}"#;
    let conversation = ConversationId::parse("c1").unwrap();
    assert_eq!(understood(typing), Message::Typing { conversation, typing: true });
    assert_eq!(understood(r#"{"op":"leave"}"#), Message::Leave);
    assert_eq!(understood(r#"{"op":"token","token":"a.b.c"}"#), Message::Token("a.b.c".into()));
}

#[test]
fn ref_is_returned_on_success_and_error() {
    assert_eq!(decoded(r#"{"op":"leave","ref":18446744073709551615}"#).unwrap().0, Some(u64::MAX));
    assert_eq!(decoded(r#"{"op":"leave","ref":null}"#).unwrap().0, None);
    for text in [
        r#"{"op":"dance","ref":7}"#,
        r#"{"ref":7}"#,
        r#"{"ref":7,"op":5}"#,
        r#"{"op":"beat","ref":7,"colour":"red"}"#,
        r#"{"op":"beat","ref":7,"users":["a"]}"#,
        r#"{"op":"watch","ref":7}"#,
        r#"{"op":"typing","conversation":"c9","typing":true,"ref":7}"#,
    ] {
        assert_eq!(decoded(text).unwrap_err().0, Some(7), "{text}");
    }
}

#[test]
fn bad_message_names_field_and_rule() {
    for (text, field, rule) in [
        (r#"{}"#, "op", "is missing"),
        (r#"{"op":null}"#, "op", "must be one of beat, watch, unwatch, typing, leave, token"),
        (r#"{"op":"dance"}"#, "op", "must be one of"),
        (r#"{"op":"beat","op":"beat"}"#, "op", "is given twice"),
        (r#"{"op":"beat","ref":"7"}"#, "ref", "must be a whole number"),
        (r#"{"op":"beat","ref":-7}"#, "ref", "must be a whole number"),
        (r#"{"op":"beat","ref":1.5}"#, "ref", "must be a whole number"),
        (r#"{"op":"beat","active":1}"#, "active", "must be true or false"),
        (r#"{"op":"beat","device":"d"}"#, "device", "is not a known field"),
        (r#"{"op":"leave","reason":"logout"}"#, "reason", "is not a known field"),
        (r#"{"op":"beat","users":["a"]}"#, "users", "is not a field of this `op`"),
        (r#"{"op":"unwatch","users":["a"],"since":"5"}"#, "since", "is not a field of this `op`"),
        (r#"{"op":"watch"}"#, "users", "is empty, and so is `conversations`"),
        (r#"{"op":"unwatch","users":[],"conversations":[]}"#, "users", "is empty"),
        (r#"{"op":"watch","users":"a"}"#, "users", "must be an array"),
        (r#"{"op":"watch","users":["a",5]}"#, "users[1]", "must be a string"),
        (r#"{"op":"watch","users":["a",""]}"#, "users[1]", "is empty"),
        (r#"{"op":"watch","conversations":["c1",""]}"#, "conversations[1]", "is empty"),
        (r#"{"op":"watch","users":["a"],"since":"soon"}"#, "since", "must be an event id"),
        (r#"{"op":"watch","users":["a"],"since":5}"#, "since", "must be a string"),
        (r#"{"op":"typing","typing":true}"#, "conversation", "is missing"),
        (r#"{"op":"typing","conversation":"c1"}"#, "typing", "is missing"),
        (r#"{"op":"typing","conversation":"","typing":true}"#, "conversation", "is empty"),
        (r#"{"op":"token"}"#, "token", "is missing"),
    ] {
        refused(text, 400, field, rule);
    }
}

#[test]
fn only_participants_type_in_and_watch_conversations() {
    refused(r#"{"op":"typing","conversation":"c9","typing":false}"#, 403, "conversation", "is not listed");
    refused(r#"{"op":"watch","conversations":["c1","c9"]}"#, 403, "conversations[1]", "is not listed");
    assert!(decoded(r#"{"op":"unwatch","conversations":["c9"]}"#).is_ok());
    let anywhere = Caller { conversations: Conversations::Any, ..alice() };
    let watch = r#"{"op":"watch","conversations":["c9"]}"#;
    assert!(decode_message(watch, &anywhere, &Limits::default()).is_ok());
}

#[test]
fn lists_and_messages_are_bounded() {
    let limits = Limits { query_ids: 2, ..Limits::default() };
    for field in ["users", "conversations"] {
        let list = |count: usize| json!({"op": "watch", field: vec!["c1"; count]}).to_string();
        assert!(decode_message(&list(2), &alice(), &limits).is_ok());
        let (_, problem) = decode_message(&list(3), &alice(), &limits).unwrap_err();
        assert_eq!((problem.kind, problem.field.as_deref()), (Kind::TooMany, Some(field)));
    }
    let padded = |length: usize| format!(r#"{{"op":"leave"{}}}"#, " ".repeat(length - 14));
    assert!(decoded(&padded(MAX_MESSAGE_BYTES)).is_ok());
    assert_eq!(decoded(&padded(MAX_MESSAGE_BYTES + 1)).unwrap_err().1.status(), 413);
}

#[test]
fn message_must_be_an_object() {
    for text in ["", "{", "nonsense", "[]", "\"leave\"", "[\"leave\"]", "{\"op\":\"leave\"}x"] {
        assert_eq!(decoded(text).unwrap_err().1.status(), 400, "{text}");
    }
}

#[test]
fn debug_output_hides_the_token() {
    assert!(!format!("{:?}", understood(r#"{"op":"token","token":"hush"}"#)).contains("hush"));
    let shown = format!("{:?}", understood(r#"{"op":"watch","users":["bob"]}"#));
    assert!(shown.contains("bob"), "{shown}");
}

#[test]
fn listed_ops_and_fields_match_the_parser() {
    let listed = match FIELDS.iter().find(|field| field.name == "op") {
        Some(Field { kind: FieldType::OneOf(words), .. }) => words.to_vec(),
        _ => panic!("no op"),
    };
    assert_eq!(listed, Op::VARIANTS.iter().map(|(word, _)| *word).collect::<Vec<_>>());
    for (word, op) in Op::VARIANTS {
        let known = |name: &&str| FIELDS.iter().any(|field| field.name == *name);
        assert!(op.fields().iter().all(known), "{word}");
    }
}

proptest! {
    #[test]
    fn decoding_never_panics(text in any::<String>(), near in "[\\[\\]{}\",:a-z0-9 .\\\\-]{0,60}") {
        let _ = decoded(&text);
        let _ = decoded(&near);
        let _ = decoded(&format!("{{\"op\":{near}}}"));
    }

    #[test]
    fn decoding_never_panics_and_keeps_ref(
        op in prop::sample::select(vec!["beat", "watch", "unwatch", "typing", "leave", "token", "dance"]),
        name in prop::sample::select(vec!["active", "users", "conversations", "since", "conversation", "typing", "token"]),
        text in any::<String>(),
        reference in any::<u64>(),
    ) {
        for value in [json!(text), json!([text]), json!({ &*text: text }), json!(true), json!(null), json!(5)] {
            let message = json!({"op": op, name: value, "ref": reference}).to_string();
            let answered = match decoded(&message) {
                Ok((answered, _)) => answered,
                Err((answered, problem)) => {
                    prop_assert!(problem.field.is_some(), "{}: {:?}", message, problem);
                    answered
                }
            };
            prop_assert_eq!(answered, Some(reference));
        }
    }
}
