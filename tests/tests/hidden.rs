//! What is hidden: whoever may not see somebody is answered in the same bytes whatever that person is and does, by every
//! route that could tell. And where only the last seen is hidden, nothing tells when it was.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use rollcall_servers::Postgres;
use rollcall_tests::bonds::{Bond, EVICT_AFTER, Life, VIEWER, leave, name, populate};
use rollcall_tests::diary::now_ms;
use rollcall_tests::line::{FENCE, Told, Transport, Watcher};
use rollcall_tests::{Answer, Host, Socket, Stage, Stream, eventually};
use serde_json::{Value, json};

const SETTINGS: [&str; 4] = ["--evict-after", EVICT_AFTER, "--typing-ttl", "30s"];

/// What a name is replaced by.
const ANYBODY: &str = "somebody0";

/// A way to ask about somebody; the answer as it came, but for the name.
type Way = fn(&Host, &str) -> String;

const WAYS: [(&str, Way); 11] = [
    ("GET /v1/presence/{user}", |host, name| said(&host.client(VIEWER).get(&format!("/v1/presence/{name}")), name)),
    ("GET /v1/presence", |host, name| said(&host.client(VIEWER).get(&format!("/v1/presence?users={name}")), name)),
    ("POST /v1/presence", |host, name| {
        said(&host.client(VIEWER).post("/v1/presence", json!({ "users": [name] })), name)
    }),
    ("GET /presence/batch", |host, name| {
        said(&host.client(VIEWER).get(&format!("/presence/batch?user_ids={name}")), name)
    }),
    ("a stream's snapshot", |host, name| told(&Transport::Events.watch(host, VIEWER, name).next_told(), name)),
    ("a socket's snapshot", |host, name| told(&Transport::Socket.watch(host, VIEWER, name).next_told(), name)),
    ("a stream's snapshot since ever", |host, name| since_by_stream(host, name, "1")),
    ("a stream's snapshot since a second ago", |host, name| since_by_stream(host, name, &ago(1_000))),
    ("a stream's snapshot since a minute ago", |host, name| since_by_stream(host, name, &ago(60_000))),
    ("a socket's snapshot since a moment ago", |host, name| since_by_socket(host, name, &ago(100))),
    ("a socket's snapshot since tomorrow", |host, name| since_by_socket(host, name, &format!("{}000", now_ms() * 2))),
];

/// An instant to resume from, that a client made up.
fn ago(ms: u64) -> String {
    format!("{}000", now_ms() - ms)
}

fn since_by_stream(host: &Host, name: &str, since: &str) -> String {
    told(&Stream::subscribe(host, VIEWER, &format!("watch_only=true&users={name}&since={since}")).next_told(), name)
}

fn since_by_socket(host: &Host, name: &str, since: &str) -> String {
    let mut socket = Socket::open(host, VIEWER, "watch_only=true");
    told(&socket.ask(&json!({ "op": "watch", "users": [name], "since": since })), name)
}

/// Everything of an answer but the time of day.
fn said(answer: &Answer, name: &str) -> String {
    let headers: BTreeMap<_, _> = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    format!("{} {headers:?} {}", answer.status, answer.text).replace(name, ANYBODY)
}

/// Everything of an event but its id, which has the time of day in it: see [`ids_tell_nothing_of_the_hidden`].
fn told(told: &Told, name: &str) -> String {
    format!("{} {}", told.event, told.data).replace(name, ANYBODY)
}

/// What is answered about each of them by one way, and about whom.
fn answers(host: &Host, ask: Way, bond: Bond, lives: &[Life]) -> BTreeMap<String, Vec<Life>> {
    let mut answers = BTreeMap::<String, Vec<Life>>::new();
    for life in lives {
        answers.entry(ask(host, &name(bond, *life))).or_default().push(*life);
    }
    answers
}

#[test]
fn every_way_to_ask_answers_the_same_of_all_who_are_hidden() {
    Stage::everywhere(&SETTINGS, |stage| {
        populate(stage);
        for (way, ask) in WAYS {
            for bond in Bond::hiding() {
                let answers = answers(stage.here(), ask, bond, &Life::ALL);
                assert_eq!(answers.len(), 1, "{way}, {bond:?}: {answers:#?}");
                let answer = answers.keys().next().unwrap();
                assert!(!answer.contains("deep work") && !answer.contains("line"), "{way}, {bond:?}: {answer}");
            }
            let seen = answers(stage.here(), ask, Bond::None, &Life::ALL);
            // Nothing may have happened since then.
            let late = ["second ago", "moment ago", "tomorrow"].iter().any(|late| way.ends_with(late));
            assert!(late || seen.len() >= 2, "{way}: what shows does differ, or nothing is proven: {seen:#?}");
        }
    });
}

#[test]
fn where_only_last_seen_is_hidden_nothing_tells_when_it_was() {
    Stage::everywhere(&SETTINGS, |stage| {
        populate(stage);
        for (way, ask) in WAYS {
            let gone = answers(stage.here(), ask, Bond::LastSeenHidden, &Life::GONE);
            assert_eq!(gone.len(), 1, "{way}: {gone:#?}");
        }
        let seen = |life| stage.here().client(VIEWER).presence(&name(Bond::LastSeenHidden, life));
        let gone = json!({ "user": name(Bond::LastSeenHidden, Life::JustGone), "state": "offline", "since": null,
            "last_seen": null, "version": 0, "note": null });
        assert_eq!(seen(Life::JustGone), gone);
        let busy = seen(Life::Busy);
        assert_eq!((&busy["state"], &busy["note"]["text"]), (&json!("busy"), &json!("deep work")), "the rest shows");
        assert_eq!(busy["last_seen"], Value::Null);
        let known = stage.here().client(VIEWER).presence(&name(Bond::None, Life::JustGone));
        assert!(known["last_seen"].is_u64(), "of others it is told: {known}");
    });
}

/// Watches everybody of one bond, and the fence.
fn watch(transport: Transport, host: &Host, bond: Bond) -> Watcher {
    let names: Vec<String> = Life::ALL.iter().map(|life| name(bond, *life)).collect();
    let mut watcher = transport.watch(host, VIEWER, &format!("{},{FENCE}", names.join(",")));
    watcher.snapshot();
    watcher
}

/// Longer than the time after which everybody who is watched is read again.
fn until_read_again() {
    let began = now_ms();
    eventually("everybody was read again", Duration::from_secs(3), || now_ms() > began + 400);
}

#[test]
fn nothing_that_the_hidden_do_is_told() {
    let settings = [&SETTINGS[..], &["--recheck", "100ms"]].concat();
    Stage::everywhere(&settings, |stage| {
        populate(stage);
        let mut watchers: Vec<_> = Bond::ALL
            .into_iter()
            .flat_map(|bond| Transport::BOTH.map(|transport| (bond, transport, watch(transport, stage.here(), bond))))
            .collect();
        for bond in Bond::ALL {
            Life::ALL.iter().for_each(|life| life.turn(stage.there(), &name(bond, *life)));
        }
        until_read_again();
        for (bond, transport, watcher) in &mut watchers {
            let told = watcher.up_to_now(stage.there());
            match bond {
                Bond::None => assert_eq!(told.len(), Life::ALL.len(), "what shows is told: {told:#?}"),
                Bond::LastSeenHidden => {
                    assert_eq!(told.len(), Life::ALL.len(), "{told:#?}");
                    assert!(told.iter().all(|told| told.data["last_seen"].is_null()), "{told:#?}");
                    let gone: Vec<_> = told.iter().filter(|told| told.state() == "offline").collect();
                    assert!(!gone.is_empty(), "the busy one left: {told:#?}");
                    let timeless = |told: &&Told| told.data["since"].is_null() && told.version() == 0;
                    assert!(gone.iter().all(timeless), "{gone:#?}");
                }
                _ => assert_eq!(*told, [], "{bond:?} by {transport:?}"),
            }
        }
    });
}

#[test]
fn nobody_sees_the_hidden_type() {
    Stage::everywhere(&SETTINGS, |stage| {
        populate(stage);
        let types = |life: &Life| !matches!(life, Life::Never | Life::Invisible);
        for bond in Bond::ALL {
            let room = |life: Life| format!("room-of-{}", name(bond, life));
            let rooms: Vec<String> = Life::ALL.iter().map(|life| room(*life)).collect();
            let rooms = [("users", FENCE), ("conversations", &*rooms.join(","))];
            let mut watchers = Transport::BOTH.map(|transport| {
                let mut watcher = transport.watch_as(stage.here(), VIEWER, "watch_only=true", &rooms);
                watcher.snapshot();
                watcher
            });
            for life in Life::ALL.iter().filter(|life| types(life)) {
                let typist = stage.there().client(&name(bond, *life));
                assert_eq!(typist.send("PUT", &format!("/v1/typing/{}", room(*life)), None).status, 200);
            }
            let ask: Way = |host, name| said(&host.client(VIEWER).get(&format!("/v1/typing/room-of-{name}")), name);
            let answers = answers(stage.here(), ask, bond, &Life::ALL);
            let shows = matches!(bond, Bond::None | Bond::LastSeenHidden);
            assert_eq!(answers.len() > 1, shows, "{bond:?}: {answers:#?}");
            for (watcher, transport) in watchers.iter_mut().zip(Transport::BOTH) {
                let told = watcher.up_to_now(stage.there());
                let expected = if shows { Life::ALL.iter().filter(|life| types(life)).count() } else { 0 };
                assert_eq!(told.len(), expected, "{bond:?} by {transport:?}: {told:#?}");
                let newcomer = transport.watch_as(stage.here(), VIEWER, "watch_only=true", &rooms).snapshot();
                assert_eq!(newcomer["typing"].as_array().unwrap().len(), expected, "{bond:?}: {newcomer}");
            }
        }
    });
}

/// The part of an id that stands for what was told. The rest is the time of day.
fn digest(told: &Told) -> String {
    let id = told.id.as_deref().unwrap();
    let (instant, digest) = id.split_once('-').unwrap();
    assert_eq!((instant.len(), digest.len()), (16, 16), "{id}");
    digest.to_owned()
}

#[test]
fn ids_tell_nothing_of_the_hidden() {
    Stage::everywhere(&SETTINGS, |stage| {
        for bond in Bond::ALL {
            let subject = name(bond, Life::Online);
            bond.tie(stage.here(), &subject);
            let client = stage.there().client(&subject);
            let id = |transport: Transport| digest(&transport.watch(stage.here(), VIEWER, &subject).next_told());
            let (mut ids, mut gone_ids) = (Vec::new(), Vec::new());
            for transport in Transport::BOTH {
                gone_ids.push(id(transport));
                for _ in 0..2 {
                    assert_eq!(client.beat("web").status, 200);
                    ids.push(id(transport));
                    assert_eq!(client.put("/v1/status", json!({ "choice": "busy" })).status, 200);
                    ids.push(id(transport));
                    leave(stage.there(), &subject);
                    gone_ids.push(id(transport));
                }
            }
            let mut kinds = [ids.iter().chain(&gone_ids).collect::<Vec<_>>(), gone_ids.iter().collect()];
            kinds.iter_mut().for_each(|ids| {
                ids.sort();
                ids.dedup();
            });
            let [all, gone] = kinds.map(|ids| ids.len());
            match bond {
                Bond::None => assert!(all > 3 && gone > 2, "what shows does differ: {ids:?}"),
                Bond::LastSeenHidden => {
                    assert_eq!((all > 2, gone), (true, 1), "one gone is like another: {gone_ids:?}")
                }
                _ => assert_eq!(all, 1, "{bond:?}: {ids:?}"),
            }
        }
    });
}

#[test]
fn coming_back_tells_nothing_of_what_the_hidden_did_meanwhile() {
    Stage::everywhere(&SETTINGS, |stage| {
        populate(stage);
        let resume = |transport: Transport, bond: Bond, id: &str| {
            let names = format!("{},{}", name(bond, Life::Online), name(bond, Life::JustGone));
            let told = match transport {
                Transport::Events => {
                    let headers = [("Rollcall-User", VIEWER), ("Last-Event-ID", id)];
                    let path = format!("/v1/subscribe?watch_only=true&users={names}");
                    Stream::get(stage.here().address(), &path, &headers).unwrap().next_told()
                }
                Transport::Socket => {
                    let users: Value = names.split(',').collect();
                    let mut socket = Socket::open(stage.here(), VIEWER, "watch_only=true");
                    socket.ask(&json!({ "op": "watch", "users": users, "since": id }))
                }
            };
            assert_eq!(told.data["resumed"], true);
            (told.data.to_string(), digest(&told))
        };
        for transport in Transport::BOTH {
            for bond in Bond::ALL {
                let names = format!("{},{}", name(bond, Life::Online), name(bond, Life::JustGone));
                let id = transport.watch(stage.here(), VIEWER, &names).next_told().id.unwrap();
                let idle = resume(transport, bond, &id);
                Life::Online.turn(stage.there(), &name(bond, Life::Online));
                Life::JustGone.turn(stage.there(), &name(bond, Life::JustGone));
                let busy = resume(transport, bond, &id);
                match bond {
                    Bond::None | Bond::LastSeenHidden => assert_ne!(idle, busy, "{bond:?} by {transport:?}"),
                    _ => assert_eq!(idle, busy, "{bond:?} by {transport:?}"),
                }
                leave(stage.there(), &name(bond, Life::JustGone));
                let wish = json!({ "choice": "auto" });
                assert_eq!(stage.there().client(&name(bond, Life::Online)).put("/v1/status", wish).status, 200);
            }
        }
    });
}

#[test]
fn whoever_was_seen_online_and_left_meanwhile_is_told_to_be_gone_though_last_seen_is_hidden() {
    Stage::everywhere(&SETTINGS, |stage| {
        let bob = stage.there().client("bob");
        stage.here().client("bob").let_see("everyone", "nobody");
        assert_eq!(bob.beat("web").status, 200);
        let snapshot = Transport::Events.watch(stage.here(), VIEWER, "bob").next_told();
        assert_eq!(snapshot.data["presences"][0]["state"], "online");
        leave(stage.there(), "bob");
        let headers = [("Rollcall-User", VIEWER), ("Last-Event-ID", snapshot.id.as_deref().unwrap())];
        let path = "/v1/subscribe?watch_only=true&users=bob";
        let back = Stream::get(stage.here().address(), path, &headers).unwrap().snapshot();
        let gone = json!([{ "user": "bob", "state": "offline", "since": null, "last_seen": null, "version": 0,
            "note": null }]);
        assert_eq!((&back["resumed"], &back["presences"]), (&json!(true), &gone));
    });
}

#[test]
fn whoever_is_invisible_and_hides_their_last_seen_can_come_and_go_unnoticed() {
    let settings = [&SETTINGS[..], &["--recheck", "100ms"]].concat();
    Stage::everywhere(&settings, |stage| {
        let bob = stage.there().client("bob");
        stage.here().client("bob").let_see("everyone", "nobody");
        let mut watchers = Transport::BOTH.map(|transport| {
            let mut watcher = transport.watch(stage.here(), VIEWER, &format!("bob,{FENCE}"));
            watcher.snapshot();
            watcher
        });
        assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
        let before = digest(&Transport::Events.watch(stage.here(), VIEWER, "bob").next_told());
        for _ in 0..3 {
            assert_eq!(bob.beat("web").status, 200);
            until_read_again();
            leave(stage.there(), "bob");
            until_read_again();
        }
        assert_eq!(bob.put("/v1/status", json!({ "choice": "busy" })).status, 200, "while he is not here");
        assert_eq!(bob.send("DELETE", "/v1/status", None).status, 200);
        until_read_again();
        for watcher in &mut watchers {
            assert_eq!(watcher.up_to_now(stage.there()), [], "an end that looks like the one before is none");
        }
        assert_eq!(digest(&Transport::Events.watch(stage.here(), VIEWER, "bob").next_told()), before);
    });
}

#[test]
fn an_archive_that_is_away_does_not_tell_the_hidden_apart() {
    let mut server = Postgres::start().unwrap();
    let database = server.database().unwrap();
    let archive = server.url(&database);
    let arguments = [&SETTINGS[..], &["--archive", &archive]].concat();
    let stage = Stage::embedded(&arguments);
    populate(&stage);
    server.kill();
    for (way, ask) in WAYS {
        for bond in Bond::hiding() {
            let answers = answers(stage.here(), ask, bond, &Life::ALL);
            assert_eq!(answers.len(), 1, "{way}, {bond:?}: {answers:#?}");
        }
        let gone = answers(stage.here(), ask, Bond::LastSeenHidden, &Life::GONE);
        assert_eq!(gone.len(), 1, "{way}: {gone:#?}");
    }
    let refused = stage.here().client(VIEWER).get(&format!("/v1/presence/{}", name(Bond::None, Life::LongGone)));
    assert_eq!(refused.status, 503, "it is away indeed: {}", refused.text);
}
