//! An open connection is a heartbeat: a connected user is online, one who leaves is offline, and after a broken connection or
//! a reload the grace leaves time to reconnect.

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
use rollcall_tests::watcher::{FENCE, Protocol, WatchEvent, states};
use rollcall_tests::watcher_pool::{Plan, WatcherPool};
use rollcall_tests::{Host, Service, Socket, Stream, eventually};
use serde_json::json;

/// A host knows the store's time only to within a round trip.
const CLOCKS_DIFFER_MS: u64 = 50;

/// What a busy machine may add to the promised bound.
const BUSY_MS: u64 = 1000;

fn beats_taken(service: &Service) -> f64 {
    service.hosts.iter().map(|host| host.metric("rollcall_heartbeats_total")).sum()
}

#[test]
fn connected_user_is_online_without_beats() {
    Service::on_each_store(&BRISK, |service| {
        for protocol in Protocol::BOTH {
            let bob = format!("bob-{protocol:?}");
            let mut alice = protocol.watch(service.first(), "alice", &format!("{bob},{FENCE}"));
            alice.snapshot();
            let before = beats_taken(service);
            let connected = protocol.watch_as(service.last(), &bob, "device=tab&kind=mobile", &[("users", "alice")]);
            alice.presence(&bob, "online");
            // More beats than one beat lasts.
            eventually("the host beats for it", Duration::from_secs(10), || beats_taken(service) >= before + 4.0);
            assert_eq!(states(&alice.events_so_far(service.last()), &bob), Vec::<&str>::new(), "online all the time");
            drop(connected);
            alice.presence(&bob, "offline");
        }
    });
}

#[test]
fn broken_connection_lasts_exactly_the_grace() {
    Service::on_each_store(&["--interval", "6s", "--tolerance", "2s", "--grace", "1s"], |service| {
        for protocol in Protocol::BOTH {
            let bob = format!("bob-{protocol:?}");
            let mut alice = protocol.watch(service.first(), "alice", &bob);
            alice.snapshot();
            let connected = protocol.watch_as(service.last(), &bob, "device=tab", &[("users", "alice")]);
            alice.presence(&bob, "online");
            let broken = now_ms();
            drop(connected);
            let offline = alice.presence(&bob, "offline");
            let after = offline.at_ms - broken;
            assert!((1000 - CLOCKS_DIFFER_MS..=2000 + BUSY_MS).contains(&after), "{after} ms after it broke");
        }
    });
}

#[test]
fn leave_is_offline_at_once() {
    Service::on_each_store(&[], |service| {
        let mut alice = Protocol::Events.watch(service.first(), "alice", &format!("bob,{FENCE}"));
        let mut tab = Socket::open(service.last(), "bob", "device=tab");
        alice.presence("bob", "online");
        tab.send(&json!({ "op": "leave" }));
        assert_eq!(tab.ending(Duration::from_secs(5)).code(), 1000);
        alice.presence("bob", "offline");

        // The phone first, so that the online event is known to come from the phone.
        let phone = Socket::open(service.first(), "bob", "");
        alice.presence("bob", "online");
        let mut tab = Socket::open(service.last(), "bob", "device=tab");
        tab.send(&json!({ "op": "leave" }));
        assert_eq!(tab.ending(Duration::from_secs(5)).code(), 1000);
        assert_eq!(alice.events_so_far(service.last()), [], "the phone is still connected");
        drop(phone);
    });
}

#[test]
fn reload_causes_no_offline_event() {
    let arguments = ["--interval", "2s", "--tolerance", "1s", "--grace", "2500ms"];
    Service::on_both_stores_at_once(&arguments, |service| {
        let pages = Protocol::BOTH.map(|protocol| {
            let bob = format!("bob-{protocol:?}");
            let open = |host: &Host| protocol.watch_as(host, &bob, "device=tab", &[("users", "alice")]);
            let mut alice = protocol.watch(service.first(), "alice", &format!("{bob},{FENCE}"));
            alice.snapshot();
            let mut page = open(service.first());
            page.snapshot();
            alice.presence(&bob, "online");
            for turn in 0..4 {
                let host = &service.hosts[turn % service.hosts.len()];
                if turn < 2 {
                    // The new connection is open before the old one breaks.
                    let mut fresh = open(host);
                    fresh.snapshot();
                    drop(std::mem::replace(&mut page, fresh));
                } else {
                    drop(page);
                    page = open(host);
                    page.snapshot();
                }
            }
            (bob, alice, page)
        });
        // Longer than any grace that began above.
        let reloaded = now_ms();
        eventually("every grace has ended", Duration::from_secs(5), || now_ms() > reloaded + 3200);
        for (bob, mut alice, page) in pages {
            assert_eq!(alice.events_so_far(service.last()), [], "a reload causes no event");
            drop(page);
            alice.presence(&bob, "offline");
        }
    });
}

#[test]
fn watch_only_connection_is_not_online() {
    let host = Host::start(&[]);
    let mut alice = Protocol::Events.watch(&host, "alice", &format!("bob,{FENCE}"));
    alice.snapshot();
    let _stream = Stream::subscribe(&host, "bob", "users=alice&watch_only=true");
    let mut socket = Socket::open(&host, "bob", "watch_only=true");
    let refusal = socket.refused(&json!({ "op": "beat" }));
    assert_eq!(refusal["status"], 403, "{refusal}");
    assert_eq!(alice.events_so_far(&host), []);
    assert_eq!(host.client("alice").state("bob"), "offline");
    host.stop();
}

#[test]
fn activity_brings_idle_user_back() {
    Service::on_each_store(&["--idle-after", "400ms"], |service| {
        let mut alice = Protocol::Socket.watch(service.first(), "alice", &format!("bob,{FENCE}"));
        let mut bob = Socket::open(service.last(), "bob", "");
        alice.presence("bob", "online");
        alice.presence("bob", "away");
        bob.done(&json!({ "op": "beat", "active": false }));
        assert_eq!(alice.events_so_far(service.last()), [], "alive, and still idle");
        bob.done(&json!({ "op": "beat", "active": true }));
        alice.presence("bob", "online");
        alice.presence("bob", "away");
        bob.send(&json!({ "op": "beat" }));
        alice.presence("bob", "online");
    });
}

#[test]
fn automatic_reconnect_keeps_idleness() {
    Service::on_each_store(&["--idle-after", "400ms"], |service| {
        for protocol in Protocol::BOTH {
            let bob = format!("bob-{protocol:?}");
            let mut alice = protocol.watch(service.first(), "alice", &format!("{bob},{FENCE}"));
            let mut tab = protocol.watch_as(service.last(), &bob, "device=tab", &[("users", "alice")]);
            tab.snapshot();
            alice.presence(&bob, "online");
            alice.presence(&bob, "away");
            let since = tab.last_id().unwrap();
            drop(tab);
            // A browser reopens an event stream by itself, so a resumed one is no activity; a socket says so itself.
            let how = match protocol {
                Protocol::Events => format!("device=tab&since={since}"),
                Protocol::Socket => "device=tab&active=false".to_owned(),
            };
            let mut tab = protocol.watch_as(service.first(), &bob, &how, &[("users", "alice")]);
            tab.snapshot();
            assert_eq!(
                states(&alice.events_so_far(service.last()), &bob),
                Vec::<&str>::new(),
                "the reconnect causes no event"
            );
            let _tab = protocol.watch_as(service.first(), &bob, "device=tab&active=true", &[("users", "alice")]);
            alice.presence(&bob, "online");
        }
    });
}

#[test]
fn open_connection_is_not_activity() {
    let host = Host::start(&["--interval", "500ms", "--tolerance", "500ms", "--idle-after", "1s"]);
    let mut alice = Protocol::Events.watch(&host, "alice", &format!("bob,{FENCE}"));
    let _bob = Socket::open(&host, "bob", "");
    alice.presence("bob", "online");
    let before = host.metric("rollcall_heartbeats_total");
    alice.presence("bob", "away");
    eventually("the host beats for it", Duration::from_secs(10), || {
        host.metric("rollcall_heartbeats_total") >= before + 4.0
    });
    let events: Vec<WatchEvent> = alice.events_so_far(&host);
    assert_eq!(states(&events, "bob"), Vec::<&str>::new(), "the host's own beats are no activity");
    host.stop();
}

#[test]
fn leave_wins_over_earlier_messages() {
    Service::on_each_store(&[], |service| {
        let users: Vec<String> = (0..40).map(|index| format!("h{index}")).collect();
        for user in &users {
            let mut socket = Socket::open(service.first(), user, "device=tab");
            for _ in 0..10 {
                socket.send(&json!({ "op": "beat" }));
            }
            socket.send(&json!({ "op": "leave" }));
            assert_eq!(socket.ending(Duration::from_secs(5)).code(), 1000);
        }
        all_are_gone(service, &users);
    });
}

/// Waits until all of these are offline, sooner than any device would expire.
fn all_are_gone(service: &Service, users: &[String]) {
    let viewer = service.last().client("viewer");
    eventually("all users are offline", Duration::from_secs(3), || {
        let presences = viewer.post("/v1/presence", json!({ "users": users })).json["presences"].clone();
        presences.as_array().unwrap().iter().all(|presence| presence["state"] == "offline")
    });
}

#[test]
fn connect_and_leave_at_once_ends_offline() {
    Service::on_each_store(&[], |service| {
        let users: Vec<String> = (0..300).map(|index| format!("g{index}")).collect();
        let plan = Plan {
            protocol: Protocol::Socket,
            address: service.first().address().parse().unwrap(),
            reconnect_to: None,
            paths: users.iter().map(|user| format!("/v1/socket?device=tab&as={user}")).collect(),
            messages: vec![r#"{"op":"leave"}"#.to_owned(); users.len()],
        };
        let pool = WatcherPool::start(plan);
        pool.until("all connections have closed", Duration::from_secs(20), |received| {
            received.closed.len() == users.len()
        });
        assert!(pool.received().closed.iter().all(|closed| closed.code == Some(1000)));
        all_are_gone(service, &users);
    });
}
