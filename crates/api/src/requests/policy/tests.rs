//! Who may set what for which user; bad requests are refused with status, field and rule.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that finds nothing should fail loudly")]

use rollcall_core::MAX_ID_BYTES;
use serde_json::{Value, json};

use super::*;
use crate::caller::{Authentication, Scopes};
use crate::conversations::Conversations;
use crate::route::Operation;
use crate::{Body, Kind, Limits, decode};

const BOTH: [List; 2] = [List::Contacts, List::Blocks];

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// Bob, by a token with these scopes.
fn bob(scopes: Scopes) -> Caller {
    let conversations = Conversations::NONE;
    Caller { user: user("bob"), scopes, authentication: Authentication::Token, conversations, expires_at: Some(1000) }
}

fn person() -> Caller {
    bob(Scopes::NONE)
}

fn service() -> Caller {
    bob(Scopes::NONE.with(Scope::Service))
}

fn admin() -> Caller {
    bob(Scopes::NONE.with(Scope::Admin))
}

/// Bob, as he says, on a server without a key.
fn by_word() -> Caller {
    Caller { authentication: Authentication::Unverified, expires_at: None, ..bob(Scopes::ALL) }
}

fn ask(caller: &Caller, operation: Operation<'_>, query: &str, body: &str) -> Result<Call, Problem> {
    let query = Query::parse(operation, Some(query))?;
    let body = Body { content_type: Some("application/json"), bytes: body.as_bytes(), ..Body::default() };
    decode(operation, &query, caller, body, &Limits::default())
}

#[track_caller]
fn refused(result: Result<Call, Problem>, status: u16, field: &str, rule: &str) {
    let problem = result.unwrap_err();
    assert_eq!((problem.status().as_u16(), problem.field.as_deref().unwrap_or_default()), (status, field));
    assert!(problem.rule.as_deref().unwrap_or_default().contains(rule), "{problem:?}");
}

#[track_caller]
fn forbidden(result: Result<Call, Problem>, scope: &str) {
    let problem = result.unwrap_err();
    assert_eq!((problem.kind, problem.field.as_deref()), (Kind::Forbidden, None));
    assert!(problem.detail.contains(scope), "{problem:?}");
}

#[test]
fn user_reads_and_sets_own_privacy() {
    assert_eq!(ask(&person(), Operation::Privacy, "", ""), Ok(Call::Privacy { user: user("bob") }));
    for (presence, means) in Audience::VARIANTS {
        for (last_seen, also_means) in Audience::VARIANTS {
            let body = json!({"presence": presence, "last_seen": last_seen}).to_string();
            let privacy = Privacy { presence: *means, last_seen: *also_means };
            let expected = Call::SetPrivacy { user: user("bob"), privacy };
            assert_eq!(ask(&person(), Operation::PutPrivacy, "", &body), Ok(expected));
        }
    }
}

#[test]
fn bad_privacy_names_field_and_rule() {
    for (body, field, rule) in [
        ("{}", "presence", "is missing"),
        (r#"{"presence":"nobody"}"#, "last_seen", "is missing"),
        (r#"{"last_seen":"nobody"}"#, "presence", "is missing"),
        (r#"{"presence":"friends","last_seen":"nobody"}"#, "presence", "must be one of everyone, contacts, nobody"),
        (r#"{"presence":"nobody","last_seen":"Nobody"}"#, "last_seen", "must be one of everyone, contacts, nobody"),
        (r#"{"presence":null,"last_seen":"nobody"}"#, "presence", "must be one of"),
        (r#"{"presence":"nobody","last_seen":{"nobody":null}}"#, "last_seen", "must be one of"),
        (r#"{"presence":"nobody","last_seen":"nobody","note":"nobody"}"#, "note", "is not a known field"),
        (r#"{"presence":"nobody","presence":"nobody","last_seen":"nobody"}"#, "presence", "is given twice"),
        (r#"{"presence":"nobody","last_seen":"nobody","user":""}"#, "user", "is empty"),
        (r#"{"presence":"nobody","last_seen":"nobody","user":7}"#, "user", "must be a string"),
    ] {
        refused(ask(&person(), Operation::PutPrivacy, "", body), 400, field, rule);
    }
    assert_eq!(ask(&person(), Operation::PutPrivacy, "", "").unwrap_err().kind, Kind::Malformed);
    refused(ask(&person(), Operation::PutPrivacy, "user=bob", "{}"), 400, "user", "is not a query key");
}

#[test]
fn lists_are_read_whole_and_changed_singly() {
    for list in BOTH {
        assert_eq!(ask(&person(), Operation::Listed(list), "", ""), Ok(Call::Listed { user: user("bob"), list }));
        let expected = |listed| Call::List { owner: user("bob"), other: user("alice"), list, listed };
        for body in ["", " \n", "{}", r#"{"user":null}"#, r#"{"user":"bob"}"#] {
            assert_eq!(ask(&person(), Operation::PutListed(list, "alice"), "", body), Ok(expected(true)), "{body}");
        }
        assert_eq!(ask(&person(), Operation::DeleteListed(list, "alice"), "", ""), Ok(expected(false)));
        assert_eq!(ask(&person(), Operation::DeleteListed(list, "alice"), "user=bob", ""), Ok(expected(false)));
    }
}

#[test]
fn path_ids_are_decoded_and_validated() {
    let long = "x".repeat(MAX_ID_BYTES + 1);
    for (path, id) in [("a%2Fb", "a/b"), ("%E5%90%8D%40x+1", "名@x+1"), ("%2E%2E", ".."), ("a%20b", "a b"), ("0", "0")]
    {
        for list in BOTH {
            for operation in [Operation::PutListed(list, path), Operation::DeleteListed(list, path)] {
                let Ok(Call::List { other, .. }) = ask(&person(), operation, "", "") else { panic!("{path}") };
                assert_eq!(other, user(id));
            }
        }
        let asked = ask(&admin(), Operation::Restriction(path), "", "");
        assert_eq!(asked, Ok(Call::Restriction { user: user(id) }));
    }
    for (path, rule) in [
        ("", "is empty"),
        (long.as_str(), "is longer than 128 bytes"),
        ("a%00", "contains a control character"),
        ("%ff", "UTF-8"),
        ("%4", "hexadecimal"),
    ] {
        for list in BOTH {
            refused(ask(&person(), Operation::PutListed(list, path), "", ""), 400, "other", rule);
            refused(ask(&person(), Operation::DeleteListed(list, path), "", ""), 400, "other", rule);
        }
        for operation in
            [Operation::Restriction(path), Operation::PutRestriction(path), Operation::DeleteRestriction(path)]
        {
            refused(ask(&admin(), operation, "", ""), 400, "user", rule);
        }
    }
}

#[test]
fn user_cannot_list_themselves() {
    let rule = "must not be the user who owns the list";
    for list in BOTH {
        refused(ask(&person(), Operation::PutListed(list, "bob"), "", ""), 400, "other", rule);
        refused(ask(&person(), Operation::PutListed(list, "b%6Fb"), "", ""), 400, "other", rule);
        refused(ask(&person(), Operation::DeleteListed(list, "bob"), "", ""), 400, "other", rule);
        let other = Operation::PutListed(list, "alice");
        refused(ask(&service(), other, "", r#"{"user":"alice"}"#), 400, "other", rule);
        refused(ask(&service(), Operation::DeleteListed(list, "alice"), "user=alice", ""), 400, "other", rule);
        // For another user, the service is an ordinary user.
        assert!(ask(&service(), Operation::PutListed(list, "bob"), "", r#"{"user":"alice"}"#).is_ok());
    }
}

#[test]
fn bad_list_request_names_field_and_rule() {
    for list in BOTH {
        let put = |body| ask(&person(), Operation::PutListed(list, "alice"), "", body);
        refused(put(r#"{"user":7}"#), 400, "user", "must be a string");
        refused(put(r#"{"user":""}"#), 400, "user", "is empty");
        refused(put(r#"{"other":"eve"}"#), 400, "other", "is not a known field; the fields are user");
        assert_eq!(put("{").unwrap_err().kind, Kind::Malformed);
        assert_eq!(put("[]").unwrap_err().kind, Kind::Invalid);
        for operation in [Operation::Listed(list), Operation::DeleteListed(list, "alice")] {
            refused(ask(&person(), operation, "user=", ""), 400, "user", "is empty");
            refused(ask(&person(), operation, "user=%07", ""), 400, "user", "contains a control character");
            refused(ask(&person(), operation, "other=eve", ""), 400, "other", "is not a query key");
        }
    }
    refused(ask(&person(), Operation::Privacy, "user=", ""), 400, "user", "is empty");
}

#[test]
fn only_service_handles_another_users_settings() {
    let privacy = r#"{"user":"eve","presence":"nobody","last_seen":"nobody"}"#;
    let mut asked = vec![(Operation::Privacy, "user=eve", ""), (Operation::PutPrivacy, "", privacy)];
    for list in BOTH {
        asked.push((Operation::Listed(list), "user=eve", ""));
        asked.push((Operation::PutListed(list, "alice"), "", r#"{"user":"eve"}"#));
        asked.push((Operation::DeleteListed(list, "alice"), "user=eve", ""));
    }
    for (operation, query, body) in asked {
        for caller in [person(), admin()] {
            refused(ask(&caller, operation, query, body), 403, "user", "needs a token with the scope `service`");
        }
        for caller in [service(), by_word()] {
            let settings_owner = match ask(&caller, operation, query, body).unwrap() {
                Call::Privacy { user } | Call::SetPrivacy { user, .. } | Call::Listed { user, .. } => user,
                Call::List { owner, .. } => owner,
                call => panic!("{call:?}"),
            };
            assert_eq!(settings_owner, user("eve"));
        }
    }
}

#[test]
fn restrictions_need_admin() {
    let eve = || user("eve");
    for (operation, expected) in [
        (Operation::Restriction("eve"), Call::Restriction { user: eve() }),
        (Operation::PutRestriction("eve"), Call::SetRestriction { user: eve(), restricted: true }),
        (Operation::DeleteRestriction("eve"), Call::SetRestriction { user: eve(), restricted: false }),
    ] {
        for caller in [person(), service()] {
            forbidden(ask(&caller, operation, "", ""), "`admin`");
        }
        for caller in [admin(), by_word()] {
            assert_eq!(ask(&caller, operation, "", ""), Ok(expected.clone()));
        }
        refused(ask(&admin(), operation, "user=eve", ""), 400, "user", "is not a query key");
    }
    // One's own account, too: an administrator may, anybody else may not even ask.
    forbidden(ask(&person(), Operation::Restriction("bob"), "", ""), "`admin`");
}

#[test]
fn restriction_body_must_have_no_fields() {
    let put = |body| ask(&admin(), Operation::PutRestriction("eve"), "", body);
    let expected = Call::SetRestriction { user: user("eve"), restricted: true };
    for body in ["", " ", "{}", " {} "] {
        assert_eq!(put(body), Ok(expected.clone()));
    }
    refused(put(r#"{"restricted":false}"#), 400, "restricted", "is not a known field; there are none here");
    refused(put(r#"{"user":"eve"}"#), 400, "user", "is not a known field");
    assert_eq!(put("{").unwrap_err().kind, Kind::Malformed);
    assert_eq!(put("null").unwrap_err().kind, Kind::Invalid);
}

#[test]
fn check_needs_service_or_admin() {
    let body = r#"{"viewer":"alice","subjects":["bob","名/1","bob"]}"#;
    forbidden(ask(&person(), Operation::Check, "", body), "`service` or the scope `admin`");
    for caller in [service(), admin(), by_word()] {
        let Ok(Call::Check { viewer, subjects }) = ask(&caller, Operation::Check, "", body) else { panic!("refused") };
        assert_eq!(viewer, Some(user("alice")));
        assert_eq!(subjects.iter().collect::<Vec<_>>(), ["bob", "名/1", "bob"], "in order, duplicates and all");
        for body in [r#"{"subjects":["bob"]}"#, r#"{"viewer":null,"subjects":["bob"]}"#] {
            let Ok(Call::Check { viewer, .. }) = ask(&caller, Operation::Check, "", body) else { panic!("refused") };
            assert_eq!(viewer, None, "a service is no viewer");
        }
    }
}

#[test]
fn bad_check_names_field_and_rule() {
    for (body, field, rule) in [
        ("{}", "subjects", "is missing"),
        (r#"{"subjects":[]}"#, "subjects", "is empty"),
        (r#"{"subjects":null}"#, "subjects", "must be an array"),
        (r#"{"subjects":"bob"}"#, "subjects", "must be an array"),
        (r#"{"subjects":["bob",7]}"#, "subjects[1]", "must be a string"),
        (r#"{"subjects":["bob",""]}"#, "subjects[1]", "is empty"),
        (r#"{"subjects":["a\u0007"]}"#, "subjects[0]", "contains a control character"),
        (r#"{"viewer":"","subjects":["bob"]}"#, "viewer", "is empty"),
        (r#"{"viewer":7,"subjects":["bob"]}"#, "viewer", "must be a string"),
        (r#"{"user":"alice","subjects":["bob"]}"#, "user", "is not a known field; the fields are viewer, subjects"),
    ] {
        refused(ask(&service(), Operation::Check, "", body), 400, field, rule);
    }
}

#[test]
fn largest_check_fits_and_one_more_fails() {
    let body = |count: usize| {
        let subjects: Vec<String> = (0..count).map(|place| format!("{place:0>MAX_ID_BYTES$}")).collect();
        json!({"viewer": "v".repeat(MAX_ID_BYTES), "subjects": subjects}).to_string()
    };
    let Ok(Call::Check { subjects, .. }) = ask(&service(), Operation::Check, "", &body(MAX_SUBJECTS)) else {
        panic!("refused")
    };
    assert_eq!((subjects.len(), subjects.iter().last().map(str::len)), (10_000, Some(128)));
    let more = ask(&service(), Operation::Check, "", &body(MAX_SUBJECTS + 1));
    refused(more, 400, "subjects", "has 10001 items; at most 10000 are allowed");
}

fn all_changes() -> Vec<(Value, PolicyChange)> {
    let (bob, alice) = (|| user("bob"), || user("alice"));
    let privacy = Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody };
    let pair = |op: &str| json!({"op": op, "user": "bob", "other": "alice"});
    vec![
        (pair("block"), PolicyChange::Block(bob(), alice())),
        (pair("unblock"), PolicyChange::Unblock(bob(), alice())),
        (pair("add_contact"), PolicyChange::AddContact(bob(), alice())),
        (pair("remove_contact"), PolicyChange::RemoveContact(bob(), alice())),
        (
            json!({"op": "privacy", "user": "alice", "presence": "contacts", "last_seen": "nobody"}),
            PolicyChange::SetPrivacy(alice(), privacy),
        ),
        (json!({"op": "restrict", "user": "alice"}), PolicyChange::Restrict(alice())),
        (json!({"op": "unrestrict", "user": "alice"}), PolicyChange::Unrestrict(alice())),
    ]
}

fn batch(caller: &Caller, changes: &[Value]) -> Result<PolicyChanges, Problem> {
    match ask(caller, Operation::Changes, "", &json!({"changes": changes}).to_string())? {
        Call::Changes(changes) => Ok(changes),
        call => panic!("{call:?}"),
    }
}

#[test]
fn batch_restricts_only_with_admin() {
    let (sent, expected): (Vec<_>, Vec<_>) = all_changes().into_iter().unzip();
    for caller in [bob(Scopes::ALL), by_word()] {
        assert_eq!(batch(&caller, &sent), Ok(PolicyChanges { good: expected.clone(), refused: Vec::new() }));
    }
    let PolicyChanges { good, refused } = batch(&service(), &sent).unwrap();
    assert_eq!(good.as_slice(), expected.get(..5).unwrap());
    let places = refused.iter().map(|refused| (refused.place, refused.problem.kind)).collect::<Vec<_>>();
    assert_eq!(places, [(5, Kind::Forbidden), (6, Kind::Forbidden)]);
    assert!(refused.iter().all(|refused| refused.problem.detail.contains("`admin`")));
    for caller in [person(), admin()] {
        assert_eq!(batch(&caller, &sent).unwrap_err().detail, "this needs a token with the scope `service`");
    }
}

#[test]
fn bad_change_in_batch_fails_alone() {
    let bad = [
        (json!({"user": "bob", "other": "alice"}), "op", "is missing"),
        (json!({"op": "mute", "user": "bob", "other": "alice"}), "op", "must be one of block, unblock, add_contact"),
        (json!({"op": {"block": null}, "user": "bob", "other": "alice"}), "op", "must be one of"),
        (json!({"op": "block", "other": "alice"}), "user", "is missing"),
        (json!({"op": "block", "user": null, "other": "alice"}), "user", "must be a string"),
        (json!({"op": "block", "user": "", "other": "alice"}), "user", "is empty"),
        (json!({"op": "unblock", "user": "bob"}), "other", "is missing"),
        (json!({"op": "add_contact", "user": "bob", "other": 7}), "other", "must be a string"),
        (json!({"op": "add_contact", "user": "bob", "other": "a\u{7}"}), "other", "contains a control character"),
        (
            json!({"op": "remove_contact", "user": "bob", "other": "bob"}),
            "other",
            "must not be the user who owns the list",
        ),
        (
            json!({"op": "block", "user": "bob", "other": "alice", "presence": "nobody"}),
            "presence",
            "is not a known field",
        ),
        (json!({"op": "privacy", "user": "bob", "presence": "nobody"}), "last_seen", "is missing"),
        (json!({"op": "privacy", "user": "bob", "last_seen": "nobody"}), "presence", "is missing"),
        (json!({"op": "privacy", "user": "bob", "presence": "x", "last_seen": "nobody"}), "presence", "must be one of"),
        (
            json!({"op": "privacy", "user": "bob", "presence": "nobody", "last_seen": "nobody", "other": "eve"}),
            "other",
            "is not a known field; the fields are op, user, presence, last_seen",
        ),
        (
            json!({"op": "restrict", "user": "eve", "other": "bob"}),
            "other",
            "is not a known field; the fields are op, user",
        ),
        (json!({"op": "unrestrict"}), "user", "is missing"),
        (json!({"op": "restrict", "user": "x".repeat(129)}), "user", "is longer than 128 bytes"),
        (json!(7), "", ""),
        (json!(["block", "bob", "alice"]), "", ""),
    ];
    let good = json!({"op": "block", "user": "bob", "other": "alice"});
    let mut sent = vec![good.clone()];
    sent.extend(bad.iter().map(|(change, ..)| change.clone()));
    sent.push(good);
    let PolicyChanges { good, refused } = batch(&bob(Scopes::ALL), &sent).unwrap();
    assert_eq!(good, vec![PolicyChange::Block(user("bob"), user("alice")); 2]);
    assert_eq!(refused.len(), bad.len());
    for ((place, refused), (change, field, rule)) in refused.iter().enumerate().zip(&bad) {
        let problem = &refused.problem;
        assert_eq!((refused.place, problem.status().as_u16()), (place + 1, 400), "{change}");
        assert_eq!(problem.field.as_deref().unwrap_or_default(), *field, "{change}");
        assert!(problem.rule.as_deref().unwrap_or_default().contains(rule), "{problem:?}");
    }
}

#[test]
fn change_batch_is_bounded() {
    let many = |count: usize| vec![json!({"op": "block", "user": "bob", "other": "alice"}); count];
    assert_eq!(batch(&service(), &many(MAX_CHANGES)).unwrap().good.len(), 1024);
    let post = |body: &str| ask(&service(), Operation::Changes, "", body);
    let body = json!({"changes": many(MAX_CHANGES + 1)}).to_string();
    refused(post(&body), 400, "changes", "has 1025 items; at most 1024 are allowed");
    refused(post(r#"{"changes":[]}"#), 400, "changes", "is empty");
    refused(post("{}"), 400, "changes", "is missing");
    refused(post(r#"{"changes":{}}"#), 400, "changes", "must be an array");
    refused(post(r#"{"changes":[],"user":"bob"}"#), 400, "user", "is not a known field");
    assert_eq!(post(r#"{"changes":[{]}"#).unwrap_err().kind, Kind::Malformed);
}

#[test]
fn listed_names_match_the_parser() {
    fn words<T: StringEnum>() -> Vec<&'static str> {
        T::VARIANTS.iter().map(|(word, _)| *word).collect()
    }
    assert_eq!(AUDIENCES, words::<Audience>());
    let FieldType::OneOf(ops) = OP.kind else { panic!("`op` is one of some words") };
    assert_eq!(ops, words::<Op>());
}
