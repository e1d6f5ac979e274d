//! Beats and departures, and whether a beat changes what others see. That is decided from what a touch returns, so that in
//! the steady state a beat is one round trip.

use crate::{DeviceId, DeviceKind, Ids, Stance, State, Time, UserId};

/// One heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// The user.
    pub user: UserId,
    /// The device that beats.
    pub device: DeviceId,
    /// The kind of program.
    pub kind: DeviceKind,
    /// Whether the user used the device since its last beat.
    pub active: bool,
}

/// A batch of heartbeats, column by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beats {
    /// The users.
    pub users: Ids<UserId>,
    /// The devices that beat.
    pub devices: Ids<DeviceId>,
    /// The rest of each beat.
    pub details: Vec<BeatDetails>,
}

/// A heartbeat without its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeatDetails {
    /// The kind of program.
    pub kind: DeviceKind,
    /// Whether the user used the device since its last beat.
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
    /// The user.
    pub user: UserId,
    /// The device that leaves.
    pub device: DeviceId,
    /// Why it leaves.
    pub reason: DepartureReason,
}

/// Why a device leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepartureReason {
    /// The user logged out.
    Logout,
    /// The connection broke.
    Dropped,
}

/// What a touch returns: the user's state just before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorState {
    /// The state last published; offline if nothing ever was.
    pub state: State,
    /// The version last published; 0 if nothing ever was.
    pub version: u64,
    /// The user's stance.
    pub stance: Stance,
    /// When that stance ends.
    pub stance_until: Option<Time>,
}

impl PriorState {
    /// What a touch returns for a user about whom nothing was ever published.
    pub const NOTHING: Self = Self { state: State::Offline, version: 0, stance: Stance::Auto, stance_until: None };
}

/// Whether the session has to be loaded and settled after this beat. A false yes costs a round trip; a false no hides a
/// change until the deadline. In doubt the answer is yes.
///
/// One change is missed: a device that was used lately, expired, was not pruned and comes back unused brings a user with
/// another idle device online. Loading the session on every idle beat would cost more; the deadline, at most `d + ε`
/// away, finds it.
pub fn needs_settling(prior: &PriorState, active: bool, now: Time) -> bool {
    let stance = match prior.stance_until {
        Some(until) if until <= now => Stance::Auto,
        _ => prior.stance,
    };
    match stance {
        Stance::Invisible => prior.state != State::Offline,
        Stance::Busy => prior.state != State::Busy,
        Stance::Away => prior.state != State::Away,
        Stance::Auto if active => prior.state != State::Online,
        // The beat keeps the device alive and does not count as use; the deadline decides when the user turns idle.
        Stance::Auto => !matches!(prior.state, State::Online | State::Away),
    }
}
