//! Policy over HTTP: every setting is written, read and revoked, scopes decide who may change what, and an acknowledged
//! change survives a stop or a kill.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use rollcall_tests::{Answer, Client, Host, Service, TokenIssuer};
use serde_json::{Value, json};

fn answer(answer: &Answer, expected: &Value) {
    assert_eq!((answer.status, &answer.json), (200, expected), "{}", answer.text);
}

fn refused(answer: &Answer, status: u16, kind: &str, field: Option<&str>) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json["type"], format!("urn:rollcall:problem:{kind}"), "{}", answer.text);
    assert_eq!(answer.json["field"].as_str(), field, "{}", answer.text);
}

#[test]
fn settings_are_readable_revocable_and_idempotent() {
    Service::on_each_store(&[], |service| {
        let bob = service.first().client("bob");
        let there = service.last().client("bob");
        let privacy = |presence, last_seen| json!({ "user": "bob", "presence": presence, "last_seen": last_seen });
        answer(&bob.get("/v1/privacy"), &privacy("everyone", "everyone"));
        for presence in ["contacts", "nobody", "everyone"] {
            for last_seen in ["contacts", "nobody", "everyone"] {
                let privacy_body = json!({ "presence": presence, "last_seen": last_seen });
                for _ in 0..2 {
                    answer(&bob.put("/v1/privacy", privacy_body.clone()), &privacy(presence, last_seen));
                }
                answer(&there.get("/v1/privacy"), &privacy(presence, last_seen));
            }
        }
        for (path, list, is) in [("/v1/contacts", "contacts", "contact"), ("/v1/blocks", "blocks", "blocked")] {
            let all = |others: Value| json!({ "user": "bob", list: others });
            answer(&bob.get(path), &all(json!([])));
            let one = |other: &str, so: bool| json!({ "user": "bob", "other": other, is: so });
            for other in ["eve", "7", "alice", "eve"] {
                answer(&bob.send("PUT", &format!("{path}/{other}"), None), &one(other, true));
            }
            answer(&there.get(path), &all(json!(["7", "alice", "eve"])));
            for _ in 0..2 {
                answer(&bob.send("DELETE", &format!("{path}/eve"), None), &one("eve", false));
            }
            answer(&bob.send("DELETE", &format!("{path}/never-listed"), None), &one("never-listed", false));
            answer(&there.get(path), &all(json!(["7", "alice"])));
            answer(&bob.put(&format!("{path}/dave"), json!({ "user": "carol" })), &{
                json!({ "user": "carol", "other": "dave", is: true })
            });
            answer(&there.get(&format!("{path}?user=carol")), &json!({ "user": "carol", list: ["dave"] }));
            answer(&bob.send("DELETE", &format!("{path}/dave?user=carol"), None), &{
                json!({ "user": "carol", "other": "dave", is: false })
            });
        }
        let admin = service.first().client("admin");
        for user in ["mallory", "7", "4294967295", "4294967296", "007", "a%20name%2Fwith%20%C3%BC"] {
            let named = user.replace("%20", " ").replace("%2F", "/").replace("%C3%BC", "ü");
            let path = format!("/v1/restrictions/{user}");
            let is = |so: bool| json!({ "user": named, "restricted": so });
            answer(&admin.get(&path), &is(false));
            for _ in 0..2 {
                answer(&admin.send("PUT", &path, None), &is(true));
            }
            answer(&admin.get(&path), &is(true));
            assert_eq!(admin.ruling("alice", &named), "restricted");
            for _ in 0..2 {
                answer(&admin.send("DELETE", &path, None), &is(false));
            }
            answer(&admin.get(&path), &is(false));
        }
    });
}

#[test]
fn numeric_id_differs_from_lookalike_name() {
    let host = Host::start(&[]);
    let admin = host.client("admin");
    admin.restrict("7");
    for (user, restricted) in [("7", true), ("07", false), ("+7", false), ("7.0", false), ("65543", false)] {
        assert_eq!(admin.is_restricted(user), restricted, "{user}");
    }
    admin.restrict("07");
    admin.unrestrict("7");
    assert_eq!((admin.is_restricted("7"), admin.is_restricted("07")), (false, true));
    host.stop();
}

#[test]
fn check_gives_reasons_for_ten_thousand_subjects() {
    Service::on_each_store(&[], |service| {
        let admin = service.first().client("admin");
        let client = |user: &str| service.first().client(user);
        admin.restrict("mallory");
        client("bob").block("alice");
        client("carol").set_privacy("contacts", "everyone");
        client("dave").set_privacy("everyone", "contacts");
        let asked = ["alice", "mallory", "bob", "carol", "dave", "nobody", "bob"];
        let body = json!({ "viewer": "alice", "subjects": asked });
        let verdicts = ["allowed", "restricted", "blocked", "private", "allowed", "allowed", "blocked"];
        let last_seen = [true, false, false, false, false, true, false];
        let expected = json!({ "verdicts": verdicts, "last_seen": last_seen });
        answer(&admin.post("/v1/restrictions/check", body), &expected);
        client("alice").add_contact("carol");
        assert_eq!(admin.ruling("alice", "carol"), "private", "her own contacts do not count, only those of carol");
        client("carol").add_contact("alice");
        client("dave").add_contact("alice");
        assert_eq!(admin.ruling("alice", "carol"), "allowed");
        let check = admin.post("/v1/restrictions/check", json!({ "viewer": "alice", "subjects": ["dave", "carol"] }));
        assert_eq!(check.json["last_seen"], json!([true, true]), "{}", check.text);
        let service = admin.post("/v1/restrictions/check", json!({ "subjects": ["bob", "mallory", "carol"] }));
        assert_eq!(
            service.json["verdicts"],
            json!(["allowed", "restricted", "allowed"]),
            "without a viewer a service asks"
        );

        let mut crowd: Vec<String> = (0..10_000).map(|number| format!("{}", number * 429_000_u64)).collect();
        crowd[9_999] = "mallory".to_owned();
        admin.restrict(&crowd[5_000]);
        let check = admin.post("/v1/restrictions/check", json!({ "viewer": "alice", "subjects": crowd }));
        let verdicts = check.json["verdicts"].as_array().unwrap();
        assert_eq!((verdicts.len(), check.json["last_seen"].as_array().unwrap().len()), (10_000, 10_000));
        let found: Vec<usize> = (0..10_000).filter(|place| verdicts[*place] != "allowed").collect();
        assert_eq!(found, [5_000, 9_999]);
        crowd.push("one-more".to_owned());
        let check = admin.post("/v1/restrictions/check", json!({ "viewer": "alice", "subjects": crowd }));
        refused(&check, 400, "too-many", Some("subjects"));
    });
}

#[test]
fn bad_change_in_batch_fails_alone() {
    Service::on_each_store(&[], |service| {
        let backend = service.first().client("backend");
        let changes = json!([
            { "op": "block", "user": "bob", "other": "alice" },
            { "op": "block", "user": "bob", "other": "bob" },
            { "op": "dance", "user": "bob" },
            { "op": "add_contact", "user": "bob" },
            { "op": "privacy", "user": "carol", "presence": "nobody", "last_seen": "nobody" },
            { "op": "privacy", "user": "carol", "presence": "some", "last_seen": "nobody" },
            { "op": "restrict", "user": "" },
            { "op": "restrict", "user": "mallory" },
            { "op": "restrict", "user": "eve", "other": "bob" },
            7,
            { "op": "add_contact", "user": "dave", "other": "alice" },
            { "op": "remove_contact", "user": "dave", "other": "alice" },
        ]);
        let made = backend.post("/v1/policy", json!({ "changes": changes }));
        assert_eq!(made.status, 200, "{}", made.text);
        let outcomes = made.json["outcomes"].as_array().unwrap();
        let good: Vec<usize> = (0..outcomes.len()).filter(|place| outcomes[*place] == json!({ "ok": true })).collect();
        assert_eq!(good, [0, 4, 7, 10, 11], "{}", made.text);
        assert_eq!(outcomes.len(), 12);
        for place in [1, 2, 3, 5, 6, 8, 9] {
            assert_eq!(outcomes[place]["error"]["status"], 400, "{place}: {}", outcomes[place]);
        }
        for (viewer, subject, ruling) in [
            ("alice", "bob", "blocked"),
            ("bob", "carol", "private"),
            ("bob", "mallory", "restricted"),
            ("bob", "eve", "allowed"),
        ] {
            assert_eq!(backend.ruling(viewer, subject), ruling, "{viewer}, {subject}");
        }
        answer(&service.last().client("dave").get("/v1/contacts"), &json!({ "user": "dave", "contacts": [] }));
        let many: Vec<Value> = (0..1025).map(|_| json!({ "op": "restrict", "user": "x" })).collect();
        refused(&backend.post("/v1/policy", json!({ "changes": many })), 400, "too-many", Some("changes"));
        assert_eq!(backend.ruling("alice", "x"), "allowed", "a batch over the limit changes nothing");
        let full: Vec<Value> = (0..1024).map(|n| json!({ "op": "restrict", "user": n.to_string() })).collect();
        backend.change(&full);
        assert!(backend.is_restricted("1023") && !backend.is_restricted("1024"));
    });
}

#[test]
fn contact_and_block_lists_are_bounded() {
    Service::on_each_store(&[], |service| {
        let backend = service.first().client("backend");
        for (path, list, op) in [("/v1/blocks", "blocks", "block"), ("/v1/contacts", "contacts", "add_contact")] {
            let changes: Vec<Value> =
                (0..10_000).map(|n| json!({ "op": op, "user": "bob", "other": format!("other{n}") })).collect();
            changes.chunks(1000).for_each(|changes| backend.change(changes));
            let bob = service.last().client("bob");
            assert_eq!(bob.get(path).json[list].as_array().unwrap().len(), 10_000);
            refused(&bob.send("PUT", &format!("{path}/one-more"), None), 400, "too-many", None);
            let batch = backend.post(
                "/v1/policy",
                json!({ "changes": [
                { "op": op, "user": "bob", "other": "one-more" },
                { "op": op, "user": "bob", "other": "other7" },
                { "op": op, "user": "carol", "other": "one-more" },
            ] }),
            );
            let outcomes = &batch.json["outcomes"];
            assert_eq!(outcomes[0]["error"]["status"], 400, "{}", batch.text);
            assert_eq!(
                (&outcomes[1], &outcomes[2]),
                (&json!({ "ok": true }), &json!({ "ok": true })),
                "{}",
                batch.text
            );
            assert_eq!(bob.send("DELETE", &format!("{path}/other7"), None).status, 200);
            assert_eq!(bob.send("PUT", &format!("{path}/one-more"), None).status, 200, "a removed entry makes room");
            assert_eq!(bob.get(path).json[list].as_array().unwrap().len(), 10_000);
        }
    });
}

#[test]
fn invalid_policy_requests_name_the_field() {
    let host = Host::start(&[]);
    let bob = host.client("bob");
    let long = "x".repeat(129);
    let put = |path: &str, body: &str| bob.send("PUT", path, Some(body.as_bytes()));
    refused(&put("/v1/privacy", r#"{"presence":"friends","last_seen":"nobody"}"#), 400, "invalid", Some("presence"));
    refused(&put("/v1/privacy", r#"{"presence":"nobody"}"#), 400, "invalid", Some("last_seen"));
    refused(&put("/v1/privacy", r#"{"presence":"nobody","last_seen":"nobody","x":1}"#), 400, "invalid", Some("x"));
    refused(&put("/v1/privacy", "{"), 400, "malformed", None);
    refused(&put("/v1/blocks/bob", ""), 400, "invalid", Some("other"));
    refused(&put("/v1/contacts/bob", ""), 400, "invalid", Some("other"));
    refused(&bob.send("DELETE", "/v1/blocks/bob", None), 400, "invalid", Some("other"));
    refused(&bob.put("/v1/blocks/carol", json!({ "user": "carol" })), 400, "invalid", Some("other"));
    refused(&put(&format!("/v1/blocks/{long}"), ""), 400, "invalid", Some("other"));
    refused(&put("/v1/blocks/b%00b", ""), 400, "invalid", Some("other"));
    refused(&bob.put("/v1/blocks/carol", json!({ "blocked": false })), 400, "invalid", Some("blocked"));
    refused(&bob.put("/v1/restrictions/carol", json!({ "restricted": false })), 400, "invalid", Some("restricted"));
    refused(&put(&format!("/v1/restrictions/{long}"), ""), 400, "invalid", Some("user"));
    refused(&bob.get("/v1/privacy?user="), 400, "invalid", Some("user"));
    refused(&bob.get("/v1/privacy?who=carol"), 400, "invalid", Some("who"));
    let check = |body: Value| bob.post("/v1/restrictions/check", body);
    refused(&check(json!({ "subjects": [] })), 400, "invalid", Some("subjects"));
    refused(&check(json!({ "viewer": "alice" })), 400, "invalid", Some("subjects"));
    refused(&check(json!({ "viewer": "", "subjects": ["a"] })), 400, "invalid", Some("viewer"));
    refused(&check(json!({ "subjects": ["a", ""] })), 400, "invalid", Some("subjects[1]"));
    refused(&check(json!({ "subjects": "a" })), 400, "invalid", Some("subjects"));
    refused(&bob.post("/v1/policy", json!({ "changes": {} })), 400, "invalid", Some("changes"));
    refused(&bob.get("/v1/policy"), 405, "wrong-method", None);
    answer(&bob.get("/v1/blocks"), &json!({ "user": "bob", "blocks": [] }));
    assert!(!bob.is_restricted("carol"));
    host.stop();
}

#[test]
fn scopes_decide_who_changes_which_policy() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    let client = |user: &str, scopes: &[&str]| Client::with_token(host.base(), &issuer.token(user, scopes));
    let [bob, service, admin] = [client("bob", &[]), client("backend", &["service"]), client("root", &["admin"])];
    let forbidden = |answer: &Answer| refused(answer, 403, "forbidden", None);
    let privacy_body = |user: Option<&str>| json!({ "user": user, "presence": "nobody", "last_seen": "nobody" });
    bob.block("alice");
    bob.add_contact("carol");
    assert_eq!(bob.put("/v1/privacy", json!({ "presence": "contacts", "last_seen": "nobody" })).status, 200);
    assert_eq!(bob.put("/v1/privacy", privacy_body(Some("bob"))).status, 200, "their own, named in the body");
    for (method, path, body) in [
        ("PUT", "/v1/privacy", privacy_body(Some("carol"))),
        ("PUT", "/v1/blocks/alice", json!({ "user": "carol" })),
        ("PUT", "/v1/contacts/alice", json!({ "user": "carol" })),
    ] {
        let body = body.to_string();
        let answer = bob.send(method, path, Some(body.as_bytes()));
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text);
        let answer = admin.send(method, path, Some(body.as_bytes()));
        assert_eq!(answer.status, 403, "the admin scope does not include service: {method} {path}: {}", answer.text);
        let answer = service.send(method, path, Some(body.as_bytes()));
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text);
    }
    for (method, path) in [
        ("GET", "/v1/privacy?user=carol"),
        ("GET", "/v1/blocks?user=carol"),
        ("GET", "/v1/contacts?user=carol"),
        ("DELETE", "/v1/blocks/alice?user=carol"),
        ("DELETE", "/v1/contacts/alice?user=carol"),
    ] {
        let answers = [&bob, &service].map(|client| client.send(method, path, None).status);
        assert_eq!(answers, [403, 200], "{method} {path}");
    }
    for method in ["GET", "PUT", "DELETE"] {
        let answers = [&bob, &service, &admin].map(|client| client.send(method, "/v1/restrictions/x", None));
        forbidden(&answers[0]);
        forbidden(&answers[1]);
        assert_eq!(answers[2].status, 200, "{method}: {}", answers[2].text);
    }
    let check = json!({ "viewer": "alice", "subjects": ["bob"] });
    forbidden(&bob.post("/v1/restrictions/check", check.clone()));
    for client in [&service, &admin] {
        assert_eq!(client.post("/v1/restrictions/check", check.clone()).json["verdicts"], json!(["blocked"]));
    }
    let changes =
        json!({ "changes": [{ "op": "restrict", "user": "x" }, { "op": "block", "user": "a", "other": "b" }] });
    forbidden(&bob.post("/v1/policy", changes.clone()));
    forbidden(&admin.post("/v1/policy", changes.clone()));
    let mixed = service.post("/v1/policy", changes.clone());
    assert_eq!(mixed.json["outcomes"][0]["error"]["status"], 403, "{}", mixed.text);
    assert_eq!(mixed.json["outcomes"][1], json!({ "ok": true }), "{}", mixed.text);
    assert!(!admin.is_restricted("x"));
    let both = client("root", &["service", "admin"]).post("/v1/policy", changes);
    assert_eq!(both.json["outcomes"], json!([{ "ok": true }, { "ok": true }]));
    host.stop();
}

#[test]
fn users_see_themselves_services_see_all_unrestricted() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    let client = |user: &str, scopes: &[&str]| Client::with_token(host.base(), &issuer.token(user, scopes));
    let (service, admin) = (client("backend", &["service"]), client("root", &["admin"]));
    for user in ["bob", "carol", "dave", "mallory"] {
        assert_eq!(client(user, &[]).beat("web").status, 200);
    }
    client("bob", &[]).set_privacy("nobody", "nobody");
    client("carol", &[]).block("backend");
    client("dave", &[]).set_privacy("everyone", "nobody");
    admin.restrict("mallory");
    for user in ["bob", "carol", "dave", "mallory"] {
        let own = client(user, &[]).presence(user);
        assert_eq!((&own["state"], own["last_seen"].is_u64()), (&json!("online"), true), "{user}: {own}");
        let path = format!("/v1/subscribe?users={user}&watch_only=true&token={}", issuer.token(user, &[]));
        let snapshot = rollcall_tests::Stream::get(host.address(), &path, &[]).unwrap().snapshot();
        assert_eq!(snapshot["presences"][0]["state"], "online", "{user}: {snapshot}");
    }
    let alice = client("alice", &[]);
    assert_eq!(["bob", "carol", "dave", "mallory"].map(|user| alice.state(user)), ["null", "online", "online", "null"]);
    for user in ["bob", "carol", "dave"] {
        let seen = service.presence(user);
        assert_eq!((&seen["state"], seen["last_seen"].is_u64()), (&json!("online"), true), "{user}: {seen}");
    }
    assert_eq!(service.presence("mallory")["state"], Value::Null);
    host.stop();
}

#[test]
fn acknowledged_policy_survives_stop_and_kill() {
    let folder = tempfile::tempdir().unwrap();
    let starts = |round: u32| {
        let host = Host::start_in(folder.path(), &["--workers", "2"]);
        let admin = host.client("admin");
        for before in 0..round {
            assert_eq!(admin.ruling("alice", &format!("bob{before}")), "blocked", "set in round {before}");
            assert!(admin.is_restricted(&format!("mallory{before}")) && admin.is_restricted(&before.to_string()));
            let carol = format!("carol{before}");
            let own = json!({ "user": carol, "presence": "contacts", "last_seen": "nobody" });
            answer(&host.client(&carol).get("/v1/privacy"), &own);
            answer(&host.client(&carol).get("/v1/contacts"), &json!({ "user": carol, "contacts": ["alice"] }));
            assert_eq!(
                (admin.ruling("alice", &carol), admin.ruling("bob", &carol)),
                ("allowed".into(), "private".into())
            );
            assert_eq!(host.client("alice").state(&format!("bob{before}")), "null", "from the first answer");
        }
        host
    };
    for round in 0..4 {
        let host = starts(round);
        let carol = host.client(&format!("carol{round}"));
        carol.set_privacy("contacts", "nobody");
        carol.add_contact("alice");
        host.client("admin").restrict(&round.to_string());
        host.client("admin").restrict(&format!("mallory{round}"));
        host.client(&format!("bob{round}")).block("alice");
        if round % 2 == 0 { host.kill() } else { host.stop() }
    }
    starts(4).stop();
}
