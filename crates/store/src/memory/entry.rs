//! One user's session in memory, and how a touch and a commit change it.
//!
//! The same content as [`Session`], laid out so that a heartbeat of a user with one device reads and writes three adjacent cache
//! lines: ids and the first device in place, what is rare (a choice, a note) behind a pointer.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::settle::Decision;
use rollcall_core::{
    Choice, DeadlineState, Device, DeviceId, DeviceKind, MAX_DEVICES, Next, Note, Published, Record, Revision, Session,
    Span, Stance, State, Time,
};
use rollcall_functions::capabilities::DeviceEvent;
use smallvec::SmallVec;

use super::id::Id;

/// When a device that logged out expires: before any instant, so that no outage grace applies.
const LONG_AGO: Time = Time(0);

/// A session, aligned to cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) user: Id,
    /// Changes with every touch and every commit: both halves of the revision in one.
    pub(super) tick: u64,
    pub(super) next: Next,
    record: Option<PublishedEntry>,
    choice: Option<Box<Choice>>,
    devices: SmallVec<[DeviceEntry; 1]>,
}

/// A [`Published`] with its note behind a pointer.
#[derive(Debug)]
struct PublishedEntry {
    version: u64,
    since: OptionalTime,
    last_seen: OptionalTime,
    note: Option<Box<Note>>,
    state: State,
}

/// A [`Device`].
#[derive(Debug)]
struct DeviceEntry {
    id: Id,
    beat_at: Time,
    active_at: OptionalTime,
    expires_at: Time,
    kind: DeviceKind,
}

/// An optional time in eight bytes. The greatest value means `None`.
#[derive(Debug, Clone, Copy)]
struct OptionalTime(u64);

impl OptionalTime {
    const NONE: OptionalTime = OptionalTime(u64::MAX);

    fn time(self) -> Option<Time> {
        (self.0 != Self::NONE.0).then_some(Time(self.0))
    }
}

impl From<Option<Time>> for OptionalTime {
    fn from(time: Option<Time>) -> Self {
        time.map_or(Self::NONE, |time| Self(time.0))
    }
}

/// When a batch of touches happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct TouchTime {
    /// The store's time.
    pub(super) now: Time,
    /// Devices that expired by this instant are dead, outage grace included.
    pub(super) expired_by: Time,
}

impl Entry {
    /// An empty session.
    pub(super) fn new(user: &str) -> Self {
        Self { user: Id::new(user), tick: 0, next: Next::Nothing, record: None, choice: None, devices: SmallVec::new() }
    }

    pub(super) fn from_session(user: &str, session: Session) -> Self {
        Self {
            user: Id::new(user),
            tick: 0,
            next: session.next,
            record: session.published.map(PublishedEntry::from),
            choice: session.choice.map(Box::new),
            devices: session.devices.into_iter().map(DeviceEntry::from).collect(),
        }
    }

    pub(super) fn to_session(&self) -> Session {
        Session {
            devices: self.devices.iter().filter_map(DeviceEntry::to_device).collect(),
            choice: self.choice.as_deref().cloned(),
            published: self.record.as_ref().map(PublishedEntry::to_published),
            next: self.next,
            revision: self.revision(),
        }
    }

    /// What a reader gets.
    pub(super) fn to_record(&self, now: Time) -> Record {
        let is_invisible = |choice: &Choice| choice.stance_at(now) == Stance::Invisible;
        Record {
            published: self.record.as_ref().map_or(Published::NOTHING, PublishedEntry::to_published),
            deadline: DeadlineState::of(self.next, now),
            invisible: self.choice.as_deref().is_some_and(is_invisible),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision { commits: self.tick, touches: self.tick }
    }

    /// What a touch returns.
    pub(super) fn prior_state(&self) -> PriorState {
        let mut prior = PriorState::NOTHING;
        if let Some(record) = &self.record {
            prior.state = record.state;
            prior.version = record.version;
        }
        if let Some(choice) = &self.choice {
            prior.stance = choice.stance;
            prior.stance_until = choice.until;
        }
        prior
    }

    /// Whether the entry is empty and can be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.devices.is_empty() && self.choice.is_none() && self.record.is_none() && self.next == Next::Nothing
    }

    pub(super) fn is_online(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state != State::Offline)
    }

    pub(super) fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.version)
    }

    pub(super) fn last_seen(&self) -> Option<Time> {
        self.record.as_ref().and_then(|record| record.last_seen.time())
    }

    pub(super) fn has_choice(&self) -> bool {
        self.choice.is_some()
    }

    /// Applies a device event, and makes the session due no later than when it ends, so that the sweep finds a touch that was
    /// stored but never published. It never moves a deadline back: settling too early is harmless.
    pub(super) fn touch(&mut self, device: &str, event: DeviceEvent, when: TouchTime) {
        let known = self.devices.iter_mut().find(|entry| entry.id.is(device));
        match (event, known) {
            (DeviceEvent::Beat { kind, active, alive_for }, Some(entry)) => {
                entry.beat(kind, active, alive_for, when.now);
                self.be_due_by(when.now + alive_for);
            }
            (DeviceEvent::Beat { kind, active, alive_for }, None) => {
                self.make_room(when.expired_by);
                self.devices.push(DeviceEntry {
                    id: Id::new(device),
                    beat_at: when.now,
                    active_at: active.then_some(when.now).into(),
                    expires_at: when.now + alive_for,
                    kind,
                });
                self.be_due_by(when.now + alive_for);
            }
            (DeviceEvent::Dropped(grace), Some(entry)) => {
                entry.expires_at = entry.expires_at.min(when.now + grace);
                self.be_due_by(when.now + grace);
            }
            (DeviceEvent::Logout, Some(entry)) => {
                entry.log_out();
                self.be_due_by(when.now);
            }
            (DeviceEvent::Dropped(_) | DeviceEvent::Logout, None) => {}
        }
    }

    fn be_due_by(&mut self, end: Time) {
        self.next = match self.next {
            Next::Settle(at) | Next::Evict(at) => Next::Settle(at.min(end)),
            Next::Nothing => Next::Settle(end),
        };
    }

    /// Makes room for one more device: drops a dead one, or the one with the oldest beat.
    fn make_room(&mut self, expired_by: Time) {
        if self.devices.len() < MAX_DEVICES {
            return;
        }
        let order = |entry: &DeviceEntry| (entry.expires_at > expired_by, entry.beat_at);
        let least = self.devices.iter().enumerate().min_by_key(|(_, entry)| order(entry)).map(|(index, _)| index);
        if let Some(index) = least {
            self.devices.swap_remove(index);
        }
    }

    /// Applies a decision after the revision was compared.
    pub(super) fn apply(&mut self, decision: Decision) {
        if let Some(published) = decision.publish {
            self.record = Some(PublishedEntry::from(published));
        }
        if let Some(choice) = decision.choice {
            self.choice = Some(Box::new(choice));
        }
        if decision.prune_expired_by > Time(0) {
            self.devices.retain(|entry| entry.expires_at > decision.prune_expired_by);
        }
        self.next = decision.next;
    }
}

impl DeviceEntry {
    fn beat(&mut self, kind: DeviceKind, active: bool, alive_for: Span, now: Time) {
        // A batch reads the time before it takes locks, so a later batch may come first. Beats never go backwards.
        let now = now.max(self.beat_at);
        self.kind = kind;
        self.beat_at = now;
        self.expires_at = now + alive_for;
        if active {
            self.active_at = OptionalTime(now.0);
        }
    }

    /// The device is dead at once, but its newest beat may be the last seen, which no record has yet. So the device stays until a
    /// commit publishes that and prunes it. Its last use is cleared, so that a device that comes back under the same id does
    /// not inherit it.
    fn log_out(&mut self) {
        self.expires_at = LONG_AGO;
        self.active_at = OptionalTime::NONE;
    }

    /// `None` never happens: the id was checked before.
    fn to_device(&self) -> Option<Device> {
        Some(Device {
            id: DeviceId::parse(self.id.to_text()).ok()?,
            kind: self.kind,
            beat_at: self.beat_at,
            active_at: self.active_at.time(),
            expires_at: self.expires_at,
        })
    }
}

impl From<Device> for DeviceEntry {
    fn from(device: Device) -> Self {
        Self {
            id: Id::new(device.id.as_str()),
            beat_at: device.beat_at,
            active_at: device.active_at.into(),
            expires_at: device.expires_at,
            kind: device.kind,
        }
    }
}

impl From<Published> for PublishedEntry {
    fn from(published: Published) -> Self {
        Self {
            version: published.version,
            since: published.since.into(),
            last_seen: published.last_seen.into(),
            note: published.note.map(Box::new),
            state: published.state,
        }
    }
}

impl PublishedEntry {
    fn to_published(&self) -> Published {
        Published {
            state: self.state,
            note: self.note.as_deref().cloned(),
            since: self.since.time(),
            last_seen: self.last_seen.time(),
            version: self.version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry is three cache lines: a million users take 192 MB.
    #[test]
    fn entry_is_three_cache_lines() {
        assert_eq!(size_of::<Option<Entry>>(), 192);
    }
}
