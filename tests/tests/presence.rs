//! Presence, end to end: a real host, real sockets, an ordinary HTTP client.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::{Duration, Instant};

use rollcall_tests::{Client, Host, eventually};
use serde_json::{Value, json};

/// The bound promised for beats every second with half a second of tolerance: 1.5 s, and at most one second late.
const OFFLINE_BOUND: Duration = Duration::from_millis(2500);

fn until_state(viewer: &Client, user: &str, state: &str, within: Duration) -> Value {
    let mut seen = Value::Null;
    eventually(&format!("{user} is {state}"), within, || {
        seen = viewer.presence(user);
        seen["state"] == state
    });
    seen
}

#[test]
fn single_beat_goes_offline_with_exact_last_seen() {
    let host = Host::brisk(&[]);
    let (bob, alice) = (host.client("bob"), host.client("alice"));
    let answer = bob.post("/v1/heartbeat", json!({ "device": "web-1", "active": true, "kind": "web" }));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!((&answer.json["user"], &answer.json["state"]), (&json!("bob"), &json!("online")));
    assert_eq!(answer.json["next_beat_ms"], 1000);
    let online = alice.presence("bob");
    assert_eq!(online["state"], "online");
    let beat_at = online["last_seen"].as_u64().unwrap();
    // It was published when it was decided, which can be a millisecond after the beat.
    assert!(online["version"].as_u64().unwrap() / 1000 >= beat_at, "the version is comparable with a time: {online}");

    let offline = until_state(&alice, "bob", "offline", OFFLINE_BOUND);
    assert_eq!(offline["last_seen"], beat_at, "last seen is the beat, not when it was noticed");
    eventually("the offline record is published, then archived", Duration::from_secs(3), || {
        let text = alice.get("/metrics").text;
        text.contains("rollcall_transitions_total{state=\"offline\"} 1") && text.contains("rollcall_archived_total 1")
    });
    assert_eq!(alice.presence("bob")["last_seen"], beat_at, "from the archive");
    host.stop();
}

#[test]
fn last_seen_survives_restart_and_kill() {
    let data = tempfile::tempdir().unwrap();
    let brisk = ["--interval", "1s", "--tolerance", "500ms", "--evict-after", "100ms"];
    let host = Host::start_in(data.path(), &brisk);
    host.client("bob").beat("web");
    let alice = host.client("alice");
    let last_seen = until_state(&alice, "bob", "offline", OFFLINE_BOUND)["last_seen"].clone();
    assert!(last_seen.is_u64());
    host.stop();

    let host = Host::start_in(data.path(), &brisk);
    let bob = host.client("alice").presence("bob");
    assert_eq!((&bob["state"], &bob["last_seen"]), (&json!("offline"), &last_seen));
    eventually("bob is archived", Duration::from_secs(5), || {
        host.client("ops").get("/metrics").text.contains("rollcall_sessions 0")
    });
    host.kill();

    let host = Host::start_in(data.path(), &brisk);
    assert_eq!(host.client("alice").presence("bob")["last_seen"], last_seen);
    host.stop();
}

#[test]
fn graceful_restart_causes_no_presence_events() {
    let data = tempfile::tempdir().unwrap();
    let brisk = ["--interval", "2s", "--tolerance", "1s"];
    let host = Host::start_in(data.path(), &brisk);
    host.client("bob").beat("web");
    let before = host.client("alice").presence("bob");
    host.stop();
    let host = Host::start_in(data.path(), &brisk);
    assert_eq!(host.client("alice").presence("bob"), before, "same state, same version: nothing happened");
    let alice = host.client("alice");
    let after = until_state(&alice, "bob", "offline", Duration::from_secs(5));
    assert_eq!(after["last_seen"], before["last_seen"]);
    host.stop();
}

#[test]
fn second_process_cannot_use_data_directory() {
    let data = tempfile::tempdir().unwrap();
    let host = Host::start_in(data.path(), &[]);
    let Err(said) = Host::try_start_in(data.path(), &[]) else { panic!("must not start") };
    assert!(said.contains("another rollcall"), "{said}");
    host.kill();
    Host::start_in(data.path(), &[]).stop();
}

#[test]
fn second_restart_keeps_outage_grace() {
    let data = tempfile::tempdir().unwrap();
    let slow = ["--interval", "3s", "--tolerance", "1s"];
    let host = Host::start_in(data.path(), &slow);
    host.client("bob").beat("web");
    host.stop();
    // Longer away than the beat would have lasted: only the outage grace keeps bob.
    std::thread::sleep(Duration::from_millis(4200));
    Host::start_in(data.path(), &slow).stop();
    let host = Host::start_in(data.path(), &slow);
    assert_eq!(host.client("alice").state("bob"), "online");
    host.stop();
}

#[test]
fn invisible_user_stays_invisible_after_kill() {
    let data = tempfile::tempdir().unwrap();
    let host = Host::start_in(data.path(), &[]);
    let bob = host.client("bob");
    bob.beat("web");
    assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
    let last_seen = host.client("alice").presence("bob")["last_seen"].clone();
    host.kill();
    let host = Host::start_in(data.path(), &[]);
    let bob = host.client("bob");
    assert_eq!(bob.beat("web").json["state"], "offline");
    assert_eq!(host.client("alice").presence("bob")["last_seen"], last_seen, "as if they had left then");
    assert_eq!(host.client("alice").state("bob"), "offline");
    assert_eq!(bob.presence("bob")["choice"]["choice"], "invisible", "for their own eyes");
    host.stop();
}

#[test]
fn second_device_keeps_user_online() {
    let host = Host::brisk(&[]);
    let (bob, alice) = (host.client("bob"), host.client("alice"));
    bob.beat("phone");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        bob.beat("laptop");
        assert_eq!(alice.state("bob"), "online", "the phone died, the laptop did not");
        std::thread::sleep(Duration::from_millis(200));
    }
    until_state(&alice, "bob", "offline", OFFLINE_BOUND);
    host.stop();
}

#[test]
fn logout_is_immediate_and_drop_gets_grace() {
    let host = Host::start(&["--grace", "700ms"]);
    let (bob, alice) = (host.client("bob"), host.client("alice"));
    bob.beat("web");
    let left = bob.post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
    assert_eq!((left.status, &left.json["state"]), (200, &json!("offline")));
    assert_eq!(alice.state("bob"), "offline");

    bob.beat("web");
    let dropped = bob.post("/v1/leave", json!({ "device": "web", "reason": "dropped" }));
    assert_eq!(dropped.json["state"], "online", "a broken connection is not a departure yet");
    assert_eq!(alice.state("bob"), "online");
    until_state(&alice, "bob", "offline", Duration::from_millis(1700));

    bob.beat("web");
    bob.post("/v1/leave", json!({ "device": "web", "reason": "dropped" }));
    let back = bob.beat("web");
    assert_eq!(back.json["state"], "online");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(alice.presence("bob")["version"], back.json["version"], "back within the grace: no flicker");
    host.stop();
}

#[test]
fn choices_and_timed_notes_take_effect() {
    let host = Host::start(&[]);
    let (bob, alice) = (host.client("bob"), host.client("alice"));
    bob.beat("web");
    let busy = bob.put("/v1/status", json!({ "choice": "busy", "text": "in a meeting", "emoji": "📅", "for_s": 1 }));
    assert_eq!((busy.status, &busy.json["state"]), (200, &json!("busy")), "{}", busy.text);
    let seen = alice.presence("bob");
    assert_eq!((&seen["state"], &seen["note"]["text"]), (&json!("busy"), &json!("in a meeting")));
    assert!(seen.get("choice").is_none(), "the choice itself is for bob's own eyes");
    let after = until_state(&alice, "bob", "online", Duration::from_secs(3));
    assert_eq!(after["note"], Value::Null, "the note ended with it");

    bob.put("/v1/status", json!({ "choice": "invisible" }));
    let hidden = alice.presence("bob");
    assert_eq!(hidden["state"], "offline");
    bob.beat("web");
    bob.beat("tablet");
    assert_eq!(alice.presence("bob"), hidden, "nothing that an invisible person does shows");

    let auto = bob.send("DELETE", "/v1/status", None);
    assert_eq!((auto.status, &auto.json["state"]), (200, &json!("online")));
    host.stop();
}

#[test]
fn invisible_user_looks_like_archived_one() {
    let host = Host::start(&["--evict-after", "100ms"]);
    let (bob, carol, alice) = (host.client("bob"), host.client("carol"), host.client("alice"));
    bob.beat("web");
    carol.beat("web");
    bob.put("/v1/status", json!({ "choice": "invisible" }));
    carol.post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
    eventually("carol is archived", Duration::from_secs(5), || {
        alice.get("/metrics").text.contains("rollcall_archived_total 1")
    });
    let without = |user: &str| {
        let mut seen = alice.presence(user);
        seen.as_object_mut().map(|fields| ["user", "since", "last_seen"].map(|name| fields.remove(name)));
        seen
    };
    bob.beat("web");
    assert_eq!(without("bob"), without("carol"), "but for who and when, byte for byte the same");
    host.stop();
}

#[test]
fn idle_device_is_away_until_active() {
    let host = Host::start(&["--idle-after", "400ms"]);
    let (bob, alice) = (host.client("bob"), host.client("alice"));
    bob.beat("web");
    assert_eq!(alice.state("bob"), "online");
    until_state(&alice, "bob", "away", Duration::from_millis(1400));
    // A question is derived afresh; a beat answers with what is published, which follows within the second.
    let idle_beat = || bob.post("/v1/heartbeat", json!({ "device": "web", "active": false })).json["state"].clone();
    eventually("away is published", Duration::from_secs(1), || idle_beat() == "away");
    assert_eq!(idle_beat(), "away", "a beat without activity keeps alive, not online");
    assert_eq!(bob.beat("web").json["state"], "online");
    host.stop();
}

#[test]
fn all_query_forms_agree() {
    let host = Host::start(&[]);
    let alice = host.client("alice");
    for user in ["1", "2", "名前"] {
        alice.as_user(user).beat("web");
    }
    let posted = alice.post("/v1/presence", json!({ "users": ["2", "nobody", "名前"] })).json;
    let queried = alice.get("/v1/presence?users=2,nobody,%E5%90%8D%E5%89%8D").json;
    assert_eq!(posted, queried);
    let one = alice.presence("%E5%90%8D%E5%89%8D");
    assert_eq!(posted["presences"][2], one);
    let compact = alice.get("/presence/batch?user_ids=1,2,3");
    assert_eq!(compact.text, r#"{"1":"online","2":"online","3":"offline"}"#);
    host.stop();
}

#[test]
fn bad_beat_in_batch_fails_alone() {
    let host = Host::start(&[]);
    let edge = host.client("edge");
    let beats = json!({ "beats": [
        { "user": "a", "device": "d" }, { "user": "", "device": "d" }, { "user": "b", "device": "d", "colour": 1 },
        { "user": "c", "device": 5 }, 7, { "user": "e", "device": "d", "active": false }
    ]});
    let answer = edge.post("/v1/heartbeats", beats);
    assert_eq!(answer.status, 200, "{}", answer.text);
    let outcomes = answer.json["outcomes"].as_array().unwrap();
    let states: Vec<_> = outcomes.iter().map(|outcome| outcome["state"].as_str()).collect();
    assert_eq!(states, [Some("online"), None, None, None, None, Some("away")]);
    assert_eq!(outcomes[1]["error"]["field"], "user");
    assert_eq!(outcomes[2]["error"]["field"], "colour");
    assert_eq!(outcomes[3]["error"]["field"], "device");
    assert_eq!(
        edge.get("/presence/batch?user_ids=a,b,c,e").text,
        r#"{"a":"online","b":"offline","c":"offline","e":"away"}"#
    );
    host.stop();
}

#[test]
fn sixteen_concurrent_clients_are_answered() {
    let host = Host::start(&[]);
    std::thread::scope(|scope| {
        for worker in 0..16 {
            let client = host.client("x");
            scope.spawn(move || {
                for turn in 0..50 {
                    let user = format!("u{worker}-{turn}");
                    assert_eq!(client.as_user(&user).beat("web").json["state"], "online");
                    assert_eq!(client.state(&user), "online");
                }
            });
        }
    });
    assert_eq!(host.metric("rollcall_heartbeats_total"), 800.0);
    // The store is counted at most once a second.
    eventually("all 800 are counted online", Duration::from_secs(5), || host.metric("rollcall_users_online") == 800.0);
    host.stop();
}

#[test]
fn drain_finishes_request_in_flight() {
    let host = Host::start(&["--drain", "3s"]);
    let address = host.address().to_owned();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let body = r#"{"device":"web"}"#;
    let head = format!(
        "POST /v1/heartbeat HTTP/1.1\r\nHost: {address}\r\nRollcall-User: bob\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    use std::io::{Read, Write};
    stream.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let ending = std::thread::spawn(move || host.stop());
    std::thread::sleep(Duration::from_millis(300));
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"online\""), "{answer}");
    ending.join().unwrap();
}

#[test]
fn sweep_request_and_status_pages_answer() {
    let host = Host::start(&[]);
    let ops = host.client("ops");
    let swept = ops.post("/v1/sweep", json!({ "limit": 10 }));
    assert_eq!((swept.status, &swept.json["examined"]), (200, &json!(0)), "{}", swept.text);
    assert_eq!(ops.get("/healthz").text, "ok\n");
    assert_eq!(ops.get("/readyz").text, "ready\n");
    assert_eq!(ops.get("/openapi.json").json["openapi"], "3.1.0");
    let metrics = ops.get("/metrics");
    assert!(metrics.text.contains("rollcall_function_call_seconds_bucket"), "{}", metrics.text);
    assert!(metrics.text.ends_with("# EOF\n"));
    assert!(metrics.text.contains("rollcall_sessions 0"), "the canary left nothing behind");
    host.stop();
}
