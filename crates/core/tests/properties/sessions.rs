//! Sessions of arbitrary parts: the rules stay consistent for everything a store could return.

use proptest::prelude::*;
use rollcall_core::choose::{NewChoice, choose};
use rollcall_core::deadline::next_change;
use rollcall_core::derive::derive;
use rollcall_core::settle::{EvictionDecision, evict, settle};
use rollcall_core::visibility::derive_published;
use rollcall_core::{
    Choice, Device, DeviceId, DeviceKind, Moment, Next, Note, OutageGrace, Published, Revision, Session, Span, Stance,
    State, Time,
};

use crate::{RULES, apply, config};

const NOW: Time = Time(100);
/// Later than every time in a generated session.
const END: u64 = 260;

fn times() -> impl Strategy<Value = Time> {
    (1u64..200).prop_map(Time)
}

fn past() -> impl Strategy<Value = Time> {
    (1..=NOW.0).prop_map(Time)
}

fn notes() -> impl Strategy<Value = Note> {
    (0u8..3, proptest::option::of(times())).prop_map(|(text, until)| Note {
        text: text.to_string(),
        emoji: String::new(),
        until,
    })
}

fn devices() -> impl Strategy<Value = Vec<Device>> {
    let device = (past(), proptest::option::of(past()), 0u64..200);
    proptest::collection::vec(device, 0..5).prop_map(|devices| {
        let numbered = devices.into_iter().enumerate();
        let made = numbered.map(|(number, (beat_at, active_at, expires))| Device {
            id: DeviceId::parse(format!("d{number}")).expect("a short id"),
            kind: DeviceKind::Other,
            beat_at,
            active_at: active_at.filter(|&at| at <= beat_at),
            expires_at: Time(expires),
        });
        made.collect()
    })
}

fn stances() -> impl Strategy<Value = Stance> {
    prop_oneof![Just(Stance::Auto), Just(Stance::Away), Just(Stance::Busy), Just(Stance::Invisible)]
}

fn choices() -> impl Strategy<Value = Choice> {
    let parts = (stances(), past(), proptest::option::of(times()), proptest::option::of(notes()));
    parts.prop_map(|(stance, at, until, note)| Choice { stance, at, until, note })
}

fn records() -> impl Strategy<Value = Published> {
    let states = prop_oneof![Just(State::Online), Just(State::Away), Just(State::Busy), Just(State::Offline)];
    let times = (proptest::option::of(past()), proptest::option::of(past()));
    (states, proptest::option::of(notes()), times, 1u64..200_000)
        .prop_map(|(state, note, (since, last_seen), version)| Published { state, note, since, last_seen, version })
}

fn sessions() -> impl Strategy<Value = Session> {
    let next = prop_oneof![Just(Next::Nothing), times().prop_map(Next::Settle), times().prop_map(Next::Evict)];
    (devices(), proptest::option::of(choices()), proptest::option::of(records()), next).prop_map(
        |(devices, choice, published, next)| Session {
            devices,
            choice,
            published,
            next,
            revision: Revision::default(),
        },
    )
}

fn moments() -> impl Strategy<Value = Moment> {
    let outage_grace = (past(), times()).prop_map(|(since, until)| OutageGrace { since, until });
    proptest::option::of(outage_grace).prop_map(|outage_grace| Moment { now: NOW, outage_grace })
}

fn new_choices() -> impl Strategy<Value = NewChoice> {
    (stances(), proptest::option::of(1u64..60)).prop_map(|(stance, lasts)| NewChoice {
        stance,
        lasts: lasts.map(Span),
        note: None,
    })
}

/// The state, by a direct reading of the rules.
fn plain_state(session: &Session, moment: &Moment, now: Time) -> State {
    let is_alive = |device: &&Device| {
        let has_grace = moment.outage_grace.is_some_and(|grace| device.expires_at > grace.since && grace.until > now);
        device.expires_at > now || has_grace
    };
    let alive: Vec<&Device> = session.devices.iter().filter(is_alive).collect();
    let choice = session.choice.as_ref().filter(|choice| choice.until.is_none_or(|until| until > now));
    match choice.map_or(Stance::Auto, |choice| choice.stance) {
        _ if alive.is_empty() => State::Offline,
        Stance::Invisible => State::Offline,
        Stance::Busy => State::Busy,
        Stance::Away => State::Away,
        Stance::Auto if alive.iter().any(|d| d.active_at.is_some_and(|at| at.0 + 30 > now.0)) => State::Online,
        Stance::Auto => State::Away,
    }
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn state_follows_from_devices_choice_and_time(session in sessions(), moment in moments()) {
        for now in NOW.0..END {
            let derived = derive(&session, &moment.moved_to(Time(now)), &RULES);
            prop_assert_eq!(derived.state, plain_state(&session, &moment, Time(now)));
        }
    }

    #[test]
    fn next_change_is_the_first_visible_change(session in sessions(), moment in moments()) {
        let visible = |now: u64| {
            let derived = derive(&session, &moment.moved_to(Time(now)), &RULES);
            (derived.state, derived.note)
        };
        let derived = derive(&session, &moment, &RULES);
        let first = (NOW.0..END).find(|&at| visible(at) != visible(NOW.0));
        prop_assert_eq!(next_change(&session, &moment, &RULES, &derived).map(|at| at.0), first);
    }

    #[test]
    fn settled_session_needs_no_settling(mut session in sessions(), moment in moments()) {
        if let Some(decision) = settle(&session, &moment, &RULES) {
            apply(&mut session, decision);
        }
        prop_assert_eq!(settle(&session, &moment, &RULES), None);
        let published = session.published.as_ref();
        prop_assert!(!derive(&session, &moment, &RULES).differs_from(published));
    }

    #[test]
    fn session_with_new_choice_needs_no_settling(mut session in sessions(), moment in moments(), new in new_choices()) {
        let (choice, decision) = choose(&session, &moment, &RULES, &new);
        apply(&mut session, decision);
        prop_assert_eq!(session.choice.as_ref(), Some(&choice));
        prop_assert_eq!(settle(&session, &moment, &RULES), None);
    }

    #[test]
    fn settle_deadline_is_in_the_future(session in sessions(), moment in moments()) {
        let derived = derive(&session, &moment, &RULES);
        match rollcall_core::deadline::next(&session, &moment, &RULES, &derived) {
            Next::Settle(at) => prop_assert!(at > moment.now),
            Next::Evict(_) => prop_assert!(session.devices.iter().all(|device| !moment.is_alive(device))),
            Next::Nothing => prop_assert_eq!(next_change(&session, &moment, &RULES, &derived), None),
        }
    }

    #[test]
    fn settling_and_choosing_never_lose_last_seen(session in sessions(), moment in moments(), new in new_choices()) {
        let seen = derive_published(&session, &moment, &RULES).last_seen;
        let (_, chosen) = choose(&session, &moment, &RULES, &new);
        let settled = settle(&session, &moment, &RULES);
        if let Some(decision) = &settled {
            let mut after = session.clone();
            apply(&mut after, decision.clone());
            prop_assert_eq!(derive_published(&after, &moment, &RULES).last_seen, seen);
        }
        let mut after = session.clone();
        apply(&mut after, chosen.clone());
        prop_assert!(derive_published(&after, &moment, &RULES).last_seen >= seen);
        for published in [settled.and_then(|decision| decision.publish), chosen.publish].into_iter().flatten() {
            prop_assert!(published.version > session.published.as_ref().map_or(0, |before| before.version));
            prop_assert!(published.version >= moment.now.0 * 1000);
            prop_assert!(published.since.is_none_or(|since| since <= moment.now));
        }
    }

    #[test]
    fn only_expired_devices_are_pruned(session in sessions(), moment in moments(), new in new_choices()) {
        let (_, chosen) = choose(&session, &moment, &RULES, &new);
        let decisions = [settle(&session, &moment, &RULES), Some(chosen)];
        for decision in decisions.into_iter().flatten() {
            let mut after = session.clone();
            apply(&mut after, decision);
            let alive = |session: &Session| -> Vec<Device> {
                session.devices.iter().filter(|device| moment.is_alive(device)).cloned().collect()
            };
            prop_assert_eq!(alive(&after), alive(&session));
        }
    }

    #[test]
    fn outage_grace_keeps_live_devices_alive(
        session in sessions(),
        (since, until) in (times(), times()),
    ) {
        let outage_grace = Some(OutageGrace { since, until });
        for device in session.devices.iter().filter(|device| device.expires_at > since) {
            for now in 0..until.0 {
                let moment = Moment { now: Time(now), outage_grace };
                prop_assert!(moment.is_alive(device));
            }
        }
    }

    #[test]
    fn only_offline_published_sessions_are_evicted(session in sessions(), moment in moments()) {
        let derived = derive_published(&session, &moment, &RULES);
        let matters = session.choice.as_ref().is_some_and(|choice| choice.matters_at(moment.now));
        match evict(&session, &moment, &RULES) {
            EvictionDecision::Drop(last_seen) => {
                prop_assert!(!matters && session.devices.iter().all(|device| !moment.is_alive(device)));
                prop_assert_eq!((derived.state, derived.last_seen), (State::Offline, last_seen));
            }
            EvictionDecision::Keep(last_seen, decision) => {
                prop_assert!(matters && decision.publish.is_none());
                prop_assert_eq!(derived.last_seen, last_seen);
                let mut after = session.clone();
                apply(&mut after, decision);
                prop_assert_eq!(evict(&after, &moment, &RULES), EvictionDecision::Wait);
            }
            EvictionDecision::Settle(decision) => prop_assert_eq!(Some(decision), settle(&session, &moment, &RULES)),
            EvictionDecision::Wait => prop_assert!(!matches!(session.next, Next::Evict(at) if at <= moment.now)),
        }
    }
}
