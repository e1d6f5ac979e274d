//! A naive model: it keeps the whole list of what happened and answers every question by reading it from the start.
//! Slow, and short enough to be believed.

use rollcall_core::{Rules, Stance, State};

/// What can happen to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happening {
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
    /// A choice, with how long it lasts and the note that goes with it.
    Chose {
        stance: Stance,
        lasts: Option<u64>,
        note: Option<u8>,
    },
    /// The store was told to forget what it knew of a device.
    Pruned {
        device: u8,
    },
}

/// Everything that happened to one person, in order, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) happenings: Vec<(u64, Happening)>,
}

/// The devices that a history speaks of.
pub(crate) const DEVICES: u8 = 3;

impl History {
    pub(crate) fn add(&mut self, now: u64, happening: Happening) {
        self.happenings.push((now, happening));
    }

    /// When the device dies, by the first so many happenings.
    fn end(&self, first: usize, device: u8, rules: &Rules) -> u64 {
        let mut end = 0;
        for (at, happening) in self.happenings.iter().take(first) {
            match happening {
                Happening::Beat { device: d, .. } if *d == device => end = at + rules.alive_for().0,
                Happening::Dropped { device: d } if *d == device => end = end.min(at + rules.grace.0),
                Happening::Logout { device: d } if *d == device => end = 0,
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
        for (at, happening) in &self.happenings {
            match happening {
                Happening::Beat { device: d, active: true } if *d == device => used = Some(*at),
                Happening::Logout { device: d } | Happening::Pruned { device: d } if *d == device => used = None,
                _ => {}
            }
        }
        used
    }

    /// The choice in force, by the first so many happenings.
    fn choice(&self, first: usize, now: u64) -> (Stance, Option<u8>) {
        let mut choice = (Stance::Auto, None);
        for (at, happening) in self.happenings.iter().take(first) {
            if let Happening::Chose { stance, lasts, note } = happening {
                let is_over = lasts.is_some_and(|lasts| at + lasts <= now);
                choice = if is_over { (Stance::Auto, None) } else { (*stance, *note) };
            }
        }
        choice
    }

    pub(crate) fn is_invisible(&self, now: u64) -> bool {
        self.choice(self.happenings.len(), now).0 == Stance::Invisible
    }

    /// What others see, if nothing more happens until `now`.
    pub(crate) fn shown(&self, now: u64, rules: &Rules) -> (State, Option<u8>) {
        let all = self.happenings.len();
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

    /// The newest beat that others may know of: made while visible, or by a device that was alive when a choice ended
    /// its hiding.
    pub(crate) fn last_seen(&self, rules: &Rules) -> Option<u64> {
        let mut seen = None;
        for (index, (at, happening)) in self.happenings.iter().enumerate() {
            match happening {
                Happening::Beat { .. } if self.choice(index, *at).0 != Stance::Invisible => seen = seen.max(Some(*at)),
                Happening::Chose { stance, .. } => {
                    let goes_on = *stance == Stance::Invisible && self.choice(index, *at).0 == Stance::Invisible;
                    for device in (0..DEVICES).filter(|&device| !goes_on && self.is_alive(index, device, *at, rules)) {
                        seen = seen.max(self.newest_beat(index, device));
                    }
                }
                _ => {}
            }
        }
        seen
    }

    fn newest_beat(&self, first: usize, device: u8) -> Option<u64> {
        let is_beat = |happening: &Happening| matches!(happening, Happening::Beat { device: d, .. } if *d == device);
        self.happenings.iter().take(first).filter(|(_, happening)| is_beat(happening)).map(|(at, _)| *at).max()
    }
}
