//! A live connection is a heartbeat: whoever is connected is here, whoever leaves is gone, and whoever breaks off or reloads
//! has time to come back.

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
use rollcall_tests::watcher::{FENCE, Transport, WatchEvent, states};
use rollcall_tests::watcher_pool::{Plan, WatcherPool};
use rollcall_tests::{Host, Service, Socket, Stream, eventually};
use serde_json::json;

/// A host knows the time of the store no better than a round trip allows.
const CLOCKS_DIFFER_MS: u64 = 50;

/// What a busy machine may add to what is promised of an idle one.
const BUSY_MS: u64 = 1000;

fn beats_taken(service: &Service) -> f64 {
    service.hosts.iter().map(|host| host.metric("rollcall_heartbeats_total")).sum()
}

#[test]
fn who_is_connected_is_here_without_beating() {
    Service::everywhere(&BRISK, |service| {
        for transport in Transport::BOTH {
            let bob = format!("bob-{transport:?}");
            let mut alice = transport.watch(service.here(), "alice", &format!("{bob},{FENCE}"));
            alice.snapshot();
            let before = beats_taken(service);
            let connected = transport.watch_as(service.there(), &bob, "device=tab&kind=mobile", &[("users", "alice")]);
            alice.presence(&bob, "online");
            // As many as no single beat outlives.
            eventually("the host beats for it", Duration::from_secs(10), || beats_taken(service) >= before + 4.0);
            assert_eq!(states(&alice.up_to_now(service.there()), &bob), Vec::<&str>::new(), "here all the time");
            drop(connected);
            alice.presence(&bob, "offline");
        }
    });
}

#[test]
fn a_broken_connection_is_forgiven_for_the_grace_and_no_longer() {
    Service::everywhere(&["--interval", "6s", "--tolerance", "2s", "--grace", "1s"], |service| {
        for transport in Transport::BOTH {
            let bob = format!("bob-{transport:?}");
            let mut alice = transport.watch(service.here(), "alice", &bob);
            alice.snapshot();
            let connected = transport.watch_as(service.there(), &bob, "device=tab", &[("users", "alice")]);
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
fn whoever_says_goodbye_is_gone_at_once() {
    Service::everywhere(&[], |service| {
        let mut alice = Transport::Events.watch(service.here(), "alice", &format!("bob,{FENCE}"));
        let mut tab = Socket::open(service.there(), "bob", "device=tab");
        alice.presence("bob", "online");
        tab.send(&json!({ "op": "leave" }));
        assert_eq!(tab.ending(Duration::from_secs(5)).code(), 1000);
        alice.presence("bob", "offline");

        // The phone first: whoever is told that Bob is here then knows that it is the phone that keeps him so.
        let phone = Socket::open(service.here(), "bob", "");
        alice.presence("bob", "online");
        let mut tab = Socket::open(service.there(), "bob", "device=tab");
        tab.send(&json!({ "op": "leave" }));
        assert_eq!(tab.ending(Duration::from_secs(5)).code(), 1000);
        assert_eq!(alice.up_to_now(service.there()), [], "the phone is still here");
        drop(phone);
    });
}

#[test]
fn a_reload_never_flickers() {
    let arguments = ["--interval", "2s", "--tolerance", "1s", "--grace", "2500ms"];
    Service::everywhere(&arguments, |service| {
        for transport in Transport::BOTH {
            let bob = format!("bob-{transport:?}");
            let open = |host: &Host| transport.watch_as(host, &bob, "device=tab", &[("users", "alice")]);
            let mut alice = transport.watch(service.here(), "alice", &format!("{bob},{FENCE}"));
            alice.snapshot();
            let mut page = open(service.here());
            page.snapshot();
            alice.presence(&bob, "online");
            for turn in 0..4 {
                let host = &service.hosts[turn % service.hosts.len()];
                if turn < 2 {
                    // The new connection is there before the old one is known to be broken.
                    let mut fresh = open(host);
                    fresh.snapshot();
                    drop(std::mem::replace(&mut page, fresh));
                } else {
                    drop(page);
                    page = open(host);
                    page.snapshot();
                }
            }
            // Longer than any grace that was begun above.
            let reloaded = now_ms();
            eventually("every grace has ended", Duration::from_secs(5), || now_ms() > reloaded + 3200);
            assert_eq!(alice.up_to_now(service.there()), [], "nobody noticed");
            drop(page);
            alice.presence(&bob, "offline");
        }
    });
}

#[test]
fn who_only_watches_is_not_here() {
    let host = Host::start(&[]);
    let mut alice = Transport::Events.watch(&host, "alice", &format!("bob,{FENCE}"));
    alice.snapshot();
    let _stream = Stream::subscribe(&host, "bob", "users=alice&watch_only=true");
    let mut socket = Socket::open(&host, "bob", "watch_only=true");
    let refusal = socket.refused(&json!({ "op": "beat" }));
    assert_eq!(refusal["status"], 403, "{refusal}");
    assert_eq!(alice.up_to_now(&host), []);
    assert_eq!(host.client("alice").state("bob"), "offline");
    host.stop();
}

#[test]
fn activity_brings_back_whoever_is_idle() {
    Service::everywhere(&["--idle-after", "400ms"], |service| {
        let mut alice = Transport::Socket.watch(service.here(), "alice", &format!("bob,{FENCE}"));
        let mut bob = Socket::open(service.there(), "bob", "");
        alice.presence("bob", "online");
        alice.presence("bob", "away");
        bob.done(&json!({ "op": "beat", "active": false }));
        assert_eq!(alice.up_to_now(service.there()), [], "alive, and still idle");
        bob.done(&json!({ "op": "beat", "active": true }));
        alice.presence("bob", "online");
        alice.presence("bob", "away");
        bob.send(&json!({ "op": "beat" }));
        alice.presence("bob", "online");
    });
}

#[test]
fn whoever_comes_back_by_itself_is_as_idle_as_before() {
    Service::everywhere(&["--idle-after", "400ms"], |service| {
        for transport in Transport::BOTH {
            let bob = format!("bob-{transport:?}");
            let mut alice = transport.watch(service.here(), "alice", &format!("{bob},{FENCE}"));
            let mut tab = transport.watch_as(service.there(), &bob, "device=tab", &[("users", "alice")]);
            tab.snapshot();
            alice.presence(&bob, "online");
            alice.presence(&bob, "away");
            let since = tab.last_id().unwrap();
            drop(tab);
            // A stream that resumes was opened by a browser and not by a person; a socket says which it was.
            let how = match transport {
                Transport::Events => format!("device=tab&since={since}"),
                Transport::Socket => "device=tab&active=false".to_owned(),
            };
            let mut tab = transport.watch_as(service.here(), &bob, &how, &[("users", "alice")]);
            tab.snapshot();
            assert_eq!(states(&alice.up_to_now(service.there()), &bob), Vec::<&str>::new(), "nobody noticed");
            let _tab = transport.watch_as(service.here(), &bob, "device=tab&active=true", &[("users", "alice")]);
            alice.presence(&bob, "online");
        }
    });
}

#[test]
fn a_connection_alone_does_not_keep_anybody_active() {
    let host = Host::start(&["--interval", "500ms", "--tolerance", "500ms", "--idle-after", "1s"]);
    let mut alice = Transport::Events.watch(&host, "alice", &format!("bob,{FENCE}"));
    let _bob = Socket::open(&host, "bob", "");
    alice.presence("bob", "online");
    let before = host.metric("rollcall_heartbeats_total");
    alice.presence("bob", "away");
    eventually("the host beats for it", Duration::from_secs(10), || {
        host.metric("rollcall_heartbeats_total") >= before + 4.0
    });
    let told: Vec<WatchEvent> = alice.up_to_now(&host);
    assert_eq!(states(&told, "bob"), Vec::<&str>::new(), "a beat of the host is not a use of the device");
    host.stop();
}

#[test]
fn a_farewell_is_the_last_word_however_much_was_said_before() {
    Service::everywhere(&[], |service| {
        let users: Vec<String> = (0..40).map(|index| format!("h{index}")).collect();
        for user in &users {
            let mut socket = Socket::open(service.here(), user, "device=tab");
            for _ in 0..10 {
                socket.send(&json!({ "op": "beat" }));
            }
            socket.send(&json!({ "op": "leave" }));
            assert_eq!(socket.ending(Duration::from_secs(5)).code(), 1000);
        }
        all_are_gone(service, &users);
    });
}

/// Waits until all of these are gone, which no device is by itself so soon.
fn all_are_gone(service: &Service, users: &[String]) {
    let viewer = service.there().client("viewer");
    eventually("everybody is gone", Duration::from_secs(3), || {
        let presences = viewer.post("/v1/presence", json!({ "users": users })).json["presences"].clone();
        presences.as_array().unwrap().iter().all(|presence| presence["state"] == "offline")
    });
}

#[test]
fn whoever_comes_and_goes_at_once_is_gone() {
    Service::everywhere(&[], |service| {
        let users: Vec<String> = (0..300).map(|index| format!("g{index}")).collect();
        let plan = Plan {
            transport: Transport::Socket,
            address: service.here().address().parse().unwrap(),
            rejoin: None,
            paths: users.iter().map(|user| format!("/v1/socket?device=tab&as={user}")).collect(),
            messages: vec![r#"{"op":"leave"}"#.to_owned(); users.len()],
        };
        let pool = WatcherPool::launch(plan);
        pool.until("everybody has left", Duration::from_secs(20), |tally| tally.farewells.len() == users.len());
        assert!(pool.tally().farewells.iter().all(|farewell| farewell.code == Some(1000)));
        all_are_gone(service, &users);
    });
}
