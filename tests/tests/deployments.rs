//! One scenario on every deployment: our host, Spin, `wasmtime serve` and an in-process WASI host. The components are the same, so
//! the answers must be.

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
use rollcall_tests::compatibility::{self, Runs};
use rollcall_tests::deployment::{Deployment, Settings, Spin};
use rollcall_tests::{Answer, Client, eventually};
use serde_json::{Value, json};

/// Expiry is noticed within a second or two; a busy machine gets more.
const NOTICED: Duration = Duration::from_secs(15);

/// No failures.
const NOTHING: [&str; 0] = [];

/// A Redis with keyspace notifications. Our host turns them on itself; for Spin the operator has to.
fn redis() -> Redis {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    Redis::with(Options { args, ..Options::default() }).unwrap()
}

/// A field of INFO.
fn info(server: &Redis, name: &str) -> String {
    let all = server.ask(&["INFO"]).unwrap();
    let found = all.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    found.unwrap_or_else(|| panic!("no {name} in INFO"))
}

/// Runs a claim while a thread sweeps, if the deployment needs that.
fn swept<T>(deployment: &Deployment, claim: impl FnOnce() -> T) -> T {
    if deployment.settles {
        return claim();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let schedule = deployment.client_with("schedule", &["service"]);
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

/// A part of the scenario with its name.
type Chapter = (&'static str, fn(&Deployment));

/// All parts, one after the other, each with its own users.
fn scenario(deployment: &Deployment) {
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
        eprintln!("{}: {name}", deployment.name);
        chapter(deployment);
    }
}

fn beats_and_devices(deployment: &Deployment) {
    let (bob, alice) = (deployment.client("beats-bob"), deployment.client("beats-alice"));
    let never = alice.presence("beats-bob");
    assert_eq!(
        never,
        json!({ "user": "beats-bob", "state": "offline", "since": null, "last_seen": null, "version": 0, "note": null })
    );
    let first = bob.post("/v1/heartbeat", json!({ "device": "web", "kind": "web", "active": true }));
    assert_eq!((ok(&first)["state"].as_str(), ok(&first)["next_beat_ms"].as_u64()), (Some("online"), Some(1000)));
    assert_eq!(first.header("content-length"), Some(first.text.len().to_string().as_str()));
    let again = bob.post("/v1/heartbeat", json!({ "device": "phone", "kind": "mobile" }));
    assert_eq!(ok(&again)["version"], first.json["version"], "a second device changes nothing");
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

fn idleness_and_choices(deployment: &Deployment) {
    let (bob, alice) = (deployment.client("choices-bob"), deployment.client("choices-alice"));
    let idle = bob.post("/v1/heartbeat", json!({ "device": "web", "active": false }));
    assert_eq!(ok(&idle)["state"], "away", "a device without activity is idle");
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

fn batches(deployment: &Deployment) {
    let edge = deployment.client_with("batch-edge", &["service"]);
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

fn privacy_contacts_and_blocks(deployment: &Deployment) {
    let (bob, alice) = (deployment.client("policy-bob"), deployment.client("policy-alice"));
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
    assert_eq!(bob.state("policy-bob"), "online", "users see themselves");
    ok(&bob.send("DELETE", "/v1/blocks/policy-alice", None));
    assert_eq!(alice.state("policy-bob"), "online");
}

fn restrictions(deployment: &Deployment) {
    let admin = deployment.client_with("restrictions-admin", &["admin"]);
    let (bob, alice) = (deployment.client("4711"), deployment.client("restrictions-alice"));
    ok(&bob.beat("web"));
    ok(&admin.send("PUT", "/v1/restrictions/4711", None));
    assert_eq!(alice.presence("4711"), hidden("4711"));
    let asked = json!({ "viewer": "restrictions-alice", "subjects": ["4711", "restrictions-eve"] });
    let verdicts = deployment.client_with("backend", &["service", "admin"]).post("/v1/restrictions/check", asked);
    assert_eq!(ok(&verdicts)["verdicts"], json!(["restricted", "allowed"]));
    ok(&admin.send("DELETE", "/v1/restrictions/4711", None));
    assert_eq!(alice.state("4711"), "online");
}

fn typing(deployment: &Deployment) {
    let (bob, alice) = (deployment.client("typing-bob"), deployment.client("typing-alice"));
    ok(&bob.beat("web"));
    let typists = |client: &Client| ok(&client.get("/v1/typing/typing-room"))["typists"].as_array().unwrap().len();
    ok(&bob.send("PUT", "/v1/typing/typing-room", None));
    assert_eq!((typists(&alice), typists(&bob)), (1, 0), "a typist is not listed to themselves");
    ok(&bob.send("DELETE", "/v1/typing/typing-room", None));
    eventually("a stop counts", NOTICED, || typists(&alice) == 0);
}

fn snapshot_and_push(deployment: &Deployment) {
    let (bob, eve) = (deployment.client("push-bob"), deployment.client("push-eve"));
    ok(&bob.beat("web"));
    let mut alice = deployment.subscribe("push-alice", "users=push-bob,push-eve&watch_only=true");
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
    let mut alice =
        deployment.subscribe_from("push-alice", "users=push-bob,push-eve&watch_only=true", left_off.as_deref());
    alice.until("the missed change arrives", NOTICED, |event| {
        event.is_of("push-bob") && event.state() == "away"
            || event.data["presences"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "away"))
    });
    ok(&eve.post("/v1/leave", json!({ "device": "web", "reason": "logout" })));
    alice.presence("push-eve", "offline");
}

fn a_stream_is_a_heartbeat(deployment: &Deployment) {
    let alice = deployment.client("stream-alice");
    swept(deployment, || {
        let bob = deployment.subscribe("stream-bob", "users=stream-alice&device=web");
        eventually("a connected user is online", NOTICED, || alice.state("stream-bob") == "online");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(alice.state("stream-bob"), "online", "a stream beats for longer than one beat lasts");
        drop(bob);
        eventually("a disconnected user goes offline", NOTICED, || alice.state("stream-bob") == "offline");
    });
}

fn silence(deployment: &Deployment) {
    let bob = deployment.client("silence-bob");
    let mut alice = deployment.subscribe("silence-alice", "users=silence-bob&watch_only=true");
    alice.snapshot();
    swept(deployment, || {
        ok(&bob.beat("web"));
        let online = alice.presence("silence-bob", "online");
        let offline = alice.presence("silence-bob", "offline");
        assert_eq!(offline.data["last_seen"], online.data["last_seen"], "last seen is the last beat");
        assert!(offline.version() > online.version());
    });
}

fn the_archive(deployment: &Deployment) {
    let (bob, alice) = (deployment.client("archive-bob"), deployment.client("archive-alice"));
    swept(deployment, || {
        ok(&bob.beat("web"));
        let last_seen = alice.presence("archive-bob")["last_seen"].clone();
        assert!(last_seen.is_u64());
        // An evicted session has no version, but a last seen.
        let sweeper = deployment.client_with("schedule", &["service"]);
        eventually("the session moves to the archive", NOTICED, || {
            ok(&sweeper.post("/v1/sweep", json!({})));
            alice.presence("archive-bob")["version"] == 0
        });
        let gone = alice.presence("archive-bob");
        assert_eq!((&gone["state"], &gone["last_seen"]), (&json!("offline"), &last_seen));
    });
}

fn pages(deployment: &Deployment) {
    let anybody = deployment.named("anybody");
    assert_eq!((anybody.get("/healthz").status, anybody.get("/readyz").status), (200, 200));
    assert_eq!(ok(&anybody.get("/openapi.json"))["openapi"].as_str().map(|version| &version[..2]), Some("3."));
}

/// Requests that every deployment must reject.
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

/// Rejections must equal those of our host, byte for byte.
fn refuses_alike(deployment: &Deployment, host: &Deployment) {
    for (method, path, body) in refused() {
        let ask = |deployment: &Deployment| {
            let answer = deployment.client_with("somebody", &["service"]).send(method, path, body.map(str::as_bytes));
            let header = |name| answer.header(name).map(str::to_owned);
            (answer.status, header("content-type"), header("allow"), answer.text)
        };
        let (ours, theirs) = (ask(host), ask(deployment));
        assert!(ours.0 >= 400, "{method} {path}: {ours:?}");
        assert_eq!(theirs, ours, "{}: {method} {path}", deployment.name);
    }
    let long = vec!["x".repeat(100); 501];
    let ask =
        |deployment: &Deployment| deployment.client("somebody").post("/v1/presence", json!({ "users": long })).status;
    assert_eq!(ask(deployment), ask(host));
}

/// Requests need a valid token, and its scopes limit them.
fn requires_tokens(deployment: &Deployment) {
    for (method, path, body) in
        [("POST", "/v1/heartbeat", Some(r#"{"device":"web"}"#)), ("GET", "/v1/presence/bob", None)]
    {
        let answer = deployment.named("bob").send(method, path, body.map(str::as_bytes));
        assert_eq!((answer.status, answer.header("content-type")), (401, Some("application/problem+json")));
    }
    ok(&deployment.client("bob").beat("web"));
    assert_eq!(deployment.client("alice").state("bob"), "online");
    for (scopes, status) in [(&[][..], 403), (&["service"], 200)] {
        assert_eq!(deployment.client_with("bob", scopes).post("/v1/sweep", json!({})).status, status, "{scopes:?}");
    }
    for (scopes, status) in [(&[][..], 403), (&["admin"], 200)] {
        let answer = deployment.client_with("bob", scopes).send("PUT", "/v1/restrictions/eve", None);
        assert_eq!(answer.status, status, "{scopes:?}: {}", answer.text);
    }
    let mut stream = deployment.subscribe("alice", "users=bob&watch_only=true");
    assert_eq!(stream.snapshot()["presences"][0]["user"], "bob");
    assert_eq!(deployment.named("anybody").get("/healthz").status, 200);
}

/// A deployment and our host on one Redis behave as one service.
fn is_one_service_with(deployment: &Deployment, host: &Deployment) {
    let mut here = host.subscribe("shared-alice", "users=shared-bob&watch_only=true");
    let mut there = deployment.subscribe("shared-alice", "users=shared-bob&watch_only=true");
    here.snapshot();
    there.snapshot();
    for (beats_at, asked_at) in [(deployment, host), (host, deployment)] {
        let bob = beats_at.client("shared-bob");
        ok(&bob.beat("web"));
        let events = [here.presence("shared-bob", "online"), there.presence("shared-bob", "online")];
        assert_eq!(events[0].data, events[1].data, "both deliver the same event");
        let asked = [beats_at, asked_at].map(|at| at.client("shared-alice").presence("shared-bob"));
        assert_eq!(asked[0]["version"], asked[1]["version"]);
        ok(&bob.put("/v1/status", json!({ "choice": "busy" })));
        here.presence("shared-bob", "busy");
        there.presence("shared-bob", "busy");
        ok(&bob.send("DELETE", "/v1/status", None));
        ok(&asked_at.client("shared-bob").post("/v1/leave", json!({ "device": "web", "reason": "logout" })));
        let events = [here.presence("shared-bob", "offline"), there.presence("shared-bob", "offline")];
        assert_eq!(events[0].data, events[1].data);
    }
    ok(&deployment.client("shared-bob").beat("web"));
    here.presence("shared-bob", "online");
    ok(&deployment.client("shared-bob").send("PUT", "/v1/blocks/shared-alice", None));
    here.until("the block arrives at the other host", NOTICED, |event| {
        event.is_of("shared-bob") && event.state().is_empty()
    });
    assert_eq!(host.client("shared-alice").presence("shared-bob"), hidden("shared-bob"));
}

#[test]
fn our_host() {
    let server = redis();
    scenario(&Deployment::host(&server.url(), Settings::brisk()));
    requires_tokens(&Deployment::host(&server.url(), Settings::brisk().with_tokens()));
    compatibility::passed("our own, `rollcall serve`", env!("CARGO_PKG_VERSION"), Runs::Everything);
}

/// All claims about a deployment other than our host.
fn everything(server: &Redis, start: impl Fn(Settings) -> Deployment) {
    let deployment = start(Settings::brisk());
    scenario(&deployment);
    let host = Deployment::host(&server.url(), Settings::brisk());
    refuses_alike(&deployment, &host);
    is_one_service_with(&deployment, &host);
    assert_eq!(deployment.failures(), NOTHING);
    drop(deployment);
    requires_tokens(&start(Settings::brisk().with_tokens()));
}

#[test]
fn on_wasi() {
    let server = redis();
    everything(&server, |settings| Deployment::wasi(&server.url(), settings));
    compatibility::passed(
        "WASI 0.3.0, with wasmtime",
        &compatibility::locked_version("wasmtime"),
        Runs::HttpAndSchedule,
    );
}

#[test]
fn on_wasi_0_2() {
    let server = redis();
    everything(&server, |settings| Deployment::wasi_0_2(&server.url(), settings));
    compatibility::passed("WASI 0.2, with wasmtime", &compatibility::locked_version("wasmtime"), Runs::HttpAndSchedule);
}

#[test]
fn stream_ends_before_the_platform_cuts_it() {
    let server = redis();
    let deployments = [Deployment::wasi, Deployment::wasi_0_2];
    for (prefix, start) in ["new", "old"].into_iter().zip(deployments) {
        let mut settings = Settings::brisk();
        settings.settings.push(("stream_max_ms", "2000".to_owned()));
        let deployment = start(&server.url(), settings);
        let [alice, bob] = ["alice", "bob"].map(|name| format!("{prefix}-{name}"));
        let (viewer, query) = (deployment.client(&bob), format!("users={bob}&device=web"));
        let mut first = deployment.subscribe(&alice, &query);
        first.snapshot();
        let events = first.until("the stream ends", NOTICED, |event| event.event == "reconnect");
        let reconnect = events.last().unwrap();
        assert!(reconnect.data["after_ms"].as_u64().is_some_and(|ms| (250..=1000).contains(&ms)), "{reconnect:?}");
        assert_eq!(viewer.state(&alice), "online", "the end of a stream is no departure");
        ok(&viewer.beat("web"));
        let mut second = deployment.subscribe_from(&alice, &query, first.last_id().as_deref());
        second.until("the missed change arrives", NOTICED, |event| {
            event.is_of(&bob) || event.data["presences"].as_array().is_some_and(|all| all[0]["state"] == "online")
        });
        assert_eq!(viewer.state(&alice), "online");
        assert_eq!(deployment.failures(), NOTHING);
    }
}

#[test]
fn concurrent_wasi_requests_share_instances_and_connections() {
    const PEOPLE: usize = 48;
    const BEATS: usize = 40;
    let server = redis();
    let deployment = Deployment::wasi(&server.url(), Settings::brisk());
    std::thread::scope(|scope| {
        for n in 0..PEOPLE {
            let person = deployment.client(&format!("crowd-{n}"));
            scope.spawn(move || {
                for _ in 0..BEATS {
                    ok(&person.beat("web"));
                }
            });
        }
        // Some watchers disconnect before, some after their snapshot.
        scope.spawn(|| {
            for n in 0..BEATS {
                let mut stream = deployment.subscribe("crowd-watcher", &format!("users=crowd-{n}&watch_only=true"));
                if n % 2 == 0 {
                    stream.snapshot();
                }
            }
        });
    });
    assert_eq!(deployment.failures(), NOTHING);
    let connections: usize = info(&server, "total_connections_received").parse().unwrap();
    assert!(connections < PEOPLE * BEATS / 10, "{connections} connections for {} beats", PEOPLE * BEATS);
}

#[test]
fn wasi_reports_lost_redis_and_reconnects() {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    let mut server = Redis::with(Options { args, durable: true, ..Options::default() }).unwrap();
    let deployment = Deployment::wasi(&server.url(), Settings::brisk());
    let away = |what: &str| {
        std::thread::scope(|scope| {
            let ask = |n| {
                let person = deployment.client(&format!("outage-{n}"));
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
    let bob = deployment.client("outage-bob");
    ok(&bob.beat("web"));
    server.pause().unwrap();
    away("hung Redis");
    server.resume().unwrap();
    eventually("Redis answers again", NOTICED, || bob.beat("web").status == 200);
    server.kill();
    away("killed Redis");
    server.restart().unwrap();
    eventually("Redis is back", NOTICED, || bob.beat("web").status == 200);
    assert_eq!(deployment.client("outage-alice").state("outage-bob"), "online");
    assert_eq!(deployment.failures(), NOTHING);
}

#[test]
#[ignore = "it takes ten minutes to compile: cargo xtask test --wasmtime"]
fn on_wasmtime_serve() {
    let server = redis();
    everything(&server, |settings| Deployment::wasmtime(&server.url(), settings));
    server.ask(&["FLUSHALL"]).unwrap();
    everything(&server, |settings| Deployment::wasmtime_0_2(&server.url(), settings));
    let version = compatibility::locked_version("wasmtime");
    compatibility::passed("`wasmtime serve`", &version, Runs::HttpAndSchedule);
}

/// The Spins to test on; at least one.
fn spins() -> Vec<Spin> {
    let spins = Spin::all();
    assert!(!spins.is_empty(), "no Spin is installed");
    spins
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn on_spin() {
    let server = redis();
    for spin in spins() {
        everything(&server, |settings| Deployment::spin(&spin, server.port(), settings));
        compatibility::passed("Spin", spin.version(), Runs::HttpAndNotifications);
        server.ask(&["FLUSHALL"]).unwrap();
    }
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn on_spin_with_its_own_redis() {
    let server = redis();
    for spin in spins() {
        scenario(&Deployment::spin_that_connects(&spin, server.port(), Settings::brisk()));
        server.ask(&["FLUSHALL"]).unwrap();
    }
}

#[test]
#[ignore = "it needs a `spin` on the PATH: cargo xtask test --spin"]
fn supervised_spin_recovers_from_lost_redis() {
    spins().iter().for_each(recovers_from_lost_redis);
}

fn recovers_from_lost_redis(spin: &Spin) {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    let mut server = Redis::with(Options { args, durable: true, ..Options::default() }).unwrap();
    let deployment = Deployment::supervised_spin(spin, server.port(), Settings::brisk());
    let (bob, alice) = (deployment.client("bob"), deployment.client("alice"));
    ok(&bob.beat("web"));
    let before = alice.presence("bob");
    server.kill();
    eventually("Spin ends with its Redis", NOTICED, || bob.try_send("GET", "/healthz", None).is_err());
    server.restart().unwrap();
    let is_back = || bob.try_send("GET", "/readyz", None).is_ok_and(|answer| answer.status == 200);
    eventually("the supervisor starts it again", Duration::from_secs(120), is_back);
    eventually("bob is offline with the last seen of before", NOTICED, || {
        ok(&deployment.client("schedule").post("/v1/sweep", json!({})));
        let now = alice.presence("bob");
        now["state"] == "offline" && now["last_seen"] == before["last_seen"]
    });
    ok(&bob.beat("web"));
    assert_eq!(alice.state("bob"), "online");
}
