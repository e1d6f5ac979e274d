//! Watching while policy changes: the watcher receives at once that a subject is hidden, gets nothing more about them,
//! and gets their current state as soon as they are visible again, even if they did nothing meanwhile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rollcall_tests::visibility_matrix::{Relation, VIEWER, leave};
use rollcall_tests::watcher::{DELIVERY, EventQueue, FENCE, Protocol, WatchEvent, Watcher, states};
use rollcall_tests::{Client, Host, Service, Socket, Stream, TokenIssuer, eventually};
use serde_json::{Value, json};

/// With one policy instance per worker, one for all, none in memory, with crowds, and from host to host.
fn on_each_setup(claim: impl Fn(&Service)) {
    let setups: [fn() -> Service; 5] = [
        || Service::embedded(&["--workers", "4", "--typing-ttl", "30s"]),
        || Service::embedded(&["--workers", "4", "--policy-instances", "1", "--typing-ttl", "30s"]),
        || Service::embedded(&["--workers", "2", "--policy-memory", "0", "--typing-ttl", "30s"]),
        // Every user is a crowd: events are delayed a little, and visibility is decided when they are sent.
        || Service::embedded(&["--workers", "2", "--crowd", "1", "--crowd-interval", "200ms", "--typing-ttl", "30s"]),
        || Service::redis(&["--workers", "2", "--typing-ttl", "30s"]),
    ];
    for setup in setups {
        let service = setup();
        claim(&service);
        service.stop();
    }
}

fn beat(host: &Host, user: &str) {
    let beaten = host.client(user).beat("web");
    assert_eq!(beaten.status, 200, "{}", beaten.text);
}

fn choose(host: &Host, user: &str, choice: &str) {
    let chosen = host.client(user).put("/v1/status", json!({ "choice": choice, "text": "a note" }));
    assert_eq!(chosen.status, 200, "{}", chosen.text);
}

/// Two watchers per protocol, most likely on more than one worker.
fn watch(host: &Host, user: &str) -> Vec<Watcher> {
    let watch = |protocol: Protocol| {
        let mut watcher = protocol.watch(host, VIEWER, &format!("{user},{FENCE}"));
        let snapshot = watcher.snapshot();
        assert_eq!(snapshot["presences"][0]["state"], "online", "{snapshot}");
        watcher
    };
    Protocol::BOTH.into_iter().cycle().take(4).map(watch).collect()
}

/// The data of the next presence event about a user.
fn next_of(events: &mut EventQueue, user: &str) -> Value {
    events.until(&format!("an event about {user}"), DELIVERY, |event| event.is_of(user)).pop().unwrap().data
}

/// Waits for a presence event that shows the user's state, or that hides it.
fn until_seen(events: &mut EventQueue, user: &str, is_seen: bool) {
    let what = format!("{user} is {}", if is_seen { "seen" } else { "hidden" });
    events.until(&what, DELIVERY, |event| event.is_of(user) && event.data["state"].is_null() != is_seen);
}

fn hidden(user: &str) -> Value {
    json!({ "user": user, "state": null, "since": null, "last_seen": null, "version": null, "note": null })
}

/// A presence without what a beat moves.
fn lasting(mut presence: Value) -> Value {
    presence.as_object_mut().unwrap().remove("last_seen");
    presence
}

#[test]
fn watcher_losing_visibility_gets_hidden_then_silence() {
    on_each_setup(|service| {
        for relation in Relation::hiding() {
            let bob = format!("bob-{relation:?}");
            beat(service.last(), &bob);
            let mut watchers = watch(service.first(), &bob);
            relation.apply(service.last(), &bob);
            for alice in &mut watchers {
                assert_eq!(next_of(alice, &bob), hidden(&bob), "{relation:?}, though the subject did nothing");
            }
            assert_eq!(service.first().client(VIEWER).presence(&bob), hidden(&bob), "{relation:?}");
            choose(service.last(), &bob, "busy");
            leave(service.last(), &bob);
            beat(service.last(), &bob);
            choose(service.last(), &bob, "away");
            for alice in &mut watchers {
                assert_eq!(alice.events_so_far(service.last()), [], "{relation:?}");
            }
            relation.revoke(service.last(), &bob);
            for alice in &mut watchers {
                let back = next_of(alice, &bob);
                assert_eq!((&back["state"], &back["note"]["text"]), (&json!("away"), &json!("a note")), "{relation:?}");
                assert_eq!(lasting(back), lasting(service.first().client(VIEWER).presence(&bob)), "{relation:?}");
            }
            choose(service.last(), &bob, "auto");
            for alice in &mut watchers {
                assert_eq!(next_of(alice, &bob)["state"], "online", "{relation:?}");
                assert_eq!(alice.events_so_far(service.last()), [], "{relation:?}: once");
            }
        }
    });
}

#[test]
fn early_watcher_sees_subject_once_visible() {
    on_each_setup(|service| {
        for relation in Relation::hiding() {
            let bob = format!("bob-{relation:?}");
            relation.apply(service.first(), &bob);
            beat(service.last(), &bob);
            let mut watchers = Protocol::BOTH.map(|protocol| {
                let mut watcher = protocol.watch(service.first(), VIEWER, &format!("{bob},{FENCE}"));
                assert_eq!(watcher.snapshot()["presences"][0], hidden(&bob));
                watcher
            });
            relation.revoke(service.last(), &bob);
            for alice in &mut watchers {
                assert_eq!(next_of(alice, &bob)["state"], "online", "{relation:?}");
            }
        }
    });
}

#[test]
fn block_hides_both_sides_but_never_oneself() {
    on_each_setup(|service| {
        let watch = |viewer: &str, users: &str, protocol: Protocol| {
            let mut watcher = protocol.watch(service.first(), viewer, &format!("{users},{FENCE}"));
            assert_eq!(watcher.snapshot()["presences"][0]["state"], "online");
            watcher
        };
        for (protocol, bob) in Protocol::BOTH.into_iter().zip(["bob", "ben"]) {
            beat(service.last(), VIEWER);
            beat(service.last(), bob);
            let mut alice_watches = watch(VIEWER, bob, protocol);
            let mut bob_watches = watch(bob, VIEWER, protocol);
            let mut own = [watch(bob, bob, protocol), watch(VIEWER, VIEWER, protocol)];
            let blocker = service.last().client(bob);
            blocker.block(VIEWER);
            assert_eq!(next_of(&mut alice_watches, bob), hidden(bob));
            assert_eq!(next_of(&mut bob_watches, VIEWER), hidden(VIEWER));
            // Each blocked the other: lifting one block is not enough.
            service.last().client(VIEWER).block(bob);
            blocker.unblock(VIEWER);
            assert_eq!(alice_watches.events_so_far(service.last()), []);
            assert_eq!(bob_watches.events_so_far(service.last()), []);
            service.last().client(VIEWER).unblock(bob);
            assert_eq!(next_of(&mut alice_watches, bob)["state"], "online");
            assert_eq!(next_of(&mut bob_watches, VIEWER)["state"], "online");
            service.last().client("admin").restrict(bob);
            assert_eq!(next_of(&mut alice_watches, bob), hidden(bob));
            service.last().client("admin").unrestrict(bob);
            for own in &mut own {
                assert_eq!(own.events_so_far(service.last()), [], "policy for others causes no event about oneself");
            }
        }
    });
}

/// Resumes from an event id; returns the presence of the user.
fn resume(protocol: Protocol, host: &Host, user: &str, since: &str) -> Value {
    let snapshot = match protocol {
        Protocol::Events => {
            let headers = [("Rollcall-User", VIEWER), ("Last-Event-ID", since)];
            let path = format!("/v1/subscribe?watch_only=true&users={user},{FENCE}");
            Stream::get(host.address(), &path, &headers).unwrap().snapshot()
        }
        Protocol::Socket => {
            let mut socket = Socket::open(host, VIEWER, "watch_only=true");
            socket.ask(&json!({ "op": "watch", "users": [user, FENCE], "since": since })).data
        }
    };
    assert_eq!(snapshot["resumed"], false, "a change of visibility sends everything");
    snapshot["presences"].as_array().unwrap().iter().find(|presence| presence["user"] == user).cloned().unwrap()
}

#[test]
fn resuming_watcher_learns_of_policy_change() {
    on_each_setup(|service| {
        for relation in Relation::hiding() {
            for protocol in Protocol::BOTH {
                let bob = format!("bob-{relation:?}-{protocol:?}");
                beat(service.last(), &bob);
                let watch = || {
                    let mut watcher = protocol.watch(service.first(), VIEWER, &format!("{bob},{FENCE}"));
                    (watcher.snapshot()["presences"][0]["state"].clone(), watcher.last_id().unwrap())
                };
                let (state, seen) = watch();
                assert_eq!(state, "online");
                relation.apply(service.first(), &bob);
                assert_eq!(
                    resume(protocol, service.first(), &bob, &seen),
                    hidden(&bob),
                    "{relation:?} by {protocol:?}"
                );
                let (state, unseen) = watch();
                assert_eq!(state, Value::Null);
                // An id far in the future: the subject shown again did not change since.
                let unseen = unseen.split_once('-').map(|(_, digest)| format!("{}-{digest}", u64::MAX)).unwrap();
                relation.revoke(service.first(), &bob);
                let back = resume(protocol, service.first(), &bob, &unseen);
                assert_eq!(back["state"], "online", "{relation:?} by {protocol:?}");
            }
        }
    });
}

#[test]
fn contacts_gain_and_lose_visibility() {
    on_each_setup(|service| {
        let bob = service.last().client("bob");
        beat(service.last(), "bob");
        let mut watchers = watch(service.first(), "bob");
        let mut all_get = |expected: Value| {
            watchers.iter_mut().for_each(|alice| assert_eq!(next_of(alice, "bob")["state"], expected));
        };
        bob.set_privacy("contacts", "everyone");
        all_get(Value::Null);
        for _ in 0..3 {
            bob.add_contact(VIEWER);
            all_get(json!("online"));
            bob.remove_contact(VIEWER);
            all_get(Value::Null);
        }
        bob.set_privacy("everyone", "everyone");
        all_get(json!("online"));
        bob.add_contact(VIEWER);
        bob.remove_contact(VIEWER);
        bob.block("somebody-else");
        bob.set_privacy("everyone", "everyone");
        for alice in &mut watchers {
            assert_eq!(
                alice.events_so_far(service.last()),
                [],
                "a change without effect for the viewer causes no event"
            );
        }
    });
}

#[test]
fn last_seen_is_hidden_and_shown_again() {
    on_each_setup(|service| {
        let bob = service.last().client("bob");
        beat(service.last(), "bob");
        let mut watchers = watch(service.first(), "bob");
        leave(service.last(), "bob");
        let mut known = Value::Null;
        for alice in &mut watchers {
            known = next_of(alice, "bob");
            assert!(known["last_seen"].is_u64() && known["since"].is_u64(), "{known}");
        }
        bob.set_privacy("everyone", "nobody");
        let timeless = json!({ "user": "bob", "state": "offline", "since": null, "last_seen": null, "version": 0,
            "note": null });
        for alice in &mut watchers {
            assert_eq!(next_of(alice, "bob"), timeless);
        }
        beat(service.last(), "bob");
        for alice in &mut watchers {
            let online = next_of(alice, "bob");
            assert_eq!((&online["state"], &online["last_seen"]), (&json!("online"), &Value::Null), "{online}");
        }
        leave(service.last(), "bob");
        for alice in &mut watchers {
            assert_eq!(next_of(alice, "bob"), timeless);
        }
        bob.set_privacy("everyone", "everyone");
        for alice in &mut watchers {
            let shown = next_of(alice, "bob");
            assert!(shown["last_seen"].as_u64() > known["last_seen"].as_u64(), "{shown} is later than {known}");
            assert_eq!(shown["since"], shown["last_seen"]);
        }
    });
}

#[test]
fn offline_note_update_with_new_end_is_pushed() {
    Service::on_each_store(&[], |service| {
        for (bob, last_seen) in [("bob", "everyone"), ("ben", "nobody")] {
            service.first().client(bob).set_privacy("everyone", last_seen);
            let mut alice = Protocol::Events.watch(service.first(), VIEWER, bob);
            alice.snapshot();
            for seconds in [100, 5000] {
                let wish = json!({ "choice": "auto", "text": "lunch", "for_s": seconds });
                let until = service.last().client(bob).put("/v1/status", wish).json["until"].clone();
                assert!(until.is_u64());
                assert_eq!(next_of(&mut alice, bob)["note"]["until"], until, "{bob}");
            }
        }
    });
}

/// Waits for the event that a user types, or stopped.
fn typing(events: &mut EventQueue, user: &str, typing: bool) {
    let wanted =
        |event: &WatchEvent| event.event == "typing" && event.data["user"] == user && event.data["typing"] == typing;
    events.until(&format!("{user} types: {typing}"), DELIVERY, wanted);
}

#[test]
fn typing_follows_visibility() {
    on_each_setup(|service| {
        for relation in Relation::hiding() {
            let (bob, room) = (format!("bob-{relation:?}"), format!("room-{relation:?}"));
            beat(service.last(), &bob);
            let typing_update = || {
                let answer = service.last().client(&bob).send("PUT", &format!("/v1/typing/{room}"), None);
                assert_eq!(answer.status, 200, "{}", answer.text);
            };
            let mut watchers = Protocol::BOTH.map(|protocol| {
                let watched = [("users", FENCE), ("conversations", &*room)];
                let mut watcher = protocol.watch_as(service.first(), VIEWER, "watch_only=true", &watched);
                watcher.snapshot();
                watcher
            });
            typing_update();
            watchers.iter_mut().for_each(|alice| typing(alice, &bob, true));
            relation.apply(service.last(), &bob);
            watchers.iter_mut().for_each(|alice| typing(alice, &bob, false));
            typing_update();
            for alice in &mut watchers {
                assert_eq!(alice.events_so_far(service.last()), [], "{relation:?}");
            }
            let typists = service.first().client(VIEWER).get(&format!("/v1/typing/{room}"));
            assert_eq!(typists.json["typists"], json!([]), "{relation:?}");
            relation.revoke(service.last(), &bob);
            watchers.iter_mut().for_each(|alice| typing(alice, &bob, true));
        }
    });
}

/// Runs `claim` while a user changes their status as fast as possible. Returns how often.
fn while_flipping<T>(host: &Host, user: &str, claim: impl FnOnce() -> T) -> (T, u32) {
    let (over, flips) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let choices = ["busy", "away", "auto"];
            for choice in choices.iter().cycle() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                choose(host, user, choice);
                flips.fetch_add(1, Ordering::SeqCst);
            }
        });
        let claimed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(claim));
        over.store(true, Ordering::SeqCst);
        (claimed.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), flips.load(Ordering::SeqCst))
    })
}

#[test]
fn no_event_follows_an_acknowledged_block() {
    on_each_setup(|service| {
        beat(service.last(), "bob");
        let mut watchers = watch(service.first(), "bob");
        let alice = service.first().client(VIEWER);
        // On the host where the viewer watches, so that the block is in force there when it is answered.
        let blocker = service.first().client("bob");
        let (_, flips) = while_flipping(service.last(), "bob", || {
            for round in 0..8 {
                blocker.block(VIEWER);
                for _ in 0..5 {
                    assert_eq!(alice.presence("bob"), hidden("bob"), "round {round}");
                }
                for watcher in &mut watchers {
                    until_seen(watcher, "bob", false);
                    assert_eq!(watcher.events_so_far(service.first()), [], "round {round}: hidden is the last event");
                }
                blocker.unblock(VIEWER);
                for watcher in &mut watchers {
                    assert_ne!(next_of(watcher, "bob")["state"], Value::Null, "round {round}");
                }
            }
        });
        assert!(flips > 20, "the status changed only {flips} times");
    });
}

#[test]
fn watcher_arriving_during_change_ends_correct() {
    on_each_setup(|service| {
        beat(service.last(), "bob");
        let blocker = service.first().client("bob");
        let (_, flips) = while_flipping(service.last(), "bob", || {
            for round in 0..6 {
                let is_blocked = round % 2 == 0;
                let watchers: Vec<Watcher> = std::thread::scope(|scope| {
                    let watch = |protocol: Protocol| {
                        scope.spawn(move || protocol.watch(service.first(), VIEWER, &format!("bob,{FENCE}")))
                    };
                    let opening: Vec<_> = Protocol::BOTH.into_iter().cycle().take(8).map(watch).collect();
                    if is_blocked {
                        blocker.block(VIEWER)
                    } else {
                        blocker.unblock(VIEWER)
                    }
                    opening.into_iter().map(|opening| opening.join().unwrap()).collect()
                });
                for mut watcher in watchers {
                    if watcher.snapshot()["presences"][0]["state"].is_null() != is_blocked {
                        until_seen(&mut watcher, "bob", !is_blocked);
                    }
                    let events = watcher.events_so_far(service.first());
                    let is_otherwise = |state: &&str| state.is_empty() != is_blocked;
                    assert_eq!(
                        states(&events, "bob").into_iter().find(is_otherwise),
                        None,
                        "round {round}: {events:?}"
                    );
                }
            }
        });
        assert!(flips > 0, "the status did not change");
    });
}

#[test]
fn watching_service_sees_restrictions_only() {
    let issuer = TokenIssuer::default();
    let key = issuer.key();
    let service = Service::embedded(&["--workers", "2", "--token-key", &key]);
    let client = |user: &str, scopes: &[&str]| Client::with_token(service.first().base(), &issuer.token(user, scopes));
    let bob = client("bob", &[]);
    assert_eq!(bob.beat("web").status, 200);
    let path = format!("/v1/subscribe?users=bob&watch_only=true&token={}", issuer.token("backend", &["service"]));
    let mut backend = Stream::get(service.first().address(), &path, &[]).unwrap();
    assert_eq!(backend.snapshot()["presences"][0]["state"], "online");
    bob.block("backend");
    bob.set_privacy("nobody", "nobody");
    assert_eq!(bob.put("/v1/status", json!({ "choice": "busy" })).status, 200);
    assert_eq!(next_of(&mut backend, "bob")["state"], "busy", "the first event");
    client("root", &["admin"]).restrict("bob");
    assert_eq!(next_of(&mut backend, "bob"), hidden("bob"));
    client("root", &["admin"]).unrestrict("bob");
    assert_eq!(next_of(&mut backend, "bob")["state"], "busy");
    service.stop();
}

#[test]
fn crowd_is_told_of_restriction() {
    let service = Service::redis(&["--workers", "2"]);
    beat(service.last(), "bob");
    let mut crowd: Vec<Watcher> = (0..60)
        .map(|index| {
            let protocol = Protocol::BOTH[index % 2];
            let mut watcher = protocol.watch(service.first(), &format!("viewer{index}"), &format!("bob,{FENCE}"));
            assert_eq!(watcher.snapshot()["presences"][0]["state"], "online");
            watcher
        })
        .collect();
    service.last().client("admin").restrict("bob");
    crowd.iter_mut().for_each(|watcher| assert_eq!(next_of(watcher, "bob"), hidden("bob")));
    let mut own = Protocol::Events.watch(service.first(), "bob", "bob");
    assert_eq!(own.snapshot()["presences"][0]["state"], "online", "bob sees himself");
    service.last().client("admin").unrestrict("bob");
    crowd.iter_mut().for_each(|watcher| assert_eq!(next_of(watcher, "bob")["state"], "online"));
    let checks = || service.first().metric("rollcall_policy_checks_total");
    eventually("checks are counted", Duration::from_secs(5), || checks() >= 120.0);
    service.stop();
}
