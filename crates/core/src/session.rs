//! The data of one user's session. The other modules have the rules.

use crate::{DeviceId, Time};

/// The state that others see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A device is alive, and the user used one lately.
    Online,
    /// A device is alive, but the user chose to be away or is idle.
    Away,
    /// A device is alive, and the user chose not to be disturbed.
    Busy,
    /// No device is alive, or the user is invisible.
    Offline,
}

/// The kind of program that beats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A page in a browser.
    Web,
    /// An app on a phone or tablet.
    Mobile,
    /// A program on a desktop.
    Desktop,
    /// Anything else.
    Other,
}

/// The value of a user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stance {
    /// The state follows from the devices.
    Auto,
    /// Always away.
    Away,
    /// Not to be disturbed.
    Busy,
    /// Shown as offline to everyone else.
    Invisible,
}

/// A session keeps this many devices and drops those with the oldest beats beyond it. A user has a handful; 64 leaves room
/// for a browser that creates a new device id at every reload, within one `d + ε`.
pub const MAX_DEVICES: usize = 64;

/// One device of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The device.
    pub id: DeviceId,
    /// The kind of program.
    pub kind: DeviceKind,
    /// Its newest beat.
    pub beat_at: Time,
    /// When the user last used it.
    pub active_at: Option<Time>,
    /// When it expires unless it beats again.
    pub expires_at: Time,
}

/// A short text shown beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The text.
    pub text: String,
    /// An emoji.
    pub emoji: String,
    /// When it stops being shown.
    pub until: Option<Time>,
}

/// A user's own setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen.
    pub stance: Stance,
    /// When it was chosen; for an invisible that replaces an invisible, when the first was chosen.
    pub at: Time,
    /// When it returns to [`Stance::Auto`].
    pub until: Option<Time>,
    /// The note chosen along with it.
    pub note: Option<Note>,
}

impl Choice {
    /// The stance in force at `now`.
    pub fn stance_at(&self, now: Time) -> Stance {
        match self.until {
            Some(until) if until <= now => Stance::Auto,
            _ => self.stance,
        }
    }

    /// The note in force at `now`.
    pub fn note_at(&self, now: Time) -> Option<&Note> {
        self.note.as_ref().filter(|note| note.until.is_none_or(|until| until > now))
    }

    /// Whether a beat at `beat_at` was made while this choice hid the user.
    pub fn hid(&self, beat_at: Time) -> bool {
        self.stance == Stance::Invisible && beat_at >= self.at && self.until.is_none_or(|until| beat_at < until)
    }

    /// Whether this has an effect at `now`, so that it must not be evicted with the session.
    pub fn matters_at(&self, now: Time) -> bool {
        self.stance_at(now) != Stance::Auto || self.note_at(now).is_some()
    }
}

/// What was last published about a user, or what would be published now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The state that others see.
    pub state: State,
    /// The note that others see.
    pub note: Option<Note>,
    /// When the state began by the rules; for offline, the last seen time.
    pub since: Option<Time>,
    /// The newest beat made while visible.
    pub last_seen: Option<Time>,
    /// Orders the records of one user; 0 if nothing was ever published.
    pub version: u64,
}

impl Published {
    /// What others see of a user before anything was published.
    pub const NOTHING: Self = Self { state: State::Offline, note: None, since: None, last_seen: None, version: 0 };
}

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Next {
    /// Nothing.
    #[default]
    Nothing,
    /// At this instant the state can change by itself.
    Settle(Time),
    /// The user is offline with nothing pending; the session may be archived from this instant on.
    Evict(Time),
}

/// The compare-and-swap token of a session. Equal revisions mean that nothing changed in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision {
    /// Changes with every commit.
    pub commits: u64,
    /// Changes with every touch.
    pub touches: u64,
}

/// Everything that the hot store keeps about one user. The default is a user about whom nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// The devices that are not pruned yet, dead ones included.
    pub devices: Vec<Device>,
    /// The user's own setting.
    pub choice: Option<Choice>,
    /// What was last published.
    pub published: Option<Published>,
    /// What the session waits for.
    pub next: Next,
    /// The revision that a commit is compared with.
    pub revision: Revision,
}

impl Session {
    /// Whether nothing is stored, so that only the archive may know the user.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.choice.is_none() && self.published.is_none()
    }
}

/// The grace after an outage of the store: devices alive before the outage count as alive until `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageGrace {
    /// When the store last answered. Devices alive at that time get the grace.
    pub since: Time,
    /// Those devices live at least until this instant.
    pub until: Time,
}

/// The instant at which a decision is made: the store's time and the outage grace in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The store's time.
    pub now: Time,
    /// The outage grace in force, if any.
    pub outage_grace: Option<OutageGrace>,
}

impl Moment {
    /// An instant without outage grace.
    pub fn at(now: Time) -> Self {
        Self { now, outage_grace: None }
    }

    /// Another instant with the same outage grace.
    pub fn moved_to(self, now: Time) -> Self {
        Self { now, ..self }
    }

    /// When the device expires, outage grace included.
    pub fn effective_expiry(&self, device: &Device) -> Time {
        match self.outage_grace {
            Some(outage_grace) if device.expires_at > outage_grace.since => device.expires_at.max(outage_grace.until),
            _ => device.expires_at,
        }
    }

    /// A device that expired by this instant counts as expired, with or without outage grace.
    pub fn expired_for_certain_by(&self) -> Time {
        match self.outage_grace {
            Some(outage_grace) if outage_grace.until > self.now => outage_grace.since.min(self.now),
            _ => self.now,
        }
    }

    /// Whether the device is alive.
    pub fn is_alive(&self, device: &Device) -> bool {
        self.effective_expiry(device) > self.now
    }
}
