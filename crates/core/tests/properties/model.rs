//! A naive model: it keeps all events of a user and computes every answer from the first event on. Slow, and short
//! enough to verify by reading.

use rollcall_core::{Rules, Stance, State};

/// An event of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Beat {
        device: u8,
        active: bool,
    },
    Dropped {
        device: u8,
    },
    Logout {
        device: u8,
    },
    /// A choice, with its duration and its note.
    Choose {
        stance: Stance,
        lasts: Option<u64>,
        note: Option<u8>,
    },
    /// The store pruned a device.
    Pruned {
        device: u8,
    },
}

/// All events of one user, in order, with their times.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<(u64, Event)>,
}

/// The number of devices in a history.
pub(crate) const DEVICES: u8 = 3;

impl History {
    pub(crate) fn add(&mut self, now: u64, event: Event) {
        self.events.push((now, event));
    }

    /// When the device expires, by the first `first` events.
    fn end(&self, first: usize, device: u8, rules: &Rules) -> u64 {
        let mut end = 0;
        for (at, event) in self.events.iter().take(first) {
            match event {
                Event::Beat { device: d, .. } if *d == device => end = at + rules.alive_for().0,
                Event::Dropped { device: d } if *d == device => end = end.min(at + rules.grace.0),
                Event::Logout { device: d } if *d == device => end = 0,
                _ => {}
            }
        }
        end
    }

    fn is_alive(&self, first: usize, device: u8, now: u64, rules: &Rules) -> bool {
        self.end(first, device, rules) > now
    }

    fn used(&self, device: u8) -> Option<u64> {
        let mut used = None;
        for (at, event) in &self.events {
            match event {
                Event::Beat { device: d, active: true } if *d == device => used = Some(*at),
                Event::Logout { device: d } | Event::Pruned { device: d } if *d == device => used = None,
                _ => {}
            }
        }
        used
    }

    /// The choice in force, by the first `first` events.
    fn choice(&self, first: usize, now: u64) -> (Stance, Option<u8>) {
        let mut choice = (Stance::Auto, None);
        for (at, event) in self.events.iter().take(first) {
            if let Event::Choose { stance, lasts, note } = event {
                let is_over = lasts.is_some_and(|lasts| at + lasts <= now);
                choice = if is_over { (Stance::Auto, None) } else { (*stance, *note) };
            }
        }
        choice
    }

    pub(crate) fn is_invisible(&self, now: u64) -> bool {
        self.choice(self.events.len(), now).0 == Stance::Invisible
    }

    /// What others see if no event follows until `now`.
    pub(crate) fn shown(&self, now: u64, rules: &Rules) -> (State, Option<u8>) {
        let all = self.events.len();
        let (stance, note) = self.choice(all, now);
        let alive: Vec<u8> = (0..DEVICES).filter(|&device| self.is_alive(all, device, now, rules)).collect();
        let is_used = |device: &u8| self.used(*device).is_some_and(|at| at + rules.idle_after.0 > now);
        let state = match stance {
            _ if alive.is_empty() => State::Offline,
            Stance::Invisible => State::Offline,
            Stance::Busy => State::Busy,
            Stance::Away => State::Away,
            Stance::Auto if alive.iter().any(is_used) => State::Online,
            Stance::Auto => State::Away,
        };
        (state, note)
    }

    /// The newest visible beat: made while visible, or by a device that was alive when a choice ended invisibility.
    pub(crate) fn last_seen(&self, rules: &Rules) -> Option<u64> {
        let mut seen = None;
        for (index, (at, event)) in self.events.iter().enumerate() {
            match event {
                Event::Beat { .. } if self.choice(index, *at).0 != Stance::Invisible => seen = seen.max(Some(*at)),
                Event::Choose { stance, .. } => {
                    let stays_invisible =
                        *stance == Stance::Invisible && self.choice(index, *at).0 == Stance::Invisible;
                    for device in
                        (0..DEVICES).filter(|&device| !stays_invisible && self.is_alive(index, device, *at, rules))
                    {
                        seen = seen.max(self.newest_beat(index, device));
                    }
                }
                _ => {}
            }
        }
        seen
    }

    fn newest_beat(&self, first: usize, device: u8) -> Option<u64> {
        let is_beat = |event: &Event| matches!(event, Event::Beat { device: d, .. } if *d == device);
        self.events.iter().take(first).filter(|(_, event)| is_beat(event)).map(|(at, _)| *at).max()
    }
}
