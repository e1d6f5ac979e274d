//! One scenario, wherever the functions are deployed: in our host, on Spin, under `wasmtime serve` and in another host of
//! WASI. The components are the same, so the answers are.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollcall_servers::redis::{Options, Redis};
use rollcall_tests::deployment::{Deployment, Settings};
use rollcall_tests::{Answer, Client, eventually};
use serde_json::{Value, json};

/// Whatever is noticed by itself is noticed within a second or two; a busy machine is given more.
const NOTICED: Duration = Duration::from_secs(15);

/// What is to have gone wrong.
const NOTHING: [&str; 0] = [];

/// A Redis that tells of expired keys, which a host sees to by itself and Spin leaves to whoever runs Redis.
fn redis() -> Redis {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    Redis::with(Options { args, ..Options::default() }).unwrap()
}

/// A figure of Redis about itself.
fn info(server: &Redis, name: &str) -> String {
    let all = server.ask(&["INFO"]).unwrap();
    let found = all.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    found.unwrap_or_else(|| panic!("Redis does not tell {name}"))
}

/// Does something while somebody sweeps, if the place needs that.
fn swept<T>(place: &Deployment, claim: impl FnOnce() -> T) -> T {
    if place.notices {
        return claim();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let schedule = place.client_with("schedule", &["service"]);
            while !over.load(Ordering::SeqCst) {
                ok(&schedule.post("/v1/sweep", json!({})));
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        let claimed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(claim));
        over.store(true, Ordering::SeqCst);
        claimed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ok(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    &answer.json
}

fn hidden(user: &str) -> Value {
    json!({ "user": user, "state": null, "since": null, "last_seen": null, "version": null, "note": null })
}

/// A part of the scenario, by its name.
type Chapter = (&'static str, fn(&Deployment));

/// Everything, one after the other, each with people of its own.
fn scenario(place: &Deployment) {
    let chapters: [Chapter; 11] = [
        ("beats and devices", beats_and_devices),
        ("idleness and choices", idleness_and_choices),
        ("batches", batches),
        ("privacy, contacts and blocks", privacy_contacts_and_blocks),
        ("restrictions", restrictions),
        ("typing", typing),
        ("snapshot and push", snapshot_and_push),
        ("a stream is a heartbeat", a_stream_is_a_heartbeat),
        ("silence", silence),
        ("the archive", the_archive),
        ("pages", pages),
    ];
    for (name, chapter) in chapters {
        eprintln!("{}: {name}", place.name);
        chapter(place);
    }
}

fn beats_and_devices(place: &Deployment) {
    let (bob, alice) = (place.client("beats-bob"), place.client("beats-alice"));
    let never = alice.presence("beats-bob");
    assert_eq!(
        never,
        json!({ "user": "beats-bob", "state": "offline", "since": null, "last_seen": null, "version": 0, "note": null })
    );
    let first = bob.post("/v1/heartbeat", json!({ "device": "web", "kind": "web", "active": true }));
    assert_eq!((ok(&first)["state"].as_str(), ok(&first)["next_beat_ms"].as_u64()), (Some("online"), Some(1000)));
    assert_eq!(first.header("content-length"), Some(first.text.len().to_string().as_str()));
    let again = bob.post("/v1/heartbeat", json!({ "device": "phone", "kind": "mobile" }));
    assert_eq!(ok(&again)["version"], first.json["version"], "a second device is nothing new");
    let seen = alice.presence("beats-bob");
    assert_eq!((&seen["state"], &seen["version"]), (&json!("online"), &first.json["version"]));
    let left = bob.post("/v1/leave", json!({ "device": "web", "reason": "logout" }));
    assert_eq!(ok(&left)["state"], "online", "the phone is still there");
    let left = bob.post("/v1/leave", json!({ "device": "phone", "reason": "logout" }));
    assert_eq!(ok(&left)["state"], "offline");
    let gone = alice.presence("beats-bob");
    assert_eq!(gone["state"], "offline");
    assert!(gone["version"].as_u64() > seen["version"].as_u64(), "{gone}");
    assert!(gone["last_seen"].as_u64() >= seen["since"].as_u64() && gone["last_seen"].is_u64(), "{gone}");
}

fn idleness_and_choices(place: &Deployment) {
    let (bob, alice) = (place.client("choices-bob"), place.client("choices-alice"));
    let idle = bob.post("/v1/heartbeat", json!({ "device": "web", "active": false }));
    assert_eq!(ok(&idle)["state"], "away", "a device that was never used is idle");
    ok(&bob.beat("web"));
    let busy = bob.put("/v1/status", json!({ "choice": "busy", "text": "in a meeting", "emoji": "☕", "for_s": 3600 }));
    assert_eq!(ok(&busy)["state"], "busy");
    let seen = alice.presence("choices-bob");
    assert_eq!((&seen["state"], &seen["note"]["text"]), (&json!("busy"), &json!("in a meeting")));
    ok(&bob.put("/v1/status", json!({ "choice": "invisible" })));
    assert_eq!(alice.state("choices-bob"), "offline");
    ok(&bob.send("DELETE", "/v1/status", None));
    ok(&bob.beat("web"));
    assert_eq!(alice.state("choices-bob"), "online");
}

fn batches(place: &Deployment) {
    let edge = place.client_with("batch-edge", &["service"]);
    let beat = |user: &str| json!({ "user": user, "device": "web", "active": true });
    let beats = edge.post("/v1/heartbeats", json!({ "beats": [beat("batch-bob"), beat(""), beat("batch-eve")] }));
    let outcomes = ok(&beats)["outcomes"].as_array().unwrap();
    let states: Vec<&Value> = outcomes.iter().map(|outcome| &outcome["state"]).collect();
    assert_eq!(states, [&json!("online"), &Value::Null, &json!("online")], "a bad beat fails alone: {}", beats.text);
    let asked = "/v1/presence?users=batch-eve,batch-nobody,batch-bob";
    let forms =
        [edge.get(asked), edge.post("/v1/presence", json!({ "users": ["batch-eve", "batch-nobody", "batch-bob"] }))];
    for form in &forms {
        let states: Vec<&Value> = ok(form)["presences"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
        assert_eq!(states, ["online", "offline", "online"]);
    }
    assert_eq!(forms[0].text, forms[1].text);
    let compact = edge.get("/presence/batch?user_ids=batch-bob,batch-nobody");
    assert_eq!(ok(&compact), &json!({ "batch-bob": "online", "batch-nobody": "offline" }));
}

fn privacy_contacts_and_blocks(place: &Deployment) {
    let (bob, alice) = (place.client("policy-bob"), place.client("policy-alice"));
    ok(&bob.beat("web"));
    assert_eq!(alice.state("policy-bob"), "online");
    ok(&bob.put("/v1/privacy", json!({ "presence": "contacts", "last_seen": "nobody" })));
    assert_eq!(alice.presence("policy-bob"), hidden("policy-bob"));
    assert_eq!(alice.presence("policy-nobody")["state"], "offline");
    ok(&bob.send("PUT", "/v1/contacts/policy-alice", None));
    let seen = alice.presence("policy-bob");
    assert_eq!((&seen["state"], &seen["last_seen"]), (&json!("online"), &Value::Null));
    assert_eq!(ok(&bob.get("/v1/privacy"))["last_seen"], "nobody");
    ok(&bob.put("/v1/privacy", json!({ "presence": "everyone", "last_seen": "everyone" })));
    ok(&bob.send("PUT", "/v1/blocks/policy-alice", None));
    assert_eq!(alice.presence("policy-bob"), hidden("policy-bob"));
    assert_eq!(bob.presence("policy-alice"), hidden("policy-alice"), "a block hides both");
    assert_eq!(bob.state("policy-bob"), "online", "nobody is hidden from themselves");
    ok(&bob.send("DELETE", "/v1/blocks/policy-alice", None));
    assert_eq!(alice.state("policy-bob"), "online");
}

fn restrictions(place: &Deployment) {
    let admin = place.client_with("restrictions-admin", &["admin"]);
    let (bob, alice) = (place.client("4711"), place.client("restrictions-alice"));
    ok(&bob.beat("web"));
    ok(&admin.send("PUT", "/v1/restrictions/4711", None));
    assert_eq!(alice.presence("4711"), hidden("4711"));
    let asked = json!({ "viewer": "restrictions-alice", "subjects": ["4711", "restrictions-eve"] });
    let verdicts = place.client_with("backend", &["service", "admin"]).post("/v1/restrictions/check", asked);
    assert_eq!(ok(&verdicts)["verdicts"], json!(["restricted", "allowed"]));
    ok(&admin.send("DELETE", "/v1/restrictions/4711", None));
    assert_eq!(alice.state("4711"), "online");
}

fn typing(place: &Deployment) {
    let (bob, alice) = (place.client("typing-bob"), place.client("typing-alice"));
    ok(&bob.beat("web"));
    let typists = |client: &Client| ok(&client.get("/v1/typing/typing-room"))["typists"].as_array().unwrap().len();
    ok(&bob.send("PUT", "/v1/typing/typing-room", None));
    assert_eq!((typists(&alice), typists(&bob)), (1, 0), "nobody is told of themselves");
    ok(&bob.send("DELETE", "/v1/typing/typing-room", None));
    eventually("a stop counts", NOTICED, || typists(&alice) == 0);
}

fn snapshot_and_push(place: &Deployment) {
    let (bob, eve) = (place.client("push-bob"), place.client("push-eve"));
    ok(&bob.beat("web"));
    let mut alice = place.subscribe("push-alice", "users=push-bob,push-eve&watch_only=true");
    let snapshot = alice.snapshot();
    let states: Vec<&Value> = snapshot["presences"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["online", "offline"], "{snapshot}");
    ok(&bob.put("/v1/status", json!({ "choice": "busy" })));
    let busy = alice.presence("push-bob", "busy");
    ok(&eve.beat("web"));
    let online = alice.presence("push-eve", "online");
    assert!(online.id.is_some() && busy.id.is_some());
    let left_off = alice.last_id();
    drop(alice);
    ok(&bob.beat("web"));
    ok(&bob.put("/v1/status", json!({ "choice": "away" })));
    let mut alice = place.subscribe_from("push-alice", "users=push-bob,push-eve&watch_only=true", left_off.as_deref());
    alice.until("what was missed is told", NOTICED, |told| {
        told.is_of("push-bob") && told.state() == "away"
            || told.data["presences"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "away"))
    });
    ok(&eve.post("/v1/leave", json!({ "device": "web", "reason": "logout" })));
    alice.presence("push-eve", "offline");
}

fn a_stream_is_a_heartbeat(place: &Deployment) {
    let alice = place.client("stream-alice");
    swept(place, || {
        let bob = place.subscribe("stream-bob", "users=stream-alice&device=web");
        eventually("whoever listens is here", NOTICED, || alice.state("stream-bob") == "online");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(alice.state("stream-bob"), "online", "for longer than one beat lasts");
        drop(bob);
        eventually("whoever is gone is gone", NOTICED, || alice.state("stream-bob") == "offline");
    });
}

fn silence(place: &Deployment) {
    let bob = place.client("silence-bob");
    let mut alice = place.subscribe("silence-alice", "users=silence-bob&watch_only=true");
    alice.snapshot();
    swept(place, || {
        ok(&bob.beat("web"));
        let online = alice.presence("silence-bob", "online");
        let offline = alice.presence("silence-bob", "offline");
        assert_eq!(offline.data["last_seen"], online.data["last_seen"], "exactly when they beat last");
        assert!(offline.version() > online.version());
    });
}

fn the_archive(place: &Deployment) {
    let (bob, alice) = (place.client("archive-bob"), place.client("archive-alice"));
    swept(place, || {
        ok(&bob.beat("web"));
        let last_seen = alice.presence("archive-bob")["last_seen"].clone();
        assert!(last_seen.is_u64());
        // Once the session is dropped, the version is gone and the last seen is not.
        let sweeper = place.client_with("schedule", &["service"]);
        eventually("the session moves to the archive", NOTICED, || {
            ok(&sweeper.post("/v1/sweep", json!({})));
            alice.presence("archive-bob")["version"] == 0
        });
        let gone = alice.presence("archive-bob");
        assert_eq!((&gone["state"], &gone["last_seen"]), (&json!("offline"), &last_seen));
    });
}

fn pages(place: &Deployment) {
    let anybody = place.named("anybody");
    assert_eq!((anybody.get("/healthz").status, anybody.get("/readyz").status), (200, 200));
    assert_eq!(ok(&anybody.get("/openapi.json"))["openapi"].as_str().map(|version| &version[..2]), Some("3."));
}

/// Requests that are refused, with what the host says to each.
fn refused() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    vec![
        ("POST", "/v1/heartbeat", Some("{")),
        ("POST", "/v1/heartbeat", Some("{}")),
        ("POST", "/v1/heartbeat", Some(r#"{"device":"web","colour":"red"}"#)),
        ("POST", "/v1/heartbeat", Some(r#"{"device":""}"#)),
        ("POST", "/v1/heartbeat", None),
        ("GET", "/v1/heartbeat", None),
        ("POST", "/v1/leave", Some(r#"{"device":"web","reason":"boredom"}"#)),
        ("PUT", "/v1/status", Some(r#"{"choice":"asleep"}"#)),
        ("GET", "/v1/presence?users=", None),
        ("GET", "/v1/presence?people=bob", None),
        ("GET", "/v1/presence/%00", None),
        ("DELETE", "/v1/presence/bob", None),
        ("GET", "/presence/batch", None),
        ("GET", "/v1/subscribe", None),
        ("PUT", "/v1/privacy", Some(r#"{"presence":"friends"}"#)),
        ("PUT", "/v1/blocks/%7F", None),
        ("POST", "/v1/restrictions/check", Some(r#"{"viewer":"a"}"#)),
        ("POST", "/v1/sweep", Some(r#"{"limit":-1}"#)),
        ("PUT", "/v1/typing/%0A", None),
    ]
}

/// Whatever is refused is refused in the same words as by our host.
fn refuses_alike(place: &Deployment, host: &Deployment) {
    for (method, path, body) in refused() {
        let ask = |place: &Deployment| {
            let answer = place.client_with("somebody", &["service"]).send(method, path, body.map(str::as_bytes));
            let header = |name| answer.header(name).map(str::to_owned);
            (answer.status, header("content-type"), header("allow"), answer.text)
        };
        let (ours, theirs) = (ask(host), ask(place));
        assert!(ours.0 >= 400, "{method} {path}: {ours:?}");
        assert_eq!(theirs, ours, "{}: {method} {path}", place.name);
    }
    let long = vec!["x".repeat(100); 501];
    let ask = |place: &Deployment| place.client("somebody").post("/v1/presence", json!({ "users": long })).status;
    assert_eq!(ask(place), ask(host));
}

/// Without a valid token nothing is answered, and with one no more than it allows.
fn guards_its_doors(place: &Deployment) {
    for (method, path, body) in
        [("POST", "/v1/heartbeat", Some(r#"{"device":"web"}"#)), ("GET", "/v1/presence/bob", None)]
    {
        let answer = place.named("bob").send(method, path, body.map(str::as_bytes));
        assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
    }
    ok(&place.client("bob").beat("web"));
    assert_eq!(place.client("alice").state("bob"), "online");
    for (scopes, status) in [(&[][..], 403), (&["service"], 200)] {
        assert_eq!(place.client_with("bob", scopes).post("/v1/sweep", json!({})).status, status, "{scopes:?}");
    }
    for (scopes, status) in [(&[][..], 403), (&["admin"], 200)] {
        let answer = place.client_with("bob", scopes).send("PUT", "/v1/restrictions/eve", None);
        assert_eq!(answer.status, status, "{scopes:?}: {}", answer.text);
    }
    let mut stream = place.subscribe("alice", "users=bob&watch_only=true");
    assert_eq!(stream.snapshot()["presences"][0]["user"], "bob");
    assert_eq!(place.named("anybody").get("/healthz").status, 200);
}

/// A place and our host on one Redis are one service.
fn is_one_service_with(place: &Deployment, host: &Deployment) {
    let mut here = host.subscribe("fleet-alice", "users=fleet-bob&watch_only=true");
    let mut there = place.subscribe("fleet-alice", "users=fleet-bob&watch_only=true");
    here.snapshot();
    there.snapshot();
    for (beats_at, asked_at) in [(place, host), (host, place)] {
        let bob = beats_at.client("fleet-bob");
        ok(&bob.beat("web"));
        let told = [here.presence("fleet-bob", "online"), there.presence("fleet-bob", "online")];
        assert_eq!(told[0].data, told[1].data, "the same event, wherever one listens");
        let asked = [beats_at, asked_at].map(|at| at.client("fleet-alice").presence("fleet-bob"));
        assert_eq!(asked[0]["version"], asked[1]["version"]);
        ok(&bob.put("/v1/status", json!({ "choice": "busy" })));
        here.presence("fleet-bob", "busy");
        there.presence("fleet-bob", "busy");
        ok(&bob.send("DELETE", "/v1/status", None));
        ok(&asked_at.client("fleet-bob").post("/v1/leave", json!({ "device": "web", "reason": "logout" })));
        let told = [here.presence("fleet-bob", "offline"), there.presence("fleet-bob", "offline")];
        assert_eq!(told[0].data, told[1].data);
    }
    ok(&place.client("fleet-bob").beat("web"));
    here.presence("fleet-bob", "online");
    ok(&place.client("fleet-bob").send("PUT", "/v1/blocks/fleet-alice", None));
    here.until("a block made there is told here", NOTICED, |told| told.is_of("fleet-bob") && told.state().is_empty());
    assert_eq!(host.client("fleet-alice").presence("fleet-bob"), hidden("fleet-bob"));
}

#[test]
fn our_host() {
    let server = redis();
    scenario(&Deployment::host(&server.url(), Settings::brisk()));
    guards_its_doors(&Deployment::host(&server.url(), Settings::brisk().with_tokens()));
}

/// All that is expected of a place that is not our host.
fn everything(server: &Redis, start: impl Fn(Settings) -> Deployment) {
    let place = start(Settings::brisk());
    scenario(&place);
    let host = Deployment::host(&server.url(), Settings::brisk());
    refuses_alike(&place, &host);
    is_one_service_with(&place, &host);
    assert_eq!(place.failures(), NOTHING);
    drop(place);
    guards_its_doors(&start(Settings::brisk().with_tokens()));
}

#[test]
fn on_wasi() {
    let server = redis();
    everything(&server, |setup| Deployment::wasi(&server.url(), setup));
}

#[test]
fn concurrent_wasi_requests_share_instances_and_connections() {
    const PEOPLE: usize = 48;
    const BEATS: usize = 40;
    let server = redis();
    let place = Deployment::wasi(&server.url(), Settings::brisk());
    std::thread::scope(|scope| {
        for n in 0..PEOPLE {
            let person = place.client(&format!("crowd-{n}"));
            scope.spawn(move || {
                for _ in 0..BEATS {
                    ok(&person.beat("web"));
                }
            });
        }
        // Some come to watch, and are gone before or after they were told anything.
        scope.spawn(|| {
            for n in 0..BEATS {
                let mut stream = place.subscribe("crowd-watcher", &format!("users=crowd-{n}&watch_only=true"));
                if n % 2 == 0 {
                    stream.snapshot();
                }
            }
        });
    });
    assert_eq!(place.failures(), NOTHING);
    let connections: usize = info(&server, "total_connections_received").parse().unwrap();
    assert!(connections < PEOPLE * BEATS / 10, "{connections} connections for {} beats", PEOPLE * BEATS);
}

#[test]
fn wasi_reports_lost_redis_and_reconnects() {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    let mut server = Redis::with(Options { args, durable: true, ..Options::default() }).unwrap();
    let place = Deployment::wasi(&server.url(), Settings::brisk());
    let away = |what: &str| {
        std::thread::scope(|scope| {
            let ask = |n| {
                let person = place.client(&format!("outage-{n}"));
                scope.spawn(move || person.beat("web"))
            };
            for answer in (0..8).map(ask).collect::<Vec<_>>() {
                let answer = answer.join().unwrap();
                assert_eq!(
                    (answer.status, answer.header("content-type")),
                    (503, Some("application/problem+json")),
                    "{what}"
                );
            }
        });
    };
    let bob = place.client("outage-bob");
    ok(&bob.beat("web"));
    server.pause().unwrap();
    away("one that does not answer");
    server.resume().unwrap();
    eventually("one that answers again", NOTICED, || bob.beat("web").status == 200);
    server.kill();
    away("one that is not there");
    server.restart().unwrap();
    eventually("one that is there again", NOTICED, || bob.beat("web").status == 200);
    assert_eq!(place.client("outage-alice").state("outage-bob"), "online");
    assert_eq!(place.failures(), NOTHING);
}

#[test]
#[ignore = "it takes ten minutes to compile: cargo xtask test --wasmtime"]
fn on_wasmtime_serve() {
    let server = redis();
    everything(&server, |setup| Deployment::wasmtime(&server.url(), setup));
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn on_spin() {
    let server = redis();
    everything(&server, |setup| Deployment::spin(server.port(), setup));
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn on_spin_with_its_own_redis() {
    let server = redis();
    scenario(&Deployment::spin_that_connects(server.port(), Settings::brisk()));
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn supervised_spin_recovers_from_lost_redis() {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    let mut server = Redis::with(Options { args, durable: true, ..Options::default() }).unwrap();
    let place = Deployment::supervised_spin(server.port(), Settings::brisk());
    let (bob, alice) = (place.client("bob"), place.client("alice"));
    ok(&bob.beat("web"));
    let before = alice.presence("bob");
    server.kill();
    eventually("Spin ends with its Redis", NOTICED, || bob.try_send("GET", "/healthz", None).is_err());
    server.restart().unwrap();
    let is_back = || bob.try_send("GET", "/readyz", None).is_ok_and(|answer| answer.status == 200);
    eventually("the supervisor starts it again", Duration::from_secs(120), is_back);
    eventually("whoever went meanwhile is gone, when they went", NOTICED, || {
        ok(&place.client("schedule").post("/v1/sweep", json!({})));
        let now = alice.presence("bob");
        now["state"] == "offline" && now["last_seen"] == before["last_seen"]
    });
    ok(&bob.beat("web"));
    assert_eq!(alice.state("bob"), "online");
}
