//! Hidden subjects: a viewer who may not see a subject gets the same bytes whatever the subject is and does, on every route. If
//! only last seen is hidden, nothing reveals when it was.

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
use rollcall_tests::history::now_ms;
use rollcall_tests::visibility_matrix::{EVICT_AFTER, Relation, SubjectState, VIEWER, leave, name, populate};
use rollcall_tests::watcher::{FENCE, Protocol, WatchEvent, Watcher};
use rollcall_tests::{Answer, Host, Service, Socket, Stream, eventually};
use serde_json::{Value, json};

const SETTINGS: [&str; 4] = ["--evict-after", EVICT_AFTER, "--typing-ttl", "30s"];

/// What replaces the name in an answer.
const PLACEHOLDER: &str = "subject-0";

/// A way to ask about a subject; the raw answer, without the name.
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
    ("a stream's snapshot", |host, name| received(&Protocol::Events.watch(host, VIEWER, name).next_event(), name)),
    ("a socket's snapshot", |host, name| received(&Protocol::Socket.watch(host, VIEWER, name).next_event(), name)),
    ("a stream's snapshot since ever", |host, name| since_by_stream(host, name, "1")),
    ("a stream's snapshot since a second ago", |host, name| since_by_stream(host, name, &ago(1_000))),
    ("a stream's snapshot since a minute ago", |host, name| since_by_stream(host, name, &ago(60_000))),
    ("a socket's snapshot since a moment ago", |host, name| since_by_socket(host, name, &ago(100))),
    ("a socket's snapshot since tomorrow", |host, name| since_by_socket(host, name, &format!("{}000", now_ms() * 2))),
];

/// An instant to resume from that a client made up.
fn ago(ms: u64) -> String {
    format!("{}000", now_ms() - ms)
}

fn since_by_stream(host: &Host, name: &str, since: &str) -> String {
    received(
        &Stream::subscribe(host, VIEWER, &format!("watch_only=true&users={name}&since={since}")).next_event(),
        name,
    )
}

fn since_by_socket(host: &Host, name: &str, since: &str) -> String {
    let mut socket = Socket::open(host, VIEWER, "watch_only=true");
    received(&socket.ask(&json!({ "op": "watch", "users": [name], "since": since })), name)
}

/// A whole answer, without the date.
fn said(answer: &Answer, name: &str) -> String {
    let headers: BTreeMap<_, _> = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    format!("{} {headers:?} {}", answer.status, answer.text).replace(name, PLACEHOLDER)
}

/// A whole event, without its id, which contains the time: see [`event_ids_reveal_nothing_about_hidden_users`].
fn received(event: &WatchEvent, name: &str) -> String {
    format!("{} {}", event.event, event.data).replace(name, PLACEHOLDER)
}

/// The answers about the subjects of one relation, each with the states it was given for.
fn answers(host: &Host, ask: Way, relation: Relation, states: &[SubjectState]) -> BTreeMap<String, Vec<SubjectState>> {
    let mut answers = BTreeMap::<String, Vec<SubjectState>>::new();
    for state in states {
        answers.entry(ask(host, &name(relation, *state))).or_default().push(*state);
    }
    answers
}

#[test]
fn all_hidden_subjects_get_identical_answers() {
    Service::on_each_store(&SETTINGS, |service| {
        populate(service);
        for (way, ask) in WAYS {
            for relation in Relation::hiding() {
                let answers = answers(service.first(), ask, relation, &SubjectState::ALL);
                assert_eq!(answers.len(), 1, "{way}, {relation:?}: {answers:#?}");
                let answer = answers.keys().next().unwrap();
                assert!(!answer.contains("deep work") && !answer.contains("line"), "{way}, {relation:?}: {answer}");
            }
            let seen = answers(service.first(), ask, Relation::None, &SubjectState::ALL);
            // Since then perhaps nothing happened.
            let late = ["second ago", "moment ago", "tomorrow"].iter().any(|late| way.ends_with(late));
            assert!(late || seen.len() >= 2, "{way}: visible subjects must differ, or nothing is proven: {seen:#?}");
        }
    });
}

#[test]
fn hidden_last_seen_leaks_no_time() {
    Service::on_each_store(&SETTINGS, |service| {
        populate(service);
        for (way, ask) in WAYS {
            let gone = answers(service.first(), ask, Relation::LastSeenHidden, &SubjectState::SHOWN_OFFLINE);
            assert_eq!(gone.len(), 1, "{way}: {gone:#?}");
        }
        let seen = |state| service.first().client(VIEWER).presence(&name(Relation::LastSeenHidden, state));
        let gone = json!({ "user": name(Relation::LastSeenHidden, SubjectState::JustOffline), "state": "offline", "since": null,
            "last_seen": null, "version": 0, "note": null });
        assert_eq!(seen(SubjectState::JustOffline), gone);
        let busy = seen(SubjectState::Busy);
        assert_eq!((&busy["state"], &busy["note"]["text"]), (&json!("busy"), &json!("deep work")), "the rest shows");
        assert_eq!(busy["last_seen"], Value::Null);
        let known = service.first().client(VIEWER).presence(&name(Relation::None, SubjectState::JustOffline));
        assert!(known["last_seen"].is_u64(), "without the setting it shows: {known}");
    });
}

/// Watches all subjects of one relation, and the fence.
fn watch(protocol: Protocol, host: &Host, relation: Relation) -> Watcher {
    let names: Vec<String> = SubjectState::ALL.iter().map(|state| name(relation, *state)).collect();
    let mut watcher = protocol.watch(host, VIEWER, &format!("{},{FENCE}", names.join(",")));
    watcher.snapshot();
    watcher
}

/// Waits longer than `--recheck`, after which all watched users are read again.
fn until_read_again() {
    let began = now_ms();
    eventually("the re-check ran", Duration::from_secs(3), || now_ms() > began + 400);
}

#[test]
fn hidden_users_cause_no_events() {
    let settings = [&SETTINGS[..], &["--recheck", "100ms"]].concat();
    Service::on_each_store(&settings, |service| {
        populate(service);
        let mut watchers: Vec<_> = Relation::ALL
            .into_iter()
            .flat_map(|relation| {
                Protocol::BOTH.map(|protocol| (relation, protocol, watch(protocol, service.first(), relation)))
            })
            .collect();
        for relation in Relation::ALL {
            SubjectState::ALL.iter().for_each(|state| state.change(service.last(), &name(relation, *state)));
        }
        until_read_again();
        for (relation, protocol, watcher) in &mut watchers {
            let events = watcher.events_so_far(service.last());
            match relation {
                Relation::None => {
                    assert_eq!(events.len(), SubjectState::ALL.len(), "visible changes arrive: {events:#?}")
                }
                Relation::LastSeenHidden => {
                    assert_eq!(events.len(), SubjectState::ALL.len(), "{events:#?}");
                    assert!(events.iter().all(|event| event.data["last_seen"].is_null()), "{events:#?}");
                    let gone: Vec<_> = events.iter().filter(|event| event.state() == "offline").collect();
                    assert!(!gone.is_empty(), "the busy subject left: {events:#?}");
                    let timeless = |event: &&WatchEvent| event.data["since"].is_null() && event.version() == 0;
                    assert!(gone.iter().all(timeless), "{gone:#?}");
                }
                _ => assert_eq!(*events, [], "{relation:?} by {protocol:?}"),
            }
        }
    });
}

#[test]
fn typing_of_hidden_user_is_hidden() {
    Service::on_each_store(&SETTINGS, |service| {
        populate(service);
        let types = |state: &SubjectState| !matches!(state, SubjectState::Unknown | SubjectState::Invisible);
        for relation in Relation::ALL {
            let room = |state: SubjectState| format!("room-of-{}", name(relation, state));
            let rooms: Vec<String> = SubjectState::ALL.iter().map(|state| room(*state)).collect();
            let rooms = [("users", FENCE), ("conversations", &*rooms.join(","))];
            let mut watchers = Protocol::BOTH.map(|protocol| {
                let mut watcher = protocol.watch_as(service.first(), VIEWER, "watch_only=true", &rooms);
                watcher.snapshot();
                watcher
            });
            for state in SubjectState::ALL.iter().filter(|state| types(state)) {
                let typist = service.last().client(&name(relation, *state));
                assert_eq!(typist.send("PUT", &format!("/v1/typing/{}", room(*state)), None).status, 200);
            }
            let ask: Way = |host, name| said(&host.client(VIEWER).get(&format!("/v1/typing/room-of-{name}")), name);
            let answers = answers(service.first(), ask, relation, &SubjectState::ALL);
            let shows = matches!(relation, Relation::None | Relation::LastSeenHidden);
            assert_eq!(answers.len() > 1, shows, "{relation:?}: {answers:#?}");
            for (watcher, protocol) in watchers.iter_mut().zip(Protocol::BOTH) {
                let events = watcher.events_so_far(service.last());
                let expected = if shows { SubjectState::ALL.iter().filter(|state| types(state)).count() } else { 0 };
                assert_eq!(events.len(), expected, "{relation:?} by {protocol:?}: {events:#?}");
                let newcomer = protocol.watch_as(service.first(), VIEWER, "watch_only=true", &rooms).snapshot();
                assert_eq!(newcomer["typing"].as_array().unwrap().len(), expected, "{relation:?}: {newcomer}");
            }
        }
    });
}

/// The digest in an event id. The rest is the time.
fn digest(event: &WatchEvent) -> String {
    let id = event.id.as_deref().unwrap();
    let (instant, digest) = id.split_once('-').unwrap();
    assert_eq!((instant.len(), digest.len()), (16, 16), "{id}");
    digest.to_owned()
}

#[test]
fn event_ids_reveal_nothing_about_hidden_users() {
    Service::on_each_store(&SETTINGS, |service| {
        for relation in Relation::ALL {
            let subject = name(relation, SubjectState::Online);
            relation.apply(service.first(), &subject);
            let client = service.last().client(&subject);
            let id = |protocol: Protocol| digest(&protocol.watch(service.first(), VIEWER, &subject).next_event());
            let (mut ids, mut gone_ids) = (Vec::new(), Vec::new());
            for protocol in Protocol::BOTH {
                gone_ids.push(id(protocol));
                for _ in 0..2 {
                    assert_eq!(client.beat("web").status, 200);
                    ids.push(id(protocol));
                    assert_eq!(client.put("/v1/status", json!({ "choice": "busy" })).status, 200);
                    ids.push(id(protocol));
                    leave(service.last(), &subject);
                    gone_ids.push(id(protocol));
                }
            }
            let mut kinds = [ids.iter().chain(&gone_ids).collect::<Vec<_>>(), gone_ids.iter().collect()];
            kinds.iter_mut().for_each(|ids| {
                ids.sort();
                ids.dedup();
            });
            let [all, gone] = kinds.map(|ids| ids.len());
            match relation {
                Relation::None => assert!(all > 3 && gone > 2, "visible states differ: {ids:?}"),
                Relation::LastSeenHidden => {
                    assert_eq!((all > 2, gone), (true, 1), "all offline ids are equal: {gone_ids:?}")
                }
                _ => assert_eq!(all, 1, "{relation:?}: {ids:?}"),
            }
        }
    });
}

#[test]
fn resume_reveals_nothing_about_hidden_users() {
    Service::on_each_store(&SETTINGS, |service| {
        populate(service);
        let resume = |protocol: Protocol, relation: Relation, id: &str| {
            let names =
                format!("{},{}", name(relation, SubjectState::Online), name(relation, SubjectState::JustOffline));
            let event = match protocol {
                Protocol::Events => {
                    let headers = [("Rollcall-User", VIEWER), ("Last-Event-ID", id)];
                    let path = format!("/v1/subscribe?watch_only=true&users={names}");
                    Stream::get(service.first().address(), &path, &headers).unwrap().next_event()
                }
                Protocol::Socket => {
                    let users: Value = names.split(',').collect();
                    let mut socket = Socket::open(service.first(), VIEWER, "watch_only=true");
                    socket.ask(&json!({ "op": "watch", "users": users, "since": id }))
                }
            };
            assert_eq!(event.data["resumed"], true);
            (event.data.to_string(), digest(&event))
        };
        for protocol in Protocol::BOTH {
            for relation in Relation::ALL {
                let names =
                    format!("{},{}", name(relation, SubjectState::Online), name(relation, SubjectState::JustOffline));
                let id = protocol.watch(service.first(), VIEWER, &names).next_event().id.unwrap();
                let idle = resume(protocol, relation, &id);
                SubjectState::Online.change(service.last(), &name(relation, SubjectState::Online));
                SubjectState::JustOffline.change(service.last(), &name(relation, SubjectState::JustOffline));
                let busy = resume(protocol, relation, &id);
                match relation {
                    Relation::None | Relation::LastSeenHidden => {
                        assert_ne!(idle, busy, "{relation:?} by {protocol:?}")
                    }
                    _ => assert_eq!(idle, busy, "{relation:?} by {protocol:?}"),
                }
                leave(service.last(), &name(relation, SubjectState::JustOffline));
                let wish = json!({ "choice": "auto" });
                assert_eq!(
                    service.last().client(&name(relation, SubjectState::Online)).put("/v1/status", wish).status,
                    200
                );
            }
        }
    });
}

#[test]
fn resume_reports_offline_though_last_seen_hidden() {
    Service::on_each_store(&SETTINGS, |service| {
        let bob = service.last().client("bob");
        service.first().client("bob").set_privacy("everyone", "nobody");
        assert_eq!(bob.beat("web").status, 200);
        let snapshot = Protocol::Events.watch(service.first(), VIEWER, "bob").next_event();
        assert_eq!(snapshot.data["presences"][0]["state"], "online");
        leave(service.last(), "bob");
        let headers = [("Rollcall-User", VIEWER), ("Last-Event-ID", snapshot.id.as_deref().unwrap())];
        let path = "/v1/subscribe?watch_only=true&users=bob";
        let back = Stream::get(service.first().address(), path, &headers).unwrap().snapshot();
        let gone = json!([{ "user": "bob", "state": "offline", "since": null, "last_seen": null, "version": 0,
            "note": null }]);
        assert_eq!((&back["resumed"], &back["presences"]), (&json!(true), &gone));
    });
}

#[test]
fn invisible_user_hiding_last_seen_is_undetectable() {
    let settings = [&SETTINGS[..], &["--recheck", "100ms"]].concat();
    Service::on_each_store(&settings, |service| {
        let bob = service.last().client("bob");
        service.first().client("bob").set_privacy("everyone", "nobody");
        let mut watchers = Protocol::BOTH.map(|protocol| {
            let mut watcher = protocol.watch(service.first(), VIEWER, &format!("bob,{FENCE}"));
            watcher.snapshot();
            watcher
        });
        assert_eq!(bob.put("/v1/status", json!({ "choice": "invisible" })).status, 200);
        let before = digest(&Protocol::Events.watch(service.first(), VIEWER, "bob").next_event());
        for _ in 0..3 {
            assert_eq!(bob.beat("web").status, 200);
            until_read_again();
            leave(service.last(), "bob");
            until_read_again();
        }
        assert_eq!(bob.put("/v1/status", json!({ "choice": "busy" })).status, 200, "while offline");
        assert_eq!(bob.send("DELETE", "/v1/status", None).status, 200);
        until_read_again();
        for watcher in &mut watchers {
            assert_eq!(watcher.events_so_far(service.last()), [], "an invisible session causes no events");
        }
        assert_eq!(digest(&Protocol::Events.watch(service.first(), VIEWER, "bob").next_event()), before);
    });
}

#[test]
fn archive_outage_does_not_reveal_hidden_users() {
    let mut server = Postgres::start().unwrap();
    let database = server.database().unwrap();
    let archive = server.url(&database);
    let arguments = [&SETTINGS[..], &["--archive", &archive]].concat();
    let service = Service::embedded(&arguments);
    populate(&service);
    server.kill();
    for (way, ask) in WAYS {
        for relation in Relation::hiding() {
            let answers = answers(service.first(), ask, relation, &SubjectState::ALL);
            assert_eq!(answers.len(), 1, "{way}, {relation:?}: {answers:#?}");
        }
        let gone = answers(service.first(), ask, Relation::LastSeenHidden, &SubjectState::SHOWN_OFFLINE);
        assert_eq!(gone.len(), 1, "{way}: {gone:#?}");
    }
    let refused =
        service.first().client(VIEWER).get(&format!("/v1/presence/{}", name(Relation::None, SubjectState::Archived)));
    assert_eq!(refused.status, 503, "the archive is down: {}", refused.text);
}
