//! A custom policy component: `examples/policy-component`, where only users of the same team see each other. It decides for
//! queries, watchers and typing, and has no settings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use rollcall_tests::watcher::{FENCE, Protocol, WatchEvent, Watcher};
use rollcall_tests::{Answer, Client, Host, component};
use serde_json::{Value, json};

/// A team mate of alice, whose change marks the end of the events so far: see [`events_so_far`].
const MATE: &str = "red/fence";

fn host(extra: &[&str]) -> Host {
    let file = component("examples/policy-component");
    let given = format!("restriction-check={}", file.display());
    Host::start(&[&["--component", &given, "--typing-ttl", "30s"], extra].concat())
}

/// An id, escaped for a path.
fn escaped(id: &str) -> String {
    id.replace('/', "%2F")
}

fn seen(client: &Client, user: &str) -> Value {
    let answer = client.get(&format!("/v1/presence/{}", escaped(user)));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json["state"].clone()
}

/// The events received before a change of the team mate, which always arrives.
fn events_so_far(watcher: &mut Watcher, host: &Host, round: u32) -> Vec<WatchEvent> {
    let mate = host.client(MATE);
    assert_eq!(mate.beat("web").status, 200);
    assert_eq!(mate.put("/v1/status", json!({ "choice": "busy", "text": format!("round {round}") })).status, 200);
    let is_fence = |event: &WatchEvent| event.is_of(MATE) && event.data["note"]["text"] == format!("round {round}");
    let events = watcher.until("the mate's event arrives", Duration::from_secs(10), is_fence);
    events.into_iter().filter(|event| !event.is_of(MATE)).collect()
}

#[test]
fn only_team_mates_see_each_other_in_queries() {
    let host = host(&[]);
    for user in ["red/alice", "red/bob", "blue/eve", "loner"] {
        assert_eq!(host.client(user).beat("web").status, 200);
    }
    for (viewer, user, state) in [
        ("red/alice", "red/bob", json!("online")),
        ("red/bob", "red/alice", json!("online")),
        ("red/alice", "blue/eve", Value::Null),
        ("blue/eve", "red/alice", Value::Null),
        ("blue/eve", "blue/eve", json!("online")),
        ("loner", "loner", json!("online")),
        ("loner", "red/alice", Value::Null),
        ("red/alice", "loner", Value::Null),
        ("red/alice", "red/nobody", json!("offline")),
    ] {
        assert_eq!(seen(&host.client(viewer), user), state, "{viewer} asks about {user}");
    }
    let alice = host.client("red/alice");
    let many = alice.post("/v1/presence", json!({ "users": ["blue/eve", "red/bob", "blue/eve", "loner"] }));
    let states: Vec<&Value> = many.json["presences"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, [&Value::Null, &json!("online"), &Value::Null, &Value::Null]);
    let check = alice.post("/v1/restrictions/check", json!({ "viewer": "red/bob", "subjects": ["red/x", "blue/x"] }));
    assert_eq!(check.json, json!({ "verdicts": ["allowed", "private"], "last_seen": [true, false] }));
    host.stop();
}

#[test]
fn only_team_mates_get_each_others_events() {
    let host = host(&["--workers", "2"]);
    for (protocol, round) in Protocol::BOTH.into_iter().zip(0..) {
        let names = [format!("red/bob{round}"), format!("blue/eve{round}")];
        let users = format!("{},{},{MATE}", names[0], names[1]);
        let watched = [("users", &*users), ("conversations", "lunch")];
        let mut alice = protocol.watch_as(&host, "red/alice", "watch_only=true", &watched);
        let snapshot = alice.snapshot();
        assert_eq!(snapshot["presences"][0]["state"], "offline", "{snapshot}");
        assert_eq!(snapshot["presences"][1]["state"], Value::Null, "{snapshot}");
        for name in &names {
            assert_eq!(host.client(name).beat("web").status, 200);
            assert_eq!(host.client(name).send("PUT", "/v1/typing/lunch", None).status, 200);
        }
        let events = events_so_far(&mut alice, &host, round);
        assert!(!events.is_empty() && events.iter().all(|event| event.data["user"] == *names[0]), "{events:#?}");
        let mut kinds: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["presence", "typing"], "{events:#?}");
        let typists = host.client("red/alice").get("/v1/typing/lunch").json["typists"].clone();
        assert!(typists.as_array().unwrap().iter().all(|typist| typist["user"].as_str().unwrap().starts_with("red/")));
        assert!(typists.as_array().unwrap().iter().any(|typist| typist["user"] == *names[0]), "{typists}");
        let eves = host.client(&names[1]).get("/v1/typing/lunch").json["typists"].clone();
        assert!(!eves.to_string().contains("red/"), "{eves}");
    }
    host.stop();
}

#[test]
fn policy_without_settings_rejects_changes() {
    let host = host(&[]);
    let alice = host.client("red/alice");
    let refused = |answer: Answer| {
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert_eq!(answer.json["type"], "urn:rollcall:problem:forbidden", "{}", answer.text);
        assert!(answer.json["title"].is_string(), "{}", answer.text);
    };
    refused(alice.send("PUT", "/v1/blocks/blue%2Feve", None));
    refused(alice.send("DELETE", "/v1/blocks/blue%2Feve", None));
    refused(alice.send("PUT", "/v1/contacts/blue%2Feve", None));
    refused(alice.put("/v1/privacy", json!({ "presence": "nobody", "last_seen": "nobody" })));
    refused(alice.get("/v1/privacy"));
    refused(alice.get("/v1/blocks"));
    refused(alice.send("PUT", "/v1/restrictions/blue%2Feve", None));
    let change = json!({ "op": "block", "user": "red/alice", "other": "red/bob" });
    refused(alice.post("/v1/policy", json!({ "changes": [change] })));
    assert_eq!(alice.get("/v1/restrictions/blue%2Feve").json["restricted"], false, "checks still work");
    assert_eq!(alice.beat("web").status, 200);
    let known = alice.get("/v1/people/red%2Falice");
    assert_eq!((known.status, &known.json["state"]), (200, &json!("online")), "{}", known.text);
    for part in ["privacy", "contacts", "blocks"] {
        assert_eq!(known.json.get(part), Some(&Value::Null), "{part}: this policy has none");
    }
    assert_eq!(alice.get("/readyz").status, 200);
    assert_eq!(alice.as_user(FENCE).beat("web").status, 200, "other functions work");
    host.stop();
}
