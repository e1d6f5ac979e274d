//! The true state of a user. It receives every touch and choice when it reaches the store, and decides at that moment
//! whether a beat is visible and how long a device lives. The functions decide the same later, from the stored session;
//! the simulation checks that both agree.

use std::collections::BTreeMap;

use rollcall_core::{Choice, DeviceId, Note, OutageGrace, Rules, Span, Stance, State, Time};

/// The lifetime of a device.
#[derive(Debug, Clone)]
struct Lifetime {
    beat: Time,
    used: Option<Time>,
    /// When it expires without outage grace.
    own_end: Time,
    /// When it expires, outage grace included.
    end: Time,
}

/// What others should see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) state: State,
    pub(crate) note: Option<Note>,
}

/// Everything that happened to one user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    devices: BTreeMap<DeviceId, Lifetime>,
    pub(crate) choice: Option<Choice>,
    /// The newest visible beat.
    pub(crate) seen: Option<Time>,
    /// The same since the last eviction: the hot store knows no older one.
    pub(crate) hot_seen: Option<Time>,
}

impl Oracle {
    pub(crate) fn beat(&mut self, now: Time, device: &DeviceId, active: bool, alive_for: Span) {
        let end = now + alive_for;
        let before = self.devices.get(device).and_then(|life| life.used);
        let used = if active { Some(now) } else { before };
        self.devices.insert(device.clone(), Lifetime { beat: now, used, own_end: end, end });
        if !self.is_invisible(now) {
            self.see(now);
        }
    }

    pub(crate) fn dropped(&mut self, now: Time, device: &DeviceId, grace: Span, outage_grace: Option<OutageGrace>) {
        if let Some(life) = self.devices.get_mut(device) {
            life.own_end = life.own_end.min(now + grace);
            life.end = life.own_end;
            if let Some(outage_grace) = outage_grace.filter(|outage_grace| life.own_end > outage_grace.since) {
                life.end = life.end.max(outage_grace.until);
            }
        }
    }

    pub(crate) fn logout(&mut self, device: &DeviceId) {
        if let Some(life) = self.devices.get_mut(device) {
            *life = Lifetime { beat: life.beat, used: None, own_end: Time(0), end: Time(0) };
        }
    }

    /// A choice made at `at`. It reveals the beats of live devices, unless it keeps the user invisible.
    pub(crate) fn choose(&mut self, at: Time, choice: Choice) {
        let stays_invisible = self.is_invisible(at) && choice.stance == Stance::Invisible;
        if !stays_invisible {
            let revealed = self.devices.values().filter(|life| life.end > at).map(|life| life.beat).max();
            self.see_if_newer(revealed);
        }
        self.choice = Some(choice);
    }

    /// An outage is over: devices that were alive when it began stay alive until `until`.
    pub(crate) fn outage_grace(&mut self, began: Time, until: Time) {
        for life in self.devices.values_mut().filter(|life| life.end > began) {
            life.end = life.end.max(until);
        }
    }

    /// The store prunes a device. Returns whether it had expired.
    pub(crate) fn prune(&mut self, now: Time, device: &DeviceId) -> bool {
        self.devices.remove(device).is_none_or(|life| life.end <= now)
    }

    /// The store evicts the session.
    pub(crate) fn evict(&mut self) {
        *self = Self { seen: self.seen, ..Self::default() };
    }

    /// Whether the device was used, has expired and is still stored.
    pub(crate) fn is_used_and_expired(&self, now: Time, device: &DeviceId) -> bool {
        self.devices.get(device).is_some_and(|life| life.used.is_some() && life.end <= now)
    }

    pub(crate) fn has_live_device(&self, now: Time) -> bool {
        self.devices.values().any(|life| life.end > now)
    }

    pub(crate) fn is_invisible(&self, now: Time) -> bool {
        self.stance(now) == Stance::Invisible
    }

    pub(crate) fn truth(&self, now: Time, rules: &Rules) -> Truth {
        let used = |life: &Lifetime| life.used.is_some_and(|at| at + rules.idle_after > now);
        let state = match self.stance(now) {
            _ if !self.has_live_device(now) => State::Offline,
            Stance::Invisible => State::Offline,
            Stance::Busy => State::Busy,
            Stance::Away => State::Away,
            Stance::Auto if self.devices.values().any(|life| life.end > now && used(life)) => State::Online,
            Stance::Auto => State::Away,
        };
        let note = self.choice.as_ref().and_then(|choice| choice.note.clone());
        Truth { state, note: note.filter(|note| note.until.is_none_or(|until| until > now)) }
    }

    /// The next instant at which the truth can change without an event.
    pub(crate) fn next_change(&self, now: Time, rules: &Rules) -> Option<Time> {
        let devices =
            self.devices.values().flat_map(|life| [Some(life.end), life.used.map(|at| at + rules.idle_after)]);
        let choice = self.choice.iter().map(|choice| choice.until);
        devices.chain(choice).flatten().filter(|&at| at > now).min()
    }

    fn stance(&self, now: Time) -> Stance {
        match &self.choice {
            Some(choice) if choice.until.is_none_or(|until| until > now) => choice.stance,
            _ => Stance::Auto,
        }
    }

    fn see(&mut self, at: Time) {
        self.see_if_newer(Some(at));
    }

    fn see_if_newer(&mut self, at: Option<Time>) {
        self.seen = self.seen.max(at);
        self.hot_seen = self.hot_seen.max(at);
    }
}
