//! Typing, end to end: watchers of the conversation get it and the typist does not; it ends on request or by expiry, and
//! bursts are conflated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use rollcall_tests::history::now_ms;
use rollcall_tests::watcher::{EventQueue, FENCE, Protocol, WatchEvent};
use rollcall_tests::{Host, Service, Socket, eventually};
use serde_json::{Value, json};

/// An event takes milliseconds, or a second if it is delayed; a busy machine gets more.
const DELIVERY: Duration = Duration::from_secs(5);

/// Watches a conversation and the fence.
fn listen(protocol: Protocol, host: &Host, viewer: &str, conversation: &str) -> rollcall_tests::watcher::Watcher {
    let watched = [("users", FENCE), ("conversations", conversation)];
    let mut watcher = protocol.watch_as(host, viewer, "watch_only=true", &watched);
    let snapshot = watcher.snapshot();
    assert_eq!(snapshot["typing"], json!([]), "{snapshot}");
    watcher
}

/// Waits for the event that a user types, or stopped.
fn until(events: &mut EventQueue, user: &str, typing: bool) -> WatchEvent {
    let wanted =
        |event: &WatchEvent| event.event == "typing" && event.data["user"] == user && event.data["typing"] == typing;
    events.until(&format!("{user} types: {typing}"), DELIVERY, wanted).pop().unwrap()
}

fn put(host: &Host, user: &str, conversation: &str) -> Value {
    let answer = host.client(user).send("PUT", &format!("/v1/typing/{conversation}"), None);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

fn delete(host: &Host, user: &str, conversation: &str) -> Value {
    let answer = host.client(user).send("DELETE", &format!("/v1/typing/{conversation}"), None);
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json
}

fn typists(host: &Host, viewer: &str, conversation: &str) -> Vec<String> {
    let answer = host.client(viewer).get(&format!("/v1/typing/{conversation}"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json["conversation"], conversation);
    let typists = answer.json["typists"].as_array().unwrap().iter();
    typists.map(|typist| typist["user"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn typing_reaches_other_participants_until_stopped() {
    Service::on_each_store(&["--typing-ttl", "30s"], |service| {
        for protocol in Protocol::BOTH {
            let room = format!("room-{protocol:?}");
            let mut alice = listen(protocol, service.first(), "alice", &room);
            let mut bob = Socket::open(service.last(), "bob", "");
            bob.ask(&json!({ "op": "watch", "users": [FENCE], "conversations": [room] }));
            let before = now_ms();
            bob.done(&json!({ "op": "typing", "conversation": room, "typing": true }));
            let event = until(&mut alice, "bob", true);
            assert_eq!(event.data["conversation"], room.as_str());
            let until_ms = event.data["until"].as_u64().unwrap();
            assert!((29_900..=31_000).contains(&(until_ms - before)), "{until_ms}, {} ms from then", until_ms - before);
            assert!(event.id.is_some());

            let newcomer = protocol.listen(service.first(), "carol", &room).snapshot();
            assert_eq!(newcomer["typing"], json!([event.data]), "a later watcher sees it in the snapshot");
            assert_eq!(typists(service.first(), "alice", &room), ["bob"]);
            assert_eq!(
                typists(service.first(), "bob", &room),
                Vec::<String>::new(),
                "a user gets no typing events about themselves"
            );

            bob.done(&json!({ "op": "typing", "conversation": room, "typing": false }));
            assert_eq!(until(&mut alice, "bob", false).data["until"], Value::Null);
            assert_eq!(typists(service.first(), "alice", &room), Vec::<String>::new());
            assert_eq!(bob.events_so_far(service.last()), [], "a user gets no typing events about themselves");
        }
    });
}

#[test]
fn typing_over_http_reaches_watchers() {
    Service::on_each_store(&["--typing-ttl", "30s"], |service| {
        let mut watchers = Protocol::BOTH.map(|protocol| listen(protocol, service.first(), "alice", "c1"));
        let answer = put(service.last(), "bob", "c1");
        let expected = json!({ "conversation": "c1", "user": "bob", "typing": true, "ttl_ms": 30_000 });
        assert_eq!(answer, expected);
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "bob", true)));
        put(service.last(), "carol", "c1");
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "carol", true)));
        assert_eq!(typists(service.first(), "alice", "c1"), ["bob", "carol"]);
        assert_eq!(delete(service.last(), "bob", "c1")["typing"], false);
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "bob", false)));
        assert_eq!(typists(service.first(), "alice", "c1"), ["carol"]);
        let set = service.last().client("backend").put("/v1/typing/c1", json!({ "user": "dave" }));
        assert_eq!((set.status, &set.json["user"]), (200, &json!("dave")), "{}", set.text);
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "dave", true)));
        let long = "x".repeat(129);
        let answer = service.first().client("bob").send("PUT", &format!("/v1/typing/{long}"), None);
        assert_eq!((answer.status, &answer.json["field"]), (400, &json!("conversation")), "{}", answer.text);
    });
}

#[test]
fn typing_signal_expires_on_its_own() {
    Service::on_each_store(&["--typing-ttl", "1s"], |service| {
        for protocol in Protocol::BOTH {
            let room = format!("room-{protocol:?}");
            let mut alice = listen(protocol, service.first(), "alice", &room);
            put(service.last(), "bob", &room);
            let ends = until(&mut alice, "bob", true).data["until"].as_u64().unwrap();
            let event = until(&mut alice, "bob", false);
            assert!(event.at_ms + 50 >= ends, "{} ms too early", ends.saturating_sub(event.at_ms));
            assert_eq!(typists(service.first(), "alice", &room), Vec::<String>::new());
            assert_eq!(alice.events_so_far(service.last()), [], "one stop event");

            let mut bob = Socket::open(service.last(), "bob", "");
            bob.done(&json!({ "op": "typing", "conversation": room, "typing": true }));
            until(&mut alice, "bob", true);
            drop(bob);
            until(&mut alice, "bob", false);
        }
    });
}

#[test]
fn continued_typing_is_extended_until_stopped() {
    Service::on_each_store(&["--typing-ttl", "2s"], |service| {
        let mut watchers = Protocol::BOTH.map(|protocol| listen(protocol, service.first(), "alice", "c1"));
        let began = now_ms();
        let mut updates = 0;
        eventually("bob typed for longer than a signal lasts", Duration::from_secs(10), || {
            updates += 1;
            put(service.last(), "bob", "c1");
            now_ms() > began + 3500
        });
        // Read from both before either waits for the stop, which would otherwise be among the events of the second.
        let received = watchers.each_mut().map(|alice| alice.events_so_far(service.last()));
        for (alice, events) in watchers.iter_mut().zip(received) {
            assert!(events.iter().all(|event| event.data["typing"] == true), "no pause: {events:#?}");
            let ends: Vec<u64> = events.iter().map(|event| event.data["until"].as_u64().unwrap()).collect();
            assert!(ends.len() >= 2 && ends.is_sorted_by(|one, other| one < other), "each ends later: {ends:?}");
            assert!(ends.len() <= 5, "{updates} updates in 3.5 s give at most one event per second: {ends:?}");
            let stopped = until(alice, "bob", false);
            assert!(stopped.at_ms + 50 >= *ends.last().unwrap(), "stopped before the last signal ended");
        }
    });
}

#[test]
fn typing_bursts_are_conflated_to_the_last() {
    Service::on_each_store(&["--typing-ttl", "30s"], |service| {
        let rooms = [true, false].map(|last| {
            let room = format!("room-{last}");
            let watchers = Protocol::BOTH.map(|protocol| listen(protocol, service.first(), "alice", &room));
            let mut bob = Socket::open(service.last(), "bob", "");
            let began = now_ms();
            for turn in 0..20 {
                let typing = (turn % 2 == 0) ^ last;
                bob.done(&json!({ "op": "typing", "conversation": room, "typing": typing }));
            }
            (room, last, watchers, (now_ms() - began) as usize / 1000 + 2)
        });
        // A delayed update is sent within a second.
        let sent = now_ms();
        eventually("delayed updates are sent", Duration::from_secs(5), || now_ms() > sent + 1500);
        for (room, last, watchers, most) in rooms {
            for mut alice in watchers {
                let events = alice.events_so_far(service.last());
                assert!((1..=most).contains(&events.len()), "at most {most}: {events:#?}");
                assert_eq!(events.last().unwrap().data["typing"], last, "{events:#?}");
            }
            assert_eq!(typists(service.first(), "alice", &room).is_empty(), !last);
        }
    });
}

#[test]
fn typing_is_not_presence() {
    Service::on_each_store(&[], |service| {
        let mut alice = Protocol::Events.watch(service.first(), "alice", &format!("bob,{FENCE}"));
        alice.snapshot();
        put(service.last(), "bob", "c1");
        assert_eq!(alice.events_so_far(service.last()), []);
        assert_eq!(service.first().client("alice").state("bob"), "offline");
    });
}

#[test]
fn typing_of_invisible_user_is_hidden() {
    Service::on_each_store(&["--typing-ttl", "30s"], |service| {
        let bob = service.last().client("bob");
        assert_eq!(bob.beat("web").status, 200);
        let mut watchers = Protocol::BOTH.map(|protocol| listen(protocol, service.first(), "alice", "c1"));
        assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
        assert_eq!(put(service.last(), "bob", "c1")["typing"], true, "bob gets the usual answer");
        let mut socket = Socket::open(service.last(), "bob", "");
        socket.done(&json!({ "op": "typing", "conversation": "c1", "typing": true }));
        for watcher in &mut watchers {
            assert_eq!(watcher.events_so_far(service.last()), []);
        }
        assert_eq!(typists(service.first(), "alice", "c1"), Vec::<String>::new());
        assert_eq!(bob.put("/v1/status", json!({ "choice": "auto" })).status, 200);
        put(service.last(), "bob", "c1");
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "bob", true)));
        assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
        put(service.last(), "bob", "c1");
        watchers.iter_mut().for_each(|watcher| drop(until(watcher, "bob", false)));
    });
}
