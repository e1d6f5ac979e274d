//! Good requests become calls; every bad one is refused with its status, its field and its rule.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that finds nothing should fail loudly")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::call::List;
use crate::caller::{Authentication, Scopes};
use crate::conversations::Conversations;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// Alice, a person who takes part in `c1` and `c2`; or a service.
fn caller(scopes: Scopes) -> Caller {
    let some = Conversations::parse(["c1", "c2"]).unwrap();
    let conversations = if scopes.has(Scope::Service) { Conversations::Any } else { some };
    Caller { user: user("alice"), scopes, authentication: Authentication::Token, conversations, expires_at: Some(1000) }
}

fn ask(scopes: Scopes, operation: Operation<'_>, query: &str, body: &str) -> Result<Call, Problem> {
    let query = Query::parse(operation, Some(query))?;
    let body = Body { content_type: Some("application/json"), bytes: body.as_bytes(), ..Body::default() };
    decode(operation, &query, &caller(scopes), body, &Limits::default())
}

fn post(operation: Operation<'_>, body: &str) -> Result<Call, Problem> {
    ask(Scopes::NONE, operation, "", body)
}

fn refusal(result: Result<Call, Problem>) -> (u16, String, String) {
    let problem = result.unwrap_err();
    (problem.status().as_u16(), problem.field.unwrap_or_default(), problem.rule.unwrap_or_default())
}

#[track_caller]
fn refused(result: Result<Call, Problem>, status: u16, field: &str, rule: &str) {
    let (was, named, broken) = refusal(result);
    assert_eq!((was, named.as_str()), (status, field));
    assert!(broken.contains(rule), "{broken}");
}

#[test]
fn beat_defaults_to_active_and_other() {
    let beat =
        Beat { user: user("alice"), device: DeviceId::parse("web-1").unwrap(), kind: DeviceKind::Other, active: true };
    assert_eq!(post(Operation::Heartbeat, r#"{"device":"web-1"}"#), Ok(Call::Beat(beat.clone())));
    let said = r#"{"device":"web-1","active":false,"kind":"web","user":"alice"}"#;
    let expected = Beat { kind: DeviceKind::Web, active: false, ..beat };
    assert_eq!(post(Operation::Heartbeat, said), Ok(Call::Beat(expected)));
}

#[test]
fn bad_beat_names_field_and_rule() {
    let long = format!(r#"{{"device":"{}"}}"#, "x".repeat(129));
    for (body, field, rule) in [
        ("{}", "device", "is missing"),
        (r#"{"device":""}"#, "device", "is empty"),
        (long.as_str(), "device", "is longer than 128 bytes"),
        (r#"{"device":"a\u0000b"}"#, "device", "contains a control character"),
        (r#"{"device":7}"#, "device", "must be a string"),
        (r#"{"device":"d","user":""}"#, "user", "is empty"),
        (r#"{"device":"d","user":"a\nb"}"#, "user", "contains a control character"),
        (r#"{"device":"d","active":1}"#, "active", "must be true or false"),
        (r#"{"device":"d","kind":"toaster"}"#, "kind", "must be one of web, mobile, desktop, other"),
        (r#"{"device":"d","kind":{"web":null}}"#, "kind", "must be one of"),
        (r#"{"device":"d","devcie":"e"}"#, "devcie", "is not a known field"),
    ] {
        let body = body.replace('\n', "\\n");
        refused(post(Operation::Heartbeat, &body), 400, field, rule);
    }
}

#[test]
fn only_service_acts_for_another_user() {
    let service = Scopes::NONE.with(Scope::Service);
    for (operation, query, body) in [
        (Operation::Heartbeat, "", r#"{"device":"d","user":"bob"}"#),
        (Operation::Leave, "", r#"{"device":"d","reason":"logout","user":"bob"}"#),
        (Operation::PutStatus, "", r#"{"choice":"busy","user":"bob"}"#),
        (Operation::DeleteStatus, "user=bob", ""),
        (Operation::PutTyping("c1"), "", r#"{"user":"bob"}"#),
        (Operation::DeleteTyping("c1"), "user=bob", ""),
    ] {
        refused(ask(Scopes::NONE, operation, query, body), 403, "user", "needs a token with the scope `service`");
        let acted = match ask(service, operation, query, body).unwrap() {
            Call::Beat(beat) => beat.user,
            Call::Leave(departure) => departure.user,
            Call::Choose(choice_request) => choice_request.user,
            Call::Type(typing_update) => typing_update.user,
            call => panic!("{call:?}"),
        };
        assert_eq!(acted, user("bob"));
    }
}

#[test]
fn bad_beat_in_batch_fails_alone() {
    let beats = json!({"beats": [
        {"user": "alice", "device": "a"},
        {"user": "bob", "device": "b"},
        {"user": "alice"},
        {"user": "", "device": "c"},
        7,
        {"device": "d"},
        {"user": "alice", "device": "e", "colour": "red"},
        {"user": ["alice"], "device": "f"},
        {"user": "alice", "device": "g", "active": false},
    ]});
    let Ok(Call::Beats(batch)) = post(Operation::Heartbeats, &beats.to_string()) else { panic!("refused") };
    let devices: Vec<&str> = batch.good.iter().map(|beat| beat.device.as_str()).collect();
    assert_eq!(devices, ["a", "g"]);
    let refused: Vec<_> = batch
        .refused
        .iter()
        .map(|refused| {
            let problem = &refused.problem;
            let user = refused.user.as_ref().map(UserId::as_str);
            (refused.place, user, problem.status().as_u16(), problem.field.as_deref().unwrap_or_default())
        })
        .collect();
    let expected = [
        (1, Some("bob"), 403, "user"),
        (2, Some("alice"), 400, "device"),
        (3, None, 400, "user"),
        (4, None, 400, ""),
        (5, None, 400, "user"),
        (6, Some("alice"), 400, "colour"),
        (7, None, 400, "user"),
    ];
    assert_eq!(refused, expected);
}

#[test]
fn beat_batch_is_bounded() {
    let batch = |count: usize| json!({"beats": vec![json!({"user": "alice", "device": "d"}); count]}).to_string();
    let Ok(Call::Beats(full)) = post(Operation::Heartbeats, &batch(1024)) else { panic!("refused") };
    assert_eq!((full.good.len(), full.refused.len()), (1024, 0));
    refused(post(Operation::Heartbeats, &batch(1025)), 400, "beats", "has 1025 items; at most 1024 are allowed");
    refused(post(Operation::Heartbeats, &batch(0)), 400, "beats", "is empty");
    refused(post(Operation::Heartbeats, "{}"), 400, "beats", "is missing");
    refused(post(Operation::Heartbeats, r#"{"beats":{}}"#), 400, "beats", "must be an array");
    refused(post(Operation::Heartbeats, r#"{"beats":[],"x":1}"#), 400, "x", "is not a known field");
    assert_eq!(refusal(post(Operation::Heartbeats, r#"{"beats":[{]}"#)).0, 400);
}

#[test]
fn departure_needs_a_reason() {
    let Ok(Call::Leave(departure)) = post(Operation::Leave, r#"{"device":"d","reason":"dropped"}"#) else {
        panic!("refused")
    };
    assert_eq!((departure.user, departure.reason), (user("alice"), DepartureReason::Dropped));
    refused(post(Operation::Leave, r#"{"device":"d"}"#), 400, "reason", "is missing");
    refused(post(Operation::Leave, r#"{"device":"d","reason":"bored"}"#), 400, "reason", "one of logout, dropped");
}

#[test]
fn status_has_optional_note() {
    let chosen = |body: &str| match post(Operation::PutStatus, body) {
        Ok(Call::Choose(choice_request)) => choice_request,
        other => panic!("{other:?}"),
    };
    let busy = chosen(r#"{"choice":"busy","text":"lunch","emoji":"🍜","for_s":3600}"#);
    assert_eq!((busy.stance, busy.for_s), (Stance::Busy, Some(3600)));
    assert_eq!(busy.note, Some(NoteContent { text: "lunch".into(), emoji: "🍜".into() }));
    assert_eq!(chosen(r#"{"choice":"invisible","text":"","for_s":null}"#).note, None);
    assert_eq!(chosen(r#"{"choice":"auto","emoji":"👩‍❤️‍💋‍👨"}"#).note.unwrap().text, "");
}

#[test]
fn bad_status_names_field_and_rule() {
    let long = |field: &str, length: usize| json!({"choice": "busy", field: "x".repeat(length)}).to_string();
    assert!(post(Operation::PutStatus, &long("text", 140)).is_ok());
    for (body, field, rule) in [
        (long("text", 141), "text", "is longer than 140 bytes"),
        (long("emoji", 33), "emoji", "is longer than 32 bytes"),
        (r#"{"choice":"busy","text":"a\tb"}"#.into(), "text", "contains a control character"),
        (r#"{"choice":"busy","for_s":0}"#.into(), "for_s", "is not between 1 and 31536000"),
        (r#"{"choice":"busy","for_s":31536001}"#.into(), "for_s", "is not between 1 and 31536000"),
        (r#"{"choice":"busy","for_s":"1h"}"#.into(), "for_s", "must be a whole number between 1 and 31536000"),
        (r#"{"choice":"online"}"#.into(), "choice", "must be one of auto, away, busy, invisible"),
        (r#"{"text":"x"}"#.into(), "choice", "is missing"),
    ] {
        refused(post(Operation::PutStatus, &body), 400, field, rule);
    }
}

#[test]
fn deleting_status_chooses_auto() {
    let expected = ChoiceRequest { user: user("alice"), stance: Stance::Auto, for_s: None, note: None };
    assert_eq!(ask(Scopes::NONE, Operation::DeleteStatus, "", ""), Ok(Call::Choose(expected)));
    refused(ask(Scopes::NONE, Operation::DeleteStatus, "user=", ""), 400, "user", "is empty");
}

#[test]
fn presence_is_queried_in_four_ways() {
    let listed = |result: Result<Call, Problem>| match result {
        Ok(Call::LookUp(look_up)) => {
            let users: Vec<String> = look_up.users.into_iter().map(UserId::into_string).collect();
            (users.join(" "), look_up.form, look_up.viewer)
        }
        other => panic!("{other:?}"),
    };
    let alice = Some(user("alice"));
    let one = ask(Scopes::NONE, Operation::PresenceOne("b%2Fb"), "", "");
    assert_eq!(listed(one), ("b/b".into(), Form::One, alice.clone()));
    let query = ask(Scopes::NONE, Operation::PresenceQuery, "users=b,a,b", "");
    assert_eq!(listed(query), ("b a b".into(), Form::List, alice.clone()));
    let body = post(Operation::PresencePost, r#"{"users":["b","a","b"]}"#);
    assert_eq!(listed(body), ("b a b".into(), Form::List, alice.clone()));
    let compact = ask(Scopes::NONE, Operation::PresenceBatch, "user_ids=2,1,2", "");
    assert_eq!(listed(compact), ("2 1".into(), Form::Compact, alice));
    let service = ask(Scopes::NONE.with(Scope::Service), Operation::PresenceOne("b"), "", "");
    assert_eq!(listed(service).2, None);
}

#[test]
fn bad_id_refuses_the_whole_query() {
    let long = "x".repeat(129);
    refused(ask(Scopes::NONE, Operation::PresenceOne(""), "", ""), 400, "user", "is empty");
    refused(ask(Scopes::NONE, Operation::PresenceOne(&long), "", ""), 400, "user", "is longer than 128 bytes");
    refused(ask(Scopes::NONE, Operation::PresenceOne("%00"), "", ""), 400, "user", "control character");
    refused(ask(Scopes::NONE, Operation::PresenceOne("%ff"), "", ""), 400, "user", "UTF-8");
    refused(ask(Scopes::NONE, Operation::PresenceBatch, "user_ids=1,", ""), 400, "user_ids[1]", "is empty");
    refused(ask(Scopes::NONE, Operation::PresenceBatch, "", ""), 400, "user_ids", "is missing");
    refused(post(Operation::PresencePost, r#"{"users":["a","b","c",""]}"#), 400, "users[3]", "is empty");
    refused(post(Operation::PresencePost, r#"{"users":["a",null]}"#), 400, "users[1]", "must be a string");
    refused(post(Operation::PresencePost, r#"{"users":[]}"#), 400, "users", "is empty");
    let many = |count: usize| json!({"users": vec!["a"; count]}).to_string();
    assert!(post(Operation::PresencePost, &many(500)).is_ok());
    refused(post(Operation::PresencePost, &many(501)), 400, "users", "has 501 items; at most 500 are allowed");
}

#[test]
fn sweep_needs_service_and_is_bounded() {
    let service = Scopes::NONE.with(Scope::Service);
    assert_eq!(refusal(post(Operation::Sweep, "")).0, 403);
    assert_eq!(refusal(ask(Scopes::NONE.with(Scope::Admin), Operation::Sweep, "", "")).0, 403);
    for (body, limit) in [("", None), (" \n", None), ("{}", None), (r#"{"limit":5}"#, Some(5))] {
        assert_eq!(ask(service, Operation::Sweep, "", body), Ok(Call::Sweep(Sweep { limit })));
    }
    refused(ask(service, Operation::Sweep, "", r#"{"limit":0}"#), 400, "limit", "must be between 1 and 1024");
    refused(ask(service, Operation::Sweep, "", r#"{"limit":1025}"#), 400, "limit", "must be between 1 and 1024");
    refused(ask(service, Operation::Sweep, "", r#"{"limit":"all"}"#), 400, "limit", "must be a whole number");
}

#[test]
fn body_over_the_limit_is_refused() {
    let limits = Limits::default();
    for operation in WITH_BODIES {
        let padded = " ".repeat(operation.body_limit(&limits) + 1);
        assert_eq!(refusal(post(operation, &padded)).0, 413);
    }
}

#[test]
fn non_json_content_type_is_refused() {
    let ask = |content_type| {
        let body = Body { content_type, bytes: br#"{"device":"d"}"#, ..Body::default() };
        decode(Operation::Heartbeat, &Query::default(), &caller(Scopes::NONE), body, &Limits::default())
    };
    for good in [None, Some("application/json"), Some("Application/JSON; charset=utf-8"), Some("application/json ;x")] {
        assert!(ask(good).is_ok(), "{good:?}");
    }
    for bad in ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "text/json"] {
        assert_eq!(refusal(ask(Some(bad))).0, 415, "{bad:?}");
    }
}

#[test]
fn malformed_json_names_its_position() {
    for operation in [Operation::Heartbeat, Operation::Heartbeats, Operation::Leave, Operation::PutStatus] {
        for body in ["", "{", "{]", "nonsense", "{\"device\" \"d\"}"] {
            let problem = post(operation, body).unwrap_err();
            assert_eq!(problem.kind, Kind::Malformed, "{body}");
        }
    }
}

#[test]
fn listed_names_match_the_parser() {
    fn words<T: StringEnum>() -> Vec<&'static str> {
        T::VARIANTS.iter().map(|(word, _)| *word).collect()
    }
    let listed = |fields: &'static [Field], name: &str| match fields.iter().find(|field| field.name == name) {
        Some(Field { kind: FieldType::OneOf(words), .. }) => words.to_vec(),
        _ => panic!("{name}"),
    };
    assert_eq!(listed(BEAT, "kind"), words::<DeviceKind>());
    assert_eq!(listed(LEAVE, "reason"), words::<DepartureReason>());
    assert_eq!(listed(STATUS, "choice"), words::<Stance>());
}

const WITH_BODIES: [Operation<'static>; 13] = [
    Operation::Heartbeat,
    Operation::Heartbeats,
    Operation::Leave,
    Operation::PutStatus,
    Operation::PresencePost,
    Operation::PutTyping("c1"),
    Operation::PutPrivacy,
    Operation::PutListed(List::Contacts, "bob"),
    Operation::PutListed(List::Blocks, "bob"),
    Operation::PutRestriction("bob"),
    Operation::Check,
    Operation::Changes,
    Operation::Sweep,
];

proptest! {
    #[test]
    fn decoding_never_panics(bytes in any::<Vec<u8>>(), path in any::<String>(), kind in any::<Option<String>>()) {
        let body = Body { content_type: kind.as_deref(), bytes: &bytes, last_event_id: kind.as_deref() };
        let with_paths = [
            Operation::PresenceOne(&path),
            Operation::Typists(&path),
            Operation::PutTyping(&path),
            Operation::PutListed(List::Contacts, &path),
            Operation::DeleteListed(List::Blocks, &path),
            Operation::PutRestriction(&path),
        ];
        for operation in WITH_BODIES.into_iter().chain(with_paths) {
            let caller = caller(Scopes::ALL);
            let _ = decode(operation, &Query::default(), &caller, body, &Limits::default());
        }
    }

    #[test]
    fn decoding_near_misses_never_panics(
        name in prop::sample::select(vec![
            "user", "device", "beats", "users", "choice", "text", "for_s", "limit", "reason", "presence", "viewer",
            "subjects", "changes", "op",
        ]),
        value in "[\\[\\]{}\",:a-z0-9 .\\\\-]{0,40}",
        text in any::<String>(),
    ) {
        for body in [format!("{{\"{name}\":{value}}}"), json!({ name: text, "device": text }).to_string()] {
            for operation in WITH_BODIES {
                let _ = ask(Scopes::ALL, operation, "", &body);
            }
            let _ = ask(Scopes::ALL, Operation::Heartbeats, "", &format!("{{\"beats\":[{body},{body}]}}"));
            let _ = ask(Scopes::ALL, Operation::Changes, "", &format!("{{\"changes\":[{body},{body}]}}"));
        }
    }
}

#[test]
fn stats_and_people_need_admin() {
    let admin = Scopes::NONE.with(Scope::Admin);
    assert_eq!(ask(admin, Operation::Stats, "", ""), Ok(Call::Stats));
    assert_eq!(ask(admin, Operation::Person("b%6Fb"), "", ""), Ok(Call::Person { user: user("bob") }));
    for scopes in [Scopes::NONE, Scopes::NONE.with(Scope::Service)] {
        for operation in [Operation::Stats, Operation::Person("bob"), Operation::Person("")] {
            let problem = ask(scopes, operation, "", "").unwrap_err();
            assert_eq!(problem.kind, Kind::Forbidden);
            assert!(problem.detail.contains("`admin`"), "{problem:?}");
        }
    }
    refused(ask(admin, Operation::Person(""), "", ""), 400, "user", "");
}
