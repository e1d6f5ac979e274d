//! Random histories of a user: the rules and the model agree.

use proptest::prelude::*;
use rollcall_core::choose::{NewChoice, NoteContent, choose};
use rollcall_core::deadline::next_change;
use rollcall_core::derive::derive;
use rollcall_core::heartbeat::{PriorState, needs_settling};
use rollcall_core::settle::{Decision, EvictionDecision, evict, settle};
use rollcall_core::visibility::derive_published;
use rollcall_core::{Device, DeviceId, DeviceKind, Moment, Next, Published, Session, Span, Stance, State, Time};

use crate::model::{DEVICES, Event, History};
use crate::{RULES, apply, config};

/// After this time nothing changes without an event: longer than the longest choice plus an expiry or idle time.
const HORIZON: u64 = 200;

#[derive(Debug, Clone)]
enum Step {
    Event(Event),
    /// The session is settled: early, late or twice.
    Settle,
}

fn stances() -> impl Strategy<Value = Stance> {
    prop_oneof![Just(Stance::Auto), Just(Stance::Away), Just(Stance::Busy), Just(Stance::Invisible)]
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let device = 0..DEVICES;
    let event = prop_oneof![
        6 => (device.clone(), any::<bool>()).prop_map(|(device, active)| Event::Beat { device, active }),
        1 => device.clone().prop_map(|device| Event::Dropped { device }),
        1 => device.prop_map(|device| Event::Logout { device }),
        3 => (stances(), proptest::option::of(1u64..60), proptest::option::of(0u8..2))
            .prop_map(|(stance, lasts, note)| Event::Choose { stance, lasts, note }),
    ];
    let step = prop_oneof![3 => event.prop_map(Step::Event), 1 => Just(Step::Settle)];
    // Waits of zero are common: events of one millisecond are ordered too.
    let wait = prop_oneof![1 => Just(0u64), 3 => 0u64..25];
    proptest::collection::vec((wait, step), 1..24)
}

/// A user, as a session and in the model.
struct User {
    now: u64,
    session: Session,
    history: History,
    published: Vec<Published>,
}

impl User {
    fn new() -> Self {
        Self { now: 1000, session: Session::default(), history: History::default(), published: Vec::new() }
    }

    fn moment(&self) -> Moment {
        Moment::at(Time(self.now))
    }

    /// Touches the session; returns the state before it.
    fn touch(&mut self, event: &Event) -> PriorState {
        let prior = prior_state(&self.session);
        let now = Time(self.now);
        let devices = &mut self.session.devices;
        match event {
            Event::Beat { device, active } => {
                let id = device_id(*device);
                let before = devices.iter().position(|d| d.id == id).map(|index| devices.swap_remove(index));
                let active_at = if *active { Some(now) } else { before.and_then(|device| device.active_at) };
                let expires_at = now + RULES.alive_for();
                devices.push(Device { id, kind: DeviceKind::Web, beat_at: now, active_at, expires_at });
            }
            Event::Dropped { device } => {
                for device in devices.iter_mut().filter(|d| d.id == device_id(*device)) {
                    device.expires_at = device.expires_at.min(now + RULES.grace);
                }
            }
            Event::Logout { device } => {
                for device in devices.iter_mut().filter(|d| d.id == device_id(*device)) {
                    device.expires_at = Time(0);
                    device.active_at = None;
                }
            }
            Event::Choose { .. } | Event::Pruned { .. } => {}
        }
        self.history.add(self.now, event.clone());
        prior
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Settle => {
                if let Some(decision) = settle(&self.session, &self.moment(), &RULES) {
                    self.apply(decision);
                }
            }
            Step::Event(Event::Choose { stance, lasts, note }) => {
                let content = note.map(|note| NoteContent { text: note.to_string(), emoji: String::new() });
                let choice = NewChoice { stance: *stance, lasts: lasts.map(Span), note: content };
                let (_, decision) = choose(&self.session, &self.moment(), &RULES, &choice);
                self.history.add(self.now, Event::Choose { stance: *stance, lasts: *lasts, note: *note });
                self.apply(decision);
            }
            Step::Event(event) => {
                self.touch(event);
            }
        }
    }

    /// Handles a step as the functions do: a beat is settled only if it can change the state, and makes the session due
    /// by the device's expiry, as a store does. Returns whether the one change happened that a beat may miss.
    fn handle(&mut self, step: &Step) -> bool {
        let Step::Event(event @ Event::Beat { device, active }) = step else {
            self.step(step);
            if matches!(step, Step::Event(Event::Dropped { .. } | Event::Logout { .. })) {
                self.step(&Step::Settle);
            }
            return false;
        };
        let comes_back_unused = !active && self.is_used_and_expired(*device);
        let prior = self.touch(event);
        let end = Time(self.now) + RULES.alive_for();
        self.session.next = match self.session.next {
            Next::Settle(at) | Next::Evict(at) => Next::Settle(at.min(end)),
            Next::Nothing => Next::Settle(end),
        };
        if needs_settling(&prior, *active, Time(self.now)) {
            self.step(&Step::Settle);
        }
        comes_back_unused
    }

    fn is_used_and_expired(&self, device: u8) -> bool {
        let mut devices = self.session.devices.iter().filter(|d| d.id == device_id(device));
        devices.any(|device| device.active_at.is_some() && !self.moment().is_alive(device))
    }

    /// Does what sweeps and archiving passes do, without delay.
    fn settle_if_due(&mut self) {
        match self.session.next {
            Next::Settle(at) if at.0 <= self.now => self.step(&Step::Settle),
            Next::Evict(at) if at.0 <= self.now => match evict(&self.session, &self.moment(), &RULES) {
                EvictionDecision::Settle(decision) | EvictionDecision::Keep(_, decision) => self.apply(decision),
                EvictionDecision::Drop(_) => self.session = Session::default(),
                EvictionDecision::Wait => {}
            },
            _ => {}
        }
    }

    fn apply(&mut self, decision: Decision) {
        self.published.extend(decision.publish.clone());
        let before: Vec<DeviceId> = self.session.devices.iter().map(|device| device.id.clone()).collect();
        apply(&mut self.session, decision);
        for device in 0..DEVICES {
            let id = device_id(device);
            if before.contains(&id) && self.session.devices.iter().all(|device| device.id != id) {
                self.history.add(self.now, Event::Pruned { device });
            }
        }
    }

    /// What the rules show at `now`, as the model represents it.
    fn shown(&self, now: u64) -> (State, Option<u8>) {
        let derived = derive(&self.session, &Moment::at(Time(now)), &RULES);
        (derived.state, derived.note.map(|note| note.text.parse().expect("notes are numbers here")))
    }
}

fn device_id(device: u8) -> DeviceId {
    DeviceId::parse(format!("d{device}")).expect("a short id")
}

fn prior_state(session: &Session) -> PriorState {
    let (state, version) = session.published.as_ref().map_or((State::Offline, 0), |p| (p.state, p.version));
    let (stance, stance_until) = session.choice.as_ref().map_or((Stance::Auto, None), |c| (c.stance, c.until));
    PriorState { state, version, stance, stance_until }
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn state_note_and_last_seen_match_the_model(steps in steps()) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
            prop_assert_eq!(user.shown(user.now), user.history.shown(user.now, &RULES));
            let last_seen = derive_published(&user.session, &user.moment(), &RULES).last_seen;
            prop_assert_eq!(last_seen.map(|at| at.0), user.history.last_seen(&RULES));
        }
        for later in user.now..user.now + HORIZON {
            prop_assert_eq!(user.shown(later), user.history.shown(later, &RULES));
        }
    }

    #[test]
    fn next_change_is_the_first_model_change(steps in steps()) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
        }
        let derived = derive(&user.session, &user.moment(), &RULES);
        let next = next_change(&user.session, &user.moment(), &RULES, &derived);
        let now = user.history.shown(user.now, &RULES);
        let first = (user.now..user.now + HORIZON).find(|&at| user.history.shown(at, &RULES) != now);
        prop_assert_eq!(next.map(|at| at.0), first);
    }

    /// Settling at each deadline that the previous settling set is enough to notice every change in time.
    #[test]
    fn settling_at_deadlines_follows_every_change(steps in steps()) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
        }
        user.step(&Step::Settle);
        for _ in 0..HORIZON {
            user.now += 1;
            user.settle_if_due();
            let published = user.session.published.as_ref();
            prop_assert!(!derive(&user.session, &user.moment(), &RULES).differs_from(published), "at {}", user.now);
        }
        // Only a choice without an end can remain.
        let choice = user.session.choice.as_ref();
        prop_assert!(user.session.is_empty() || choice.is_some_and(|choice| choice.matters_at(Time(user.now))));
        prop_assert_eq!(user.session.next, Next::Nothing);
    }

    /// The whole protocol without faults: beats that mostly publish nothing, and settling at each deadline.
    #[test]
    fn record_is_right_in_every_millisecond(steps in steps()) {
        let mut user = User::new();
        let mut is_excused = false;
        for (wait, step) in &steps {
            for _ in 0..*wait {
                user.now += 1;
                user.settle_if_due();
                let derived = derive(&user.session, &user.moment(), &RULES);
                let differs = derived.differs_from(user.session.published.as_ref());
                prop_assert!(!differs || is_excused, "at {}: {derived:?}, {:?}", user.now, user.session);
                is_excused &= differs;
            }
            is_excused |= user.handle(step);
        }
    }

    #[test]
    fn versions_rise_and_consecutive_publications_differ(steps in steps()) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
        }
        for pair in user.published.windows(2) {
            prop_assert!(pair[0].version < pair[1].version);
            prop_assert_ne!(&pair[0], &Published { version: pair[0].version, ..pair[1].clone() });
        }
    }

    /// With the one exception that `heartbeat::needs_settling` names.
    #[test]
    fn beat_that_changes_state_is_noticed(steps in steps(), device in 0..DEVICES, active: bool) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
        }
        user.step(&Step::Settle);
        let was_used = user.is_used_and_expired(device);
        let prior = user.touch(&Event::Beat { device, active });
        let state = derive(&user.session, &user.moment(), &RULES).state;
        let comes_back_unused = was_used && !active && (prior.state, state) == (State::Away, State::Online);
        let is_noticed = needs_settling(&prior, active, Time(user.now));
        prop_assert!(state == prior.state || is_noticed || comes_back_unused, "{prior:?} becomes {state:?}");
    }

    #[test]
    fn invisible_user_changes_only_by_note(steps in steps()) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            let was_invisible = user.history.is_invisible(user.now);
            // Until the next settling the record may be out of date; the choice to be invisible settled it.
            let before = derive_published(&user.session, &user.moment(), &RULES);
            let record = user.session.published.clone();
            user.step(step);
            if was_invisible && user.history.is_invisible(user.now) {
                let after = derive_published(&user.session, &user.moment(), &RULES);
                let without_note = |p: &Published| (p.state, p.since, p.last_seen);
                prop_assert_eq!(without_note(&before), without_note(&after));
                prop_assert!(before.note != after.note || record == user.session.published, "{:?}", user.session);
            }
        }
    }

    #[test]
    fn beats_while_invisible_stay_hidden_after_expiry(
        steps in steps(),
        hidden in proptest::collection::vec((0..DEVICES, any::<bool>(), 0u64..15), 1..6),
        expires: bool,
    ) {
        let mut user = User::new();
        for (wait, step) in &steps {
            user.now += wait;
            user.step(step);
        }
        let lasts = expires.then_some(150);
        user.step(&Step::Event(Event::Choose { stance: Stance::Invisible, lasts, note: None }));
        let seen = derive_published(&user.session, &user.moment(), &RULES).last_seen;
        for (device, active, wait) in hidden {
            user.now += wait;
            user.touch(&Event::Beat { device, active });
        }
        user.now += RULES.alive_for().0;
        if expires {
            user.now += 150;
        } else {
            user.step(&Step::Event(Event::Choose { stance: Stance::Auto, lasts: None, note: None }));
        }
        user.step(&Step::Settle);
        prop_assert_eq!(derive_published(&user.session, &user.moment(), &RULES).last_seen, seen);
        prop_assert_eq!(user.session.published.and_then(|published| published.last_seen), seen);
    }
}
