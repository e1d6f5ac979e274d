//! What is kept about one person. Plain data: what follows from it is in the other modules.

use crate::{DeviceId, Time};

/// What others see of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A device is alive, and the person used one lately.
    Online,
    /// A device is alive, but the person chose to be away or is idle.
    Away,
    /// A device is alive, and the person asked not to be disturbed.
    Busy,
    /// No device is alive, or the person is invisible.
    Offline,
}

/// What sort of program keeps a device alive.
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

/// What a person chose for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stance {
    /// The devices decide.
    Auto,
    /// Away, whatever the devices say.
    Away,
    /// Not to be disturbed.
    Busy,
    /// Offline in everybody else's eyes.
    Invisible,
}

/// A session keeps this many devices and drops those with the oldest beats beyond it. A person has a handful; sixty-four
/// leaves room for a browser that makes up a new device id at every reload, within one `d + ε`.
pub const MAX_DEVICES: usize = 64;

/// One device's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Which device.
    pub id: DeviceId,
    /// What sort of program it is.
    pub kind: DeviceKind,
    /// Its newest beat.
    pub beat_at: Time,
    /// When the person last used it.
    pub active_at: Option<Time>,
    /// When it dies unless it beats again.
    pub expires_at: Time,
}

/// A few words beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The words.
    pub text: String,
    /// An emoji.
    pub emoji: String,
    /// When it stops being shown.
    pub until: Option<Time>,
}

/// A person's own setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What was chosen.
    pub stance: Stance,
    /// When it was chosen; for an invisible that replaces an invisible, when the first was.
    pub at: Time,
    /// When it falls back to [`Stance::Auto`].
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

    /// Whether a beat at `beat_at` was made while this choice hid the person.
    pub fn hid(&self, beat_at: Time) -> bool {
        self.stance == Stance::Invisible && beat_at >= self.at && self.until.is_none_or(|until| beat_at < until)
    }

    /// Whether this still means something at `now`, so that it must outlive the session.
    pub fn matters_at(&self, now: Time) -> bool {
        self.stance_at(now) != Stance::Auto || self.note_at(now).is_some()
    }
}

/// What was last published about a person, or what would be published now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The state that others see.
    pub state: State,
    /// The note that others see.
    pub note: Option<Note>,
    /// When the state began by the rules; for offline, the last time seen.
    pub since: Option<Time>,
    /// The newest beat made while visible.
    pub last_seen: Option<Time>,
    /// Orders this among everything published about the person; 0 if nothing ever was.
    pub version: u64,
}

/// What a session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Next {
    /// Nothing.
    #[default]
    Nothing,
    /// Its state can change by itself at this instant.
    Settle(Time),
    /// It is offline with nothing pending and may be archived from this instant on.
    Evict(Time),
}

/// Where a session stood when it was loaded. Equal revisions mean that nothing came between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revision {
    /// Changes with every commit.
    pub commits: u64,
    /// Changes with every touch.
    pub touches: u64,
}

/// Everything kept about one person. The default is a person of whom nothing is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// The devices not yet pruned, dead ones among them.
    pub devices: Vec<Device>,
    /// The person's own setting.
    pub choice: Option<Choice>,
    /// What was last published.
    pub published: Option<Published>,
    /// What the session waits for.
    pub next: Next,
    /// Where it stood.
    pub revision: Revision,
}

impl Session {
    /// Whether nothing at all is kept, so that the archive is the only one who may remember the person.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.choice.is_none() && self.published.is_none()
    }
}

/// A span during which the store could not be reached, and the outage grace that follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageGrace {
    /// When the store was last known to answer. A device alive then is pardoned.
    pub since: Time,
    /// A pardoned device lives at least until this instant.
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
    /// An ordinary instant, with no outage grace in force.
    pub fn at(now: Time) -> Self {
        Self { now, outage_grace: None }
    }

    /// The same circumstances at another instant.
    pub fn moved_to(self, now: Time) -> Self {
        Self { now, ..self }
    }

    /// When the device dies, an outage grace included.
    pub fn death_of(&self, device: &Device) -> Time {
        match self.outage_grace {
            Some(outage_grace) if device.expires_at > outage_grace.since => device.expires_at.max(outage_grace.until),
            _ => device.expires_at,
        }
    }

    /// A device that expired by this instant is dead, whatever outage grace is in force.
    pub fn surely_dead_by(&self) -> Time {
        match self.outage_grace {
            Some(outage_grace) if outage_grace.until > self.now => outage_grace.since.min(self.now),
            _ => self.now,
        }
    }

    /// Whether the device is alive.
    pub fn is_alive(&self, device: &Device) -> bool {
        self.death_of(device) > self.now
    }
}
