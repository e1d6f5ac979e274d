//! Whatever happens to a person, in whatever order: what the rules make of it is what the model says.

use proptest::prelude::*;
use rollcall_core::choose::{NewChoice, NoteContent, choose};
use rollcall_core::deadline::next_change;
use rollcall_core::derive::derive;
use rollcall_core::heartbeat::{Found, moves};
use rollcall_core::settle::{Decision, EvictionDecision, evict, settle};
use rollcall_core::visibility::derive_published;
use rollcall_core::{Device, DeviceId, DeviceKind, Moment, Next, Published, Session, Span, Stance, State, Time};

use crate::model::{DEVICES, Happening, History};
use crate::{RULES, apply, config};

/// Longer than anything that can still happen by itself: the longest choice, and a life or idleness after it.
const HORIZON: u64 = 200;

#[derive(Debug, Clone)]
enum Step {
    Happens(Happening),
    /// Somebody settles the session, early, late or twice.
    Settles,
}

fn stances() -> impl Strategy<Value = Stance> {
    prop_oneof![Just(Stance::Auto), Just(Stance::Away), Just(Stance::Busy), Just(Stance::Invisible)]
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let device = 0..DEVICES;
    let happening = prop_oneof![
        6 => (device.clone(), any::<bool>()).prop_map(|(device, active)| Happening::Beat { device, active }),
        1 => device.clone().prop_map(|device| Happening::Dropped { device }),
        1 => device.prop_map(|device| Happening::Logout { device }),
        3 => (stances(), proptest::option::of(1u64..60), proptest::option::of(0u8..2))
            .prop_map(|(stance, lasts, note)| Happening::Chose { stance, lasts, note }),
    ];
    let step = prop_oneof![3 => happening.prop_map(Step::Happens), 1 => Just(Step::Settles)];
    // No wait at all is common: what happens in one millisecond happens in an order all the same.
    let wait = prop_oneof![1 => Just(0u64), 3 => 0u64..25];
    proptest::collection::vec((wait, step), 1..24)
}

/// One person, as a store keeps them and as the model does.
struct Life {
    now: u64,
    session: Session,
    history: History,
    published: Vec<Published>,
}

impl Life {
    fn new() -> Self {
        Self { now: 1000, session: Session::default(), history: History::default(), published: Vec::new() }
    }

    fn moment(&self) -> Moment {
        Moment::at(Time(self.now))
    }

    /// Leaves a trace; answers what a touch would have found before.
    fn touch(&mut self, happening: &Happening) -> Found {
        let found = found(&self.session);
        let now = Time(self.now);
        let devices = &mut self.session.devices;
        match happening {
            Happening::Beat { device, active } => {
                let id = device_id(*device);
                let before = devices.iter().position(|d| d.id == id).map(|index| devices.swap_remove(index));
                let active_at = if *active { Some(now) } else { before.and_then(|device| device.active_at) };
                let expires_at = now + RULES.alive_for();
                devices.push(Device { id, kind: DeviceKind::Web, beat_at: now, active_at, expires_at });
            }
            Happening::Dropped { device } => {
                for device in devices.iter_mut().filter(|d| d.id == device_id(*device)) {
                    device.expires_at = device.expires_at.min(now + RULES.grace);
                }
            }
            Happening::Logout { device } => {
                for device in devices.iter_mut().filter(|d| d.id == device_id(*device)) {
                    device.expires_at = Time(0);
                    device.active_at = None;
                }
            }
            Happening::Chose { .. } | Happening::Pruned { .. } => {}
        }
        self.history.add(self.now, happening.clone());
        found
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Settles => {
                if let Some(decision) = settle(&self.session, &self.moment(), &RULES) {
                    self.apply(decision);
                }
            }
            Step::Happens(Happening::Chose { stance, lasts, note }) => {
                let content = note.map(|note| NoteContent { text: note.to_string(), emoji: String::new() });
                let choice = NewChoice { stance: *stance, lasts: lasts.map(Span), note: content };
                let (_, decision) = choose(&self.session, &self.moment(), &RULES, &choice);
                self.history.add(self.now, Happening::Chose { stance: *stance, lasts: *lasts, note: *note });
                self.apply(decision);
            }
            Step::Happens(happening) => {
                self.touch(happening);
            }
        }
    }

    /// What the functions make of a step: a beat is settled only if it moves something, and leaves the session due by
    /// the end of the device, as a store does. Answers whether the one change happened that a beat may miss.
    fn serve(&mut self, step: &Step) -> bool {
        let Step::Happens(happening @ Happening::Beat { device, active }) = step else {
            self.step(step);
            if matches!(step, Step::Happens(Happening::Dropped { .. } | Happening::Logout { .. })) {
                self.step(&Step::Settles);
            }
            return false;
        };
        let comes_back_unused = !active && self.is_used_and_dead(*device);
        let found = self.touch(happening);
        let end = Time(self.now) + RULES.alive_for();
        self.session.next = match self.session.next {
            Next::Settle(at) | Next::Evict(at) => Next::Settle(at.min(end)),
            Next::Nothing => Next::Settle(end),
        };
        if moves(&found, *active, Time(self.now)) {
            self.step(&Step::Settles);
        }
        comes_back_unused
    }

    fn is_used_and_dead(&self, device: u8) -> bool {
        let mut devices = self.session.devices.iter().filter(|d| d.id == device_id(device));
        devices.any(|device| device.active_at.is_some() && !self.moment().is_alive(device))
    }

    /// What sweeps and archiving passes do, at the very millisecond.
    fn look_if_due(&mut self) {
        match self.session.next {
            Next::Settle(at) if at.0 <= self.now => self.step(&Step::Settles),
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
                self.history.add(self.now, Happening::Pruned { device });
            }
        }
    }

    /// What the rules show at `now`, in the model's words.
    fn shown(&self, now: u64) -> (State, Option<u8>) {
        let shown = derive(&self.session, &Moment::at(Time(now)), &RULES);
        (shown.state, shown.note.map(|note| note.text.parse().expect("notes are numbers here")))
    }
}

fn device_id(device: u8) -> DeviceId {
    DeviceId::parse(format!("d{device}")).expect("a short id")
}

fn found(session: &Session) -> Found {
    let (state, version) = session.published.as_ref().map_or((State::Offline, 0), |p| (p.state, p.version));
    let (stance, stance_until) = session.choice.as_ref().map_or((Stance::Auto, None), |c| (c.stance, c.until));
    Found { state, version, stance, stance_until }
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn state_note_and_last_seen_agree_with_the_model(steps in steps()) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
            prop_assert_eq!(life.shown(life.now), life.history.shown(life.now, &RULES));
            let last_seen = derive_published(&life.session, &life.moment(), &RULES).last_seen;
            prop_assert_eq!(last_seen.map(|at| at.0), life.history.last_seen(&RULES));
        }
        for later in life.now..life.now + HORIZON {
            prop_assert_eq!(life.shown(later), life.history.shown(later, &RULES));
        }
    }

    #[test]
    fn next_change_is_the_first_instant_at_which_the_model_changes(steps in steps()) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
        }
        let shown = derive(&life.session, &life.moment(), &RULES);
        let next = next_change(&life.session, &life.moment(), &RULES, &shown);
        let now = life.history.shown(life.now, &RULES);
        let first = (life.now..life.now + HORIZON).find(|&at| life.history.shown(at, &RULES) != now);
        prop_assert_eq!(next.map(|at| at.0), first);
    }

    /// With no more than a look at each deadline that the last look set, nothing is ever noticed late.
    #[test]
    fn looking_at_deadlines_alone_follows_every_change(steps in steps()) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
        }
        life.step(&Step::Settles);
        for _ in 0..HORIZON {
            life.now += 1;
            life.look_if_due();
            let published = life.session.published.as_ref();
            prop_assert!(!derive(&life.session, &life.moment(), &RULES).differs_from(published), "at {}", life.now);
        }
        // All that can be left is a choice without an end.
        let choice = life.session.choice.as_ref();
        prop_assert!(life.session.is_empty() || choice.is_some_and(|choice| choice.matters_at(Time(life.now))));
        prop_assert_eq!(life.session.next, Next::Nothing);
    }

    /// The whole protocol with nothing broken: beats that mostly tell nobody, and a look at each deadline.
    #[test]
    fn the_record_is_right_in_every_millisecond(steps in steps()) {
        let mut life = Life::new();
        let mut is_excused = false;
        for (wait, step) in &steps {
            for _ in 0..*wait {
                life.now += 1;
                life.look_if_due();
                let shown = derive(&life.session, &life.moment(), &RULES);
                let differs = shown.differs_from(life.session.published.as_ref());
                prop_assert!(!differs || is_excused, "at {}: {shown:?}, {:?}", life.now, life.session);
                is_excused &= differs;
            }
            is_excused |= life.serve(step);
        }
    }

    #[test]
    fn versions_strictly_rise_and_consecutive_publications_differ(steps in steps()) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
        }
        for pair in life.published.windows(2) {
            prop_assert!(pair[0].version < pair[1].version);
            prop_assert_ne!(&pair[0], &Published { version: pair[0].version, ..pair[1].clone() });
        }
    }

    /// But for the one exception that `heartbeat::moves` names.
    #[test]
    fn no_change_that_a_beat_brings_is_missed(steps in steps(), device in 0..DEVICES, active: bool) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
        }
        life.step(&Step::Settles);
        let was_used = life.is_used_and_dead(device);
        let found = life.touch(&Happening::Beat { device, active });
        let state = derive(&life.session, &life.moment(), &RULES).state;
        let comes_back_unused = was_used && !active && (found.state, state) == (State::Away, State::Online);
        let is_noticed = moves(&found, active, Time(life.now));
        prop_assert!(state == found.state || is_noticed || comes_back_unused, "{found:?} becomes {state:?}");
    }

    #[test]
    fn an_invisible_person_changes_by_nothing_but_their_own_note(steps in steps()) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            let was_invisible = life.history.is_invisible(life.now);
            // Until somebody settles, the record may still be from before; whoever chose to be invisible settled it.
            let before = derive_published(&life.session, &life.moment(), &RULES);
            let record = life.session.published.clone();
            life.step(step);
            if was_invisible && life.history.is_invisible(life.now) {
                let after = derive_published(&life.session, &life.moment(), &RULES);
                let unnoted = |p: &Published| (p.state, p.since, p.last_seen);
                prop_assert_eq!(unnoted(&before), unnoted(&after));
                prop_assert!(before.note != after.note || record == life.session.published, "{:?}", life.session);
            }
        }
    }

    #[test]
    fn beats_made_while_invisible_never_show_once_the_devices_are_dead(
        steps in steps(),
        hidden in proptest::collection::vec((0..DEVICES, any::<bool>(), 0u64..15), 1..6),
        ends_by_itself: bool,
    ) {
        let mut life = Life::new();
        for (wait, step) in &steps {
            life.now += wait;
            life.step(step);
        }
        let lasts = ends_by_itself.then_some(150);
        life.step(&Step::Happens(Happening::Chose { stance: Stance::Invisible, lasts, note: None }));
        let seen = derive_published(&life.session, &life.moment(), &RULES).last_seen;
        for (device, active, wait) in hidden {
            life.now += wait;
            life.touch(&Happening::Beat { device, active });
        }
        life.now += RULES.alive_for().0;
        if ends_by_itself {
            life.now += 150;
        } else {
            life.step(&Step::Happens(Happening::Chose { stance: Stance::Auto, lasts: None, note: None }));
        }
        life.step(&Step::Settles);
        prop_assert_eq!(derive_published(&life.session, &life.moment(), &RULES).last_seen, seen);
        prop_assert_eq!(life.session.published.and_then(|published| published.last_seen), seen);
    }
}
