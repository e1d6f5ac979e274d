//! Answers are written to the letter: clients read these bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use rollcall_core::policy::PolicyChange;
use serde_json::{Value, json};

use super::*;
use crate::problem::{Kind, Problem};

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn text(reply: &Reply) -> &str {
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(reply.headers()[CACHE_CONTROL], "no-store");
    std::str::from_utf8(reply.body()).unwrap()
}

#[test]
fn privacy_response_has_both_audiences() {
    let reply = privacy(&user("bob"), Privacy { presence: Audience::Everyone, last_seen: Audience::Contacts });
    assert_eq!(text(&reply), r#"{"user":"bob","presence":"everyone","last_seen":"contacts"}"#);
    let reply = privacy(&user("bob"), Privacy { presence: Audience::Nobody, last_seen: Audience::Everyone });
    assert_eq!(text(&reply), r#"{"user":"bob","presence":"nobody","last_seen":"everyone"}"#);
}

#[test]
fn list_response_is_sorted() {
    let others = [user("eve"), user("Eve"), user("名/\"1\""), user("alice"), user("10"), user("9")];
    let reply = listed(&user("bob"), List::Contacts, &others);
    assert_eq!(text(&reply), r#"{"user":"bob","contacts":["10","9","Eve","alice","eve","名/\"1\""]}"#);
    assert_eq!(text(&listed(&user("bob"), List::Blocks, &[user("eve")])), r#"{"user":"bob","blocks":["eve"]}"#);
    assert_eq!(text(&listed(&user("bob"), List::Blocks, &[])), r#"{"user":"bob","blocks":[]}"#);
}

#[test]
fn list_change_response_shows_new_value() {
    let answered = |kind, is| text(&list(&user("bob"), &user("alice"), kind, is)).to_owned();
    assert_eq!(answered(List::Contacts, true), r#"{"user":"bob","other":"alice","contact":true}"#);
    assert_eq!(answered(List::Contacts, false), r#"{"user":"bob","other":"alice","contact":false}"#);
    assert_eq!(answered(List::Blocks, true), r#"{"user":"bob","other":"alice","blocked":true}"#);
    assert_eq!(answered(List::Blocks, false), r#"{"user":"bob","other":"alice","blocked":false}"#);
}

#[test]
fn restriction_response_shows_new_value() {
    assert_eq!(text(&restriction(&user("bob"), true)), r#"{"user":"bob","restricted":true}"#);
    assert_eq!(text(&restriction(&user("bob"), false)), r#"{"user":"bob","restricted":false}"#);
}

#[test]
fn check_response_keeps_request_order() {
    let hidden = |presence| Verdict { presence, last_seen: false };
    let verdicts = [
        Verdict::OPEN,
        hidden(Ruling::Restricted),
        hidden(Ruling::Blocked),
        hidden(Ruling::Private),
        hidden(Ruling::Allowed),
    ];
    let expected = concat!(
        r#"{"verdicts":["allowed","restricted","blocked","private","allowed"],"#,
        r#""last_seen":[true,false,false,false,false]}"#
    );
    assert_eq!(text(&check(&verdicts)), expected);
}

#[test]
fn change_batch_response_keeps_request_order() {
    let refusal = |place, field: &str| Refused { place, user: None, problem: Problem::invalid(field, "is empty") };
    let changes = PolicyChanges {
        good: vec![
            PolicyChange::Restrict(user("a")),
            PolicyChange::Unrestrict(user("b")),
            PolicyChange::Restrict(user("c")),
        ],
        refused: vec![refusal(0, "user"), refusal(1, "other"), refusal(4, "op")],
    };
    let outcomes = [Ok(()), Err(Error::Unavailable(1500))];
    let reply = super::changes(&changes, &outcomes);
    let value: Value = serde_json::from_str(text(&reply)).unwrap();
    let list = value["outcomes"].as_array().unwrap();
    assert_eq!(list.len(), 6);
    assert_eq!(list[2], json!({"ok": true}));
    let statuses = list.iter().map(|outcome| outcome["error"]["status"].as_u64()).collect::<Vec<_>>();
    assert_eq!(statuses, [Some(400), Some(400), None, Some(503), Some(400), Some(500)]);
    let expected = json!({"error": {
        "title": "The input breaks a rule", "status": 400, "detail": "`other` is empty", "field": "other",
        "rule": "is empty",
    }});
    assert_eq!(list[1], expected);
    assert_eq!(list[3]["error"]["retry_after_s"], 2);
}

#[test]
fn full_list_error_names_the_limit() {
    let full = || Error::TooMany(rollcall_core::policy::MAX_LISTED as u32);
    let problem = Problem::from(full());
    assert_eq!((problem.kind, problem.status().as_u16()), (Kind::TooMany, 400));
    let changes = PolicyChanges { good: vec![PolicyChange::Block(user("a"), user("b"))], refused: Vec::new() };
    let expected = concat!(
        r#"{"outcomes":[{"error":{"title":"Too many items","status":400,"#,
        r#""detail":"more than 10000 items, which is the limit","limit":10000}}]}"#
    );
    assert_eq!(text(&super::changes(&changes, &[Err(full())])), expected);
}
