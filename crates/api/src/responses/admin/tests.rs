//! Answers for administrators are written to the letter: the console and scripts read these bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that finds nothing should fail loudly")]

use rollcall_core::policy::Audience;
use rollcall_core::{Choice, DeviceId, Note, OutageGrace, Revision};
use serde_json::{Value, json};

use super::*;

const NOW: Time = Time(100_000);

fn device(name: &str, beat_at: u64, expires_at: u64) -> Device {
    let id = DeviceId::parse(name).unwrap();
    let (beat_at, expires_at) = (Time(beat_at), Time(expires_at));
    Device { id, kind: DeviceKind::Web, beat_at, active_at: Some(beat_at), expires_at }
}

fn answered(session: &Session, moment: &Moment, state: State) -> Value {
    answered_with(session, moment, state, |_| {})
}

fn answered_with(session: &Session, moment: &Moment, state: State, change: fn(&mut Person<'_>)) -> Value {
    let user = UserId::parse("bob").unwrap();
    let mut all = Person {
        user: &user,
        moment,
        session,
        state,
        archived: Some(Time(7)),
        privacy: Some(Privacy { presence: Audience::Contacts, last_seen: Audience::Nobody }),
        restricted: true,
        contacts: Some(3),
        blocks: Some(1),
        watchers: Watchers { this_host: 2, all_hosts: None },
    };
    change(&mut all);
    let reply = person(&all);
    assert_eq!(reply.status(), 200);
    serde_json::from_slice(reply.body()).unwrap()
}

#[test]
fn unknown_values_are_null() {
    let answer = answered_with(&Session::default(), &Moment::at(NOW), State::Offline, |person| {
        (person.archived, person.privacy) = (None, None);
        (person.contacts, person.blocks) = (None, None);
    });
    for part in ["archived_last_seen", "privacy", "contacts", "blocks"] {
        assert_eq!(answer.get(part), Some(&Value::Null), "{part}");
    }
    assert_eq!(answer["restricted"], true, "the rest is known");
}

#[test]
fn unknown_user_gets_an_empty_person() {
    let answer = answered(&Session::default(), &Moment::at(NOW), State::Offline);
    let expected = json!({
        "user": "bob", "now": 100_000, "record": null, "state": "offline", "choice": null, "devices": [],
        "deadline": null, "archived_last_seen": 7, "privacy": {"presence": "contacts", "last_seen": "nobody"},
        "restricted": true, "contacts": 3, "blocks": 1, "watchers": {"this_host": 2, "all_hosts": null},
    });
    assert_eq!(answer, expected);
}

#[test]
fn admin_sees_what_a_user_hides() {
    let note = Note { text: "deep work".to_owned(), emoji: String::new(), until: Some(Time(200_000)) };
    let choice = Choice { stance: Stance::Invisible, at: Time(90_000), until: Some(Time(300_000)), note: None };
    let published = Published {
        state: State::Offline,
        note: Some(note),
        since: Some(Time(80_000)),
        last_seen: Some(Time(80_000)),
        version: 90_000_000,
    };
    let session = Session {
        devices: vec![device("web-1", 95_000, 140_000), device("left", 94_000, 0)],
        choice: Some(choice),
        published: Some(published),
        next: Next::Settle(Time(140_000)),
        revision: Revision::default(),
    };
    let answer = answered(&session, &Moment::at(NOW), State::Offline);
    assert_eq!(answer["choice"], json!({"choice": "invisible", "until": 300_000}));
    let expected =
        json!({"device": "web-1", "kind": "web", "beat_at": 95_000, "active_at": 95_000, "expires_at": 140_000});
    assert_eq!(answer["devices"], json!([expected]), "a device that logged out is gone");
    assert_eq!(answer["deadline"], 140_000);
    let note = json!({"text": "deep work", "emoji": "", "until": 200_000});
    let record =
        json!({"state": "offline", "since": 80_000, "last_seen": 80_000, "version": 90_000_000_u64, "note": note});
    assert_eq!(answer["record"], record);
}

#[test]
fn expired_choice_is_null() {
    let choice = Choice { stance: Stance::Busy, at: Time(1), until: Some(NOW), note: None };
    let session = Session { choice: Some(choice), next: Next::Evict(Time(200_000)), ..Session::default() };
    let answer = answered(&session, &Moment::at(NOW), State::Offline);
    assert_eq!((&answer["choice"], &answer["deadline"]), (&Value::Null, &Value::Null), "nor is there a deadline");
}

#[test]
fn device_lives_until_outage_grace_ends() {
    let session = Session { devices: vec![device("web-1", 50_000, 95_000)], ..Session::default() };
    let pardoned = Moment { now: NOW, outage_grace: Some(OutageGrace { since: Time(90_000), until: Time(145_000) }) };
    assert_eq!(answered(&session, &pardoned, State::Online)["devices"][0]["expires_at"], 145_000);
}

#[test]
fn stats_serialise_and_parse_back() {
    let histogram = Histogram { count: 3, sum_ms: 1.5, buckets: vec![(Some(0.001), 1), (Some(4.0), 3), (None, 3)] };
    let figures = Stats {
        users: UserStats { online: None },
        connections: ConnectionStats {
            most_watched: vec![MostWatchedUser { user: "bob".to_owned(), watchers: 2 }],
            ..ConnectionStats::default()
        },
        times: Times { functions: [("heartbeat".to_owned(), histogram)].into(), ..Times::default() },
        ..Stats::default()
    };
    let reply = stats(&figures);
    let answer: Value = serde_json::from_slice(reply.body()).unwrap();
    assert_eq!(answer["times"]["functions"]["heartbeat"]["buckets"], json!([[0.001, 1], [4.0, 3], [null, 3]]));
    assert_eq!(answer["users"], json!({"online": null}));
    assert_eq!(answer["connections"]["most_watched"], json!([{"user": "bob", "watchers": 2}]));
    assert_eq!(serde_json::from_value::<Stats>(answer).unwrap(), figures);
}
