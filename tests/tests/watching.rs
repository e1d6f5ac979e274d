//! Watching, over both protocols, on the embedded store and from host to host: changes are pushed at once, in order, once, and
//! only if the viewer may see them; a resuming watcher gets what changed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use rollcall_tests::history::now_ms;
use rollcall_tests::service::BRISK;
use rollcall_tests::watcher::{EventQueue, FENCE, Protocol, WatchEvent, states};
use rollcall_tests::{Host, Service, Socket, Stream, eventually};
use serde_json::{Value, json};

/// The promise: a beat lasts 1.5 s, and its end is pushed at most a second later.
const OFFLINE_BOUND_MS: u64 = 2500;

/// What a busy machine may add to the promised bound.
const BUSY_MS: u64 = 1000;

/// A resume point lies ten seconds before the last read, plus recheck and crowd interval; and some more.
const RESUME_MARGIN_MS: u64 = 12_000;

fn leave(host: &Host, user: &str, device: &str) {
    let left = host.client(user).post("/v1/leave", json!({ "device": device, "reason": "logout" }));
    assert_eq!(left.status, 200, "{}", left.text);
}

fn choose(host: &Host, user: &str, wish: Value) {
    let chosen = host.client(user).put("/v1/status", wish);
    assert_eq!(chosen.status, 200, "{}", chosen.text);
}

fn beat(host: &Host, user: &str) {
    let beaten = host.client(user).beat("web");
    assert_eq!(beaten.status, 200, "{}", beaten.text);
}

/// A presence without these fields.
fn without(presence: &Value, names: &[&str]) -> Value {
    let mut presence = presence.clone();
    let fields = presence.as_object_mut().unwrap();
    names.iter().for_each(|name| drop(fields.remove(*name)));
    presence
}

/// The users of a snapshot, with their states.
fn shown(snapshot: &Value) -> Vec<(&str, &str)> {
    let presences = snapshot["presences"].as_array().unwrap().iter();
    presences.map(|p| (p["user"].as_str().unwrap(), p["state"].as_str().unwrap())).collect()
}

#[test]
fn watcher_gets_changes_in_order_without_extras() {
    Service::on_each_store(&[], |service| {
        for (protocol, user) in Protocol::BOTH.into_iter().zip(["bob", "carol"]) {
            let mut alice = protocol.watch(service.first(), "alice", &format!("{user},{FENCE}"));
            let snapshot = alice.snapshot();
            assert_eq!((&snapshot["resumed"], shown(&snapshot)[0]), (&json!(false), (user, "offline")));
            beat(service.last(), user);
            let online = alice.presence(user, "online");
            assert_eq!(without(&online.data, &["last_seen"]), without(&seen(service, user), &["last_seen"]));
            assert!(online.id.is_some(), "every event has an id: {online:?}");

            service.last().client(user).beat("phone");
            service.last().client(user).beat("web");
            assert_eq!(alice.events_so_far(service.last()), [], "a second device or another beat causes no event");
            let note = json!({ "choice": "busy", "text": "data: \u{2028}id: 1", "emoji": "📅" });
            choose(service.last(), user, note);
            choose(service.last(), user, json!({ "choice": "auto" }));
            leave(service.last(), user, "web");
            leave(service.last(), user, "phone");
            let events = alice.until("offline arrives", Duration::from_secs(5), |event| event.state() == "offline");
            assert_eq!(states(&events, user).last(), Some(&"offline"));
            let mut versions: Vec<u64> = events.iter().map(WatchEvent::version).collect();
            versions.insert(0, online.version());
            assert!(versions.is_sorted_by(|one, other| one < other), "{versions:?}");
            assert_eq!(alice.events_so_far(service.last()), []);
        }
    });
}

fn seen(service: &Service, user: &str) -> Value {
    service.first().client("alice").presence(user)
}

#[test]
fn fast_watcher_gets_every_state() {
    Service::on_each_store(&[], |service| {
        for (protocol, user) in Protocol::BOTH.into_iter().zip(["bob", "carol"]) {
            let mut alice = protocol.watch(service.first(), "alice", user);
            alice.snapshot();
            beat(service.last(), user);
            alice.presence(user, "online");
            choose(
                service.last(),
                user,
                json!({ "choice": "busy", "text": "in a \"meeting\"\u{2028}until \\n ten", "emoji": "📅" }),
            );
            let busy = alice.presence(user, "busy");
            assert_eq!(busy.data["note"]["text"], "in a \"meeting\"\u{2028}until \\n ten");
            assert_eq!(busy.data["note"]["emoji"], "📅");
            assert_eq!(without(&busy.data, &["last_seen"]), without(&seen(service, user), &["last_seen"]));
            choose(service.last(), user, json!({ "choice": "away" }));
            alice.presence(user, "away");
            choose(service.last(), user, json!({ "choice": "auto" }));
            alice.presence(user, "online");
            leave(service.last(), user, "web");
            alice.presence(user, "offline");
        }
    });
}

#[test]
fn missed_beats_push_offline_within_bound() {
    Service::on_each_store(&BRISK, |service| {
        let mut watchers = Protocol::BOTH.map(|protocol| protocol.watch(service.first(), "alice", "bob"));
        beat(service.last(), "bob");
        for alice in &mut watchers {
            let last_beat = alice.presence("bob", "online").data["last_seen"].as_u64().unwrap();
            let offline = alice.presence("bob", "offline");
            assert_eq!(offline.data["last_seen"], last_beat, "last seen is the beat");
            let late = offline.at_ms - last_beat;
            assert!((1500..=OFFLINE_BOUND_MS + BUSY_MS).contains(&late), "pushed {late} ms after the last beat");
        }
    });
}

#[test]
fn invisible_user_looks_offline_to_watchers() {
    Service::on_each_store(&[], |service| {
        for protocol in Protocol::BOTH {
            let names = ["bob", "carol"].map(|name| format!("{name}-{protocol:?}"));
            let [bob, carol] = names.each_ref().map(String::as_str);
            let mut alice = protocol.watch(service.first(), "alice", &format!("{bob},{carol},{FENCE}"));
            for user in [bob, carol] {
                beat(service.last(), user);
                alice.presence(user, "online");
            }
            choose(service.last(), bob, json!({ "choice": "invisible" }));
            let hidden = alice.presence(bob, "offline");
            leave(service.last(), carol, "web");
            let gone = alice.presence(carol, "offline");
            let times = ["user", "since", "last_seen", "version"];
            assert_eq!(without(&hidden.data, &times), without(&gone.data, &times));

            beat(service.last(), bob);
            service.last().client(bob).beat("phone");
            choose(service.last(), bob, json!({ "choice": "invisible" }));
            assert_eq!(alice.events_so_far(service.last()), [], "an invisible user causes no events");
            let snapshot = protocol.watch(service.first(), "dave", &format!("{bob},{carol}")).snapshot();
            let [hidden, gone] = [0, 1].map(|place| snapshot["presences"][place].clone());
            assert_eq!(without(&hidden, &times), without(&gone, &times));
            assert_eq!(hidden["version"] == 0, gone["version"] == 0, "{snapshot}");

            choose(service.last(), bob, json!({ "choice": "auto" }));
            alice.presence(bob, "online");
            choose(service.last(), bob, json!({ "choice": "invisible" }));
            alice.presence(bob, "offline");
            choose(service.last(), bob, json!({ "choice": "busy" }));
            assert_eq!(alice.presence(bob, "busy").data.get("choice"), None, "others never see the choice");
        }
    });
}

#[test]
fn users_see_their_own_choice() {
    Service::on_each_store(&[], |service| {
        for protocol in Protocol::BOTH {
            let user = format!("self-{protocol:?}");
            let mut own = protocol.watch(service.first(), &user, &user);
            own.snapshot();
            beat(service.last(), &user);
            own.presence(&user, "online");
            choose(service.last(), &user, json!({ "choice": "busy" }));
            assert_eq!(own.presence(&user, "busy").data["choice"]["choice"], "busy");
            choose(service.last(), &user, json!({ "choice": "invisible" }));
            let is_hidden = |event: &WatchEvent| event.data["choice"]["choice"] == "invisible";
            own.until("the own choice arrives", Duration::from_secs(5), is_hidden);
        }
    });
}

#[test]
fn cluster_watcher_gets_users_of_every_node() {
    let service = Service::cluster(&["--typing-ttl", "1s"]);
    let users: Vec<String> = (0..18).map(|index| format!("u{index}")).collect();
    for protocol in Protocol::BOTH {
        let watched = [("users", &*users.join(",")), ("conversations", "c1")];
        let mut alice = protocol.watch_as(service.first(), "alice", "watch_only=true", &watched);
        assert_eq!(alice.snapshot()["presences"].as_array().unwrap().len(), users.len());
        for user in &users {
            beat(service.last(), user);
            alice.presence(user, "online");
        }
        assert_eq!(service.last().client("u0").send("PUT", "/v1/typing/c1", None).status, 200);
        alice.until("typing arrives", Duration::from_secs(5), |event| event.data["typing"] == true);
        alice.until("its end arrives", Duration::from_secs(5), |event| event.data["typing"] == false);
        for user in &users {
            leave(service.last(), user, "web");
            alice.presence(user, "offline");
        }
    }
    service.stop();
}

#[test]
fn event_stream_is_plain_http_with_named_errors() {
    let host = Host::start(&[]);
    let answer = Stream::try_subscribe(&host, "alice", "").unwrap_err();
    assert_eq!((answer.status, &answer.json["field"]), (400, &json!("users")), "{}", answer.text);
    for (query, field) in [
        ("users=bob&since=yesterday", "since"),
        ("users=bob&since=-1", "since"),
        ("users=bob&watch_only=perhaps", "watch_only"),
        ("users=bob&kind=toaster", "kind"),
        ("users=bob&device=", "device"),
        ("users=bob&people=carol", "people"),
        ("users=b%00b", "users[0]"),
    ] {
        let answer = Stream::try_subscribe(&host, "alice", query).unwrap_err();
        assert_eq!((answer.status, answer.json["field"].as_str()), (400, Some(field)), "{query}: {}", answer.text);
    }
    let headers = [("Rollcall-User", "alice"), ("Last-Event-ID", "the one before")];
    let answer = Stream::get(host.address(), "/v1/subscribe?users=bob", &headers).unwrap_err();
    assert_eq!((answer.status, &answer.json["field"]), (400, &json!("Last-Event-ID")), "{}", answer.text);
    let head = host.client("alice").send("HEAD", "/v1/subscribe?users=bob", None);
    assert_eq!(head.status, 405, "HEAD opens no subscription");
    assert_eq!(host.metric("rollcall_watchers"), 0.0);
    host.stop();
}

/// Resumes from an event id; returns the snapshot.
fn resume(protocol: Protocol, host: &Host, users: &str, since: &str) -> Value {
    match protocol {
        Protocol::Events => {
            let headers = [("Rollcall-User", "alice"), ("Last-Event-ID", since)];
            let path = format!("/v1/subscribe?watch_only=true&since=1&users={users}");
            Stream::get(host.address(), &path, &headers).unwrap().snapshot()
        }
        Protocol::Socket => {
            let users: Value = users.split(',').collect();
            let mut socket = Socket::open(host, "alice", "watch_only=true");
            socket.ask(&json!({ "op": "watch", "users": users, "since": since })).data
        }
    }
}

#[test]
fn resume_delivers_only_differences() {
    Service::on_both_stores_at_once(&["--recheck", "200ms", "--crowd-interval", "0ms"], |service| {
        let users = ["ann", "ben", "cat", "dan"];
        let list = users.join(",");
        users.iter().for_each(|user| beat(service.last(), user));
        let known = now_ms();
        eventually("the resume point passes the beats", Duration::from_secs(20), || {
            now_ms() > known + RESUME_MARGIN_MS
        });
        for (protocol, word) in Protocol::BOTH.into_iter().zip(["one", "two"]) {
            let mut alice = protocol.watch(service.first(), "alice", &list);
            assert_eq!(shown(&alice.snapshot()).len(), users.len());
            let since = alice.last_id().unwrap();
            drop(alice);
            for host in &service.hosts {
                let resumed = resume(protocol, host, &list, &since);
                assert_eq!((&resumed["resumed"], shown(&resumed)), (&json!(true), vec![]), "nothing changed");
            }
            if word == "one" {
                choose(service.last(), "ben", json!({ "choice": "busy", "text": word }));
                for host in &service.hosts {
                    let resumed = resume(protocol, host, &list, &since);
                    assert_eq!(shown(&resumed), [("ben", "busy")], "one changed");
                }
            }
            users.iter().for_each(|user| choose(service.last(), user, json!({ "choice": "away", "text": word })));
            for host in &service.hosts {
                let resumed = resume(protocol, host, &list, &since);
                assert_eq!(shown(&resumed), users.map(|user| (user, "away")), "all changed");
            }
        }
    });
}

#[test]
fn version_works_as_resume_point() {
    Service::on_each_store(&[], |service| {
        let versions = ["ann", "ben", "cat"].map(|user| {
            // A version is a time in milliseconds; two in the same one would be equal.
            let before = now_ms();
            eventually("time passes", Duration::from_secs(1), || now_ms() > before);
            service.last().client(user).beat("web").json["version"].as_u64()
        });
        let since = versions[1].unwrap().to_string();
        let mut alice = Stream::subscribe(service.first(), "alice", &format!("users=ann,ben,cat&since={since}"));
        let snapshot = alice.snapshot();
        let expected = vec![("ben", "online"), ("cat", "online")];
        assert_eq!((&snapshot["resumed"], shown(&snapshot)), (&json!(true), expected), "that version and later ones");
        choose(service.last(), "ann", json!({ "choice": "busy" }));
        alice.presence("ann", "busy");
    });
}

#[test]
fn resume_includes_state_that_expired_unwatched() {
    Service::on_each_store(&BRISK, |service| {
        beat(service.last(), "bob");
        let mut alice = Protocol::Events.watch(service.first(), "alice", "bob");
        assert_eq!(shown(&alice.snapshot()), [("bob", "online")]);
        let since = alice.last_id().unwrap();
        drop(alice);
        eventually("bob is offline and archived", Duration::from_secs(10), || {
            service.hosts.iter().any(|host| host.metric("rollcall_archived_total") > 0.0)
        });
        for host in &service.hosts {
            assert_eq!(shown(&resume(Protocol::Events, host, "bob", &since)), [("bob", "offline")]);
        }
    });
}

#[test]
fn host_restart_resumes_without_events() {
    let data = tempfile::tempdir().unwrap();
    let host = Host::start_in(data.path(), &[]);
    beat(&host, "bob");
    let mut alice = Protocol::Events.watch(&host, "alice", "bob");
    assert_eq!(shown(&alice.snapshot()), [("bob", "online")]);
    let since = alice.last_id().unwrap();
    host.stop();
    let reconnect = alice.next_event();
    assert_eq!(reconnect.event, "reconnect");
    assert_eq!(alice.retry_ms(), reconnect.data["after_ms"].as_u64(), "a browser waits as long");
    alice.ending(Duration::from_secs(5));
    let host = Host::start_in(data.path(), &[]);
    let resumed = resume(Protocol::Events, &host, "bob", &since);
    assert_eq!((&resumed["resumed"], shown(&resumed)), (&json!(true), vec![]));
    choose(&host, "bob", json!({ "choice": "busy" }));
    assert_eq!(shown(&resume(Protocol::Socket, &host, "bob", &since)), [("bob", "busy")]);
    host.stop();
}

#[test]
fn changes_during_subscribe_are_delivered() {
    Service::on_each_store(&[], |service| {
        std::thread::scope(|scope| {
            let flapping = scope.spawn(|| {
                for turn in 0..150 {
                    choose(service.last(), "bob", json!({ "choice": "busy", "text": format!("turn {turn}") }));
                }
            });
            beat(service.last(), "bob");
            let mut watchers = Vec::new();
            while !flapping.is_finished() && watchers.len() < 60 {
                let protocol = Protocol::BOTH[watchers.len() % 2];
                watchers.push(protocol.watch(service.first(), &format!("w{}", watchers.len()), "bob"));
            }
            flapping.join().unwrap();
            assert!(watchers.len() >= 4, "only {} subscribed meanwhile", watchers.len());
            let newest = seen(service, "bob")["version"].as_u64().unwrap();
            for watcher in &mut watchers {
                assert!(ends_at(watcher, newest), "a watcher missed the last state");
            }
        });
    });
}

/// Whether a watcher, whose snapshot is not read yet, gets this version last, and versions in order before it.
fn ends_at(events: &mut EventQueue, newest: u64) -> bool {
    let mut version = events.snapshot()["presences"][0]["version"].as_u64().unwrap();
    while version != newest {
        let Some(next) = events.try_next(Duration::from_secs(5)) else { return false };
        assert!(next.version() > version, "{} after {version}", next.version());
        version = next.version();
    }
    true
}
