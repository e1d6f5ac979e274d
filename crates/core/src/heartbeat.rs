//! Beats and departures, and whether a beat changes what others see. That is decided from the little that a touch brings
//! back, so that in the steady state one round trip is all there is.

use crate::{DeviceId, DeviceKind, Ids, Stance, State, Time, UserId};

/// One sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Who is alive.
    pub user: UserId,
    /// On which device.
    pub device: DeviceId,
    /// What sort of program beats.
    pub kind: DeviceKind,
    /// Whether the person used the device since its last beat.
    pub active: bool,
}

/// Many signs of life, column by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beats {
    /// Who is alive.
    pub users: Ids<UserId>,
    /// On which device.
    pub devices: Ids<DeviceId>,
    /// In what way.
    pub details: Vec<BeatDetails>,
}

/// What a sign of life says besides whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeatDetails {
    /// What sort of program beats.
    pub kind: DeviceKind,
    /// Whether the person used the device since its last beat.
    pub active: bool,
}

impl FromIterator<Beat> for Beats {
    fn from_iter<T: IntoIterator<Item = Beat>>(beats: T) -> Self {
        let beats = beats.into_iter();
        let count = beats.size_hint().0;
        let (users, devices) = (Ids::with_capacity(count), Ids::with_capacity(count));
        let mut packed = Self { users, devices, details: Vec::with_capacity(count) };
        for Beat { user, device, kind, active } in beats {
            packed.users.push(&user);
            packed.devices.push(&device);
            packed.details.push(BeatDetails { kind, active });
        }
        packed
    }
}

/// A device leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// Whose device.
    pub user: UserId,
    /// Which of them.
    pub device: DeviceId,
    /// Why.
    pub reason: Reason,
}

/// Why a device leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The person meant it.
    Logout,
    /// The connection broke.
    Dropped,
}

/// What a touch found just before it left its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The state last published; offline if nothing ever was.
    pub state: State,
    /// The version of that; 0 if nothing ever was.
    pub version: u64,
    /// The person's stance.
    pub stance: Stance,
    /// When that stance ends.
    pub stance_until: Option<Time>,
}

impl Found {
    /// What a touch finds of somebody of whom nothing was ever published.
    pub const NOTHING: Self = Self { state: State::Offline, version: 0, stance: Stance::Auto, stance_until: None };
}

/// Whether the session has to be loaded and settled after this beat. A false alarm costs a round trip; a missed change
/// would be seen by nobody until the deadline, so in doubt this says yes.
///
/// One change it cannot see: a device that was used lately, died, was not pruned and comes back unused brings a person
/// with another idle device online. To ask about every idle beat would cost more than that; the deadline, at most
/// `d + ε` away, finds it.
pub fn moves(found: &Found, active: bool, now: Time) -> bool {
    let stance = match found.stance_until {
        Some(until) if until <= now => Stance::Auto,
        _ => found.stance,
    };
    match stance {
        Stance::Invisible => found.state != State::Offline,
        Stance::Busy => found.state != State::Busy,
        Stance::Away => found.state != State::Away,
        Stance::Auto if active => found.state != State::Online,
        // The beat keeps the device alive and says nothing of its use: when idleness begins is the deadline's business.
        Stance::Auto => !matches!(found.state, State::Online | State::Away),
    }
}
