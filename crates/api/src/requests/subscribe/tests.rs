//! Requests to watch and to type become calls, if they make sense and the caller takes part.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use rollcall_core::UserId;

use super::*;
use crate::caller::{Authentication, Scope, Scopes};
use crate::conversations::Conversations;
use crate::route::Operation;
use crate::{Body, decode};

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn conversation(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

/// Alice, who takes part in `c1` and `c,2`.
fn alice() -> Caller {
    let conversations = Conversations::parse(["c1", "c,2"]).unwrap();
    Caller {
        user: user("alice"),
        scopes: Scopes::NONE,
        authentication: Authentication::Token,
        conversations,
        expires_at: Some(1000),
    }
}

/// A program that sees everybody.
fn service() -> Caller {
    let scopes = Scopes::NONE.with(Scope::Service);
    Caller { user: user("billing"), scopes, conversations: Conversations::Any, ..alice() }
}

fn ask(caller: &Caller, operation: Operation<'_>, query: &str, header: Option<&str>) -> Result<Call, Problem> {
    let query = Query::parse(operation, Some(query))?;
    let body = Body { last_event_id: header, ..Body::default() };
    decode(operation, &query, caller, body, &Limits::default())
}

fn subscribed(query: &str, header: Option<&str>) -> Subscribe {
    match ask(&alice(), Operation::Subscribe, query, header) {
        Ok(Call::Subscribe(subscribe)) => subscribe,
        other => panic!("{other:?}"),
    }
}

fn connected(caller: &Caller, query: &str) -> Connect {
    match ask(caller, Operation::Socket, query, None) {
        Ok(Call::Socket(connect)) => connect,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(result: Result<Call, Problem>, status: u16, field: &str, rule: &str) {
    let problem = result.unwrap_err();
    assert_eq!((problem.status().as_u16(), problem.field.as_deref()), (status, Some(field)));
    assert!(problem.rule.as_deref().unwrap_or_default().contains(rule), "{problem:?}");
}

#[test]
fn subscription_is_deduplicated() {
    let subscribe = subscribed("users=b,a%2C1,b&conversations=c%2C2,c1,c1", None);
    assert_eq!(subscribe.users, [user("b"), user("a,1")]);
    assert_eq!(subscribe.conversations, [conversation("c,2"), conversation("c1")]);
    assert_eq!((subscribe.connect.viewer, subscribe.since), (Some(user("alice")), None));
    assert!(subscribed("conversations=c1", None).users.is_empty());
    assert!(subscribed("users=b", None).conversations.is_empty());
}

#[test]
fn connection_defaults_to_a_beating_web_device() {
    let plain = connected(&alice(), "");
    let (viewer, kind) = (Some(user("alice")), DeviceKind::Web);
    assert_eq!(plain, Connect { caller: alice(), viewer, device: None, kind, beats: true, active: true });
    let said = connected(&alice(), "device=phone%201&kind=mobile&watch_only=true");
    let device = Some(DeviceId::parse("phone 1").unwrap());
    assert_eq!(said, Connect { device, kind: DeviceKind::Mobile, beats: false, ..plain });
    assert!(connected(&alice(), "watch_only=false").beats);
}

#[test]
fn resuming_defaults_to_inactive() {
    assert!(!connected(&alice(), "active=false").active);
    let active = |query, id| subscribed(query, id).connect.active;
    assert!(active("users=b", None) && !active("users=b&active=false", None));
    assert!(!active("users=b", Some("7")) && !active("users=b&since=7", None));
    assert!(active("users=b&active=true", Some("7")));
}

#[test]
fn service_connection_does_not_beat() {
    let connect = connected(&service(), "watch_only=false");
    assert_eq!((connect.viewer, connect.beats), (None, false));
    let by_word = Caller { scopes: Scopes::ALL, authentication: Authentication::Unverified, ..alice() };
    let connect = connected(&by_word, "");
    assert_eq!((connect.viewer, connect.beats), (Some(user("alice")), true));
}

#[test]
fn last_event_id_overrides_since() {
    let since = |version, digest| Some(EventId { version, digest });
    assert_eq!(subscribed("users=b&since=5", None).since, since(5, None));
    assert_eq!(subscribed("users=b&since=5", Some("7-000000000000000a")).since, since(7, Some(10)));
    assert_eq!(subscribed("users=b", Some("7")).since, since(7, None));
    assert_eq!(subscribed("users=b&since=5", Some("")).since, since(5, None));
    refused(ask(&alice(), Operation::Subscribe, "users=b", Some("x")), 400, "Last-Event-ID", "must be an event id");
    refused(ask(&alice(), Operation::Subscribe, "users=b&since=", None), 400, "since", "must be an event id");
}

#[test]
fn bad_subscription_names_field_and_rule() {
    for (query, field, rule) in [
        ("", "users", "is empty, and so is `conversations`"),
        ("users=&conversations=c1", "users", "is empty"),
        ("users=a,,b", "users[1]", "is empty"),
        ("users=a&conversations=c1,%07", "conversations[1]", "contains a control character"),
        ("users=a&conversations=%zz", "conversations[0]", "hexadecimal"),
    ] {
        refused(ask(&alice(), Operation::Subscribe, query, None), 400, field, rule);
    }
    for (query, field, rule) in [
        ("device=", "device", "is empty"),
        ("kind=toaster", "kind", "must be one of web, mobile, desktop, other"),
        ("active=1", "active", "must be true or false"),
        ("watch_only=yes", "watch_only", "must be true or false"),
        ("watch_only", "watch_only", "must be true or false"),
    ] {
        refused(ask(&alice(), Operation::Socket, query, None), 400, field, rule);
        let query = format!("users=a&{query}");
        refused(ask(&alice(), Operation::Subscribe, &query, None), 400, field, rule);
    }
    refused(ask(&alice(), Operation::Socket, "users=a", None), 400, "users", "is not a query key of this path");
    let many = |field: &str| format!("{field}={}", vec!["c1"; 501].join(","));
    for field in ["users", "conversations"] {
        refused(
            ask(&alice(), Operation::Subscribe, &many(field), None),
            400,
            field,
            "has 501 items; at most 500 are allowed",
        );
    }
}

#[test]
fn listed_kinds_match_the_parser() {
    let listed = DeviceKind::VARIANTS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    refused(ask(&alice(), Operation::Socket, "kind=", None), 400, "kind", &listed);
}

#[test]
fn typing_starts_and_stops() {
    let typing_update = |typing| TypingUpdate { user: user("alice"), conversation: conversation("c,2"), typing };
    assert_eq!(ask(&alice(), Operation::PutTyping("c%2C2"), "", None), Ok(Call::Type(typing_update(true))));
    assert_eq!(ask(&alice(), Operation::DeleteTyping("c%2C2"), "", None), Ok(Call::Type(typing_update(false))));
    let put = |bytes: &[u8]| {
        let body = Body { bytes, ..Body::default() };
        decode(Operation::PutTyping("c1"), &Query::default(), &service(), body, &Limits::default())
    };
    let bob = TypingUpdate { user: user("bob"), conversation: conversation("c1"), typing: true };
    assert_eq!(put(br#"{"user":"bob"}"#), Ok(Call::Type(bob)));
    assert!(put(b" \n").is_ok() && put(b"{}").is_ok());
    refused(put(br#"{"typing":true}"#), 400, "typing", "is not a known field");
    refused(put(br#"{"user":5}"#), 400, "user", "must be a string");
    refused(ask(&alice(), Operation::PutTyping(""), "", None), 400, "conversation", "is empty");
    refused(ask(&alice(), Operation::DeleteTyping("c1"), "user=", None), 400, "user", "is empty");
}

#[test]
fn only_participants_may_use_a_conversation() {
    let (c1, c9) = (conversation("c1"), conversation("c9"));
    let asked = ask(&alice(), Operation::Typists("c1"), "", None);
    assert_eq!(asked, Ok(Call::Typists { viewer: Some(user("alice")), conversation: c1 }));
    for operation in [Operation::Typists("c9"), Operation::PutTyping("c9"), Operation::DeleteTyping("c9")] {
        refused(ask(&alice(), operation, "", None), 403, "conversation", "is not listed in the `conversations`");
        assert!(ask(&service(), operation, "", None).is_ok());
    }
    let watched = ask(&alice(), Operation::Subscribe, "conversations=c1,c9", None);
    refused(watched, 403, "conversations[1]", "is not listed in the `conversations`");
    let asked = ask(&service(), Operation::Typists("c9"), "", None);
    assert_eq!(asked, Ok(Call::Typists { viewer: None, conversation: c9 }));
}

proptest! {
    #[test]
    fn decoding_never_panics_and_names_the_field(
        key in prop::sample::select(vec!["users", "conversations", "device", "kind", "watch_only", "since"]),
        value in "[a-z0-9,%-]{0,40}",
        header in any::<Option<String>>(),
    ) {
        for operation in [Operation::Subscribe, Operation::Socket] {
            if let Err(problem) = ask(&alice(), operation, &format!("{key}={value}"), header.as_deref()) {
                prop_assert!(problem.field.is_some(), "{:?}", problem);
            }
        }
    }
}
