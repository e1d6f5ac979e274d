//! What a request asks for and what it is answered, as plain values that have been checked.
//!
//! They mirror the contract (`wit/heartbeat.wit`, `query.wit`, `offline-sweep.wit`), so that whoever calls a function
//! converts field by field. Nothing here knows JSON.

pub use rollcall_core::choose::Words;
pub use rollcall_core::heartbeat::{Beat, Departure, Reason};
use rollcall_core::{Choice, Published, Stance, State, UserId};

use crate::Problem;

/// One request, understood and allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// One sign of life.
    Beat(Beat),
    /// Many, of which the bad ones were set apart.
    Beats(Beats),
    /// A device leaves.
    Leave(Departure),
    /// A person's own setting, or its end.
    Choose(Choosing),
    /// Who is here?
    LookUp(LookUp),
    /// Settle who is due.
    Sweep(Sweep),
}

/// A batch of beats, cut in two: what can be tried, and what cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beats {
    /// The beats to take, in the order sent.
    pub good: Vec<Beat>,
    /// Those refused already, by rising place.
    pub refused: Vec<Refused>,
}

/// One beat of a batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the batch, from 0.
    pub place: usize,
    /// Whose it was, if that much could be read.
    pub user: Option<UserId>,
    /// Why; the field is named as within the beat.
    pub problem: Problem,
}

/// A person's own setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choosing {
    /// Who chooses.
    pub user: UserId,
    /// What.
    pub stance: Stance,
    /// For how many seconds; none: until it is replaced. Between 1 and [`rollcall_core::choose::MAX_FOR_S`].
    pub for_s: Option<u32>,
    /// The words to show along with it.
    pub note: Option<Words>,
}

/// Who is here?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// Through whose eyes; none: a service's, which see everybody.
    pub viewer: Option<UserId>,
    /// About whom, in the order asked. Never empty; in the compact form, never the same twice.
    pub users: Vec<UserId>,
    /// How to answer.
    pub form: Form,
}

/// The shape of an answer about people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One presence.
    One,
    /// A list of presences, in the order asked.
    List,
    /// An object from id to state.
    Compact,
}

/// Settle who is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// At most so many people; none: as many as one pass takes.
    pub limit: Option<u32>,
}

/// How a person stands after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What others see.
    pub state: State,
    /// The version of that; 0 if nothing was ever published.
    pub version: u64,
    /// When the device should beat again, in milliseconds from now.
    pub next_beat_ms: u32,
}

/// How a person chose and how they stand now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// What others see.
    pub standing: Standing,
    /// The setting as it is kept.
    pub choice: Choice,
}

/// The visible part of a person. Where a viewer may know nothing there is no view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What is visible.
    pub published: Published,
    /// The person's own setting, for the person's own eyes.
    pub choice: Option<Choice>,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// People looked at.
    pub examined: u32,
    /// People of whom something new was published.
    pub published: u32,
    /// People found unchanged and scheduled anew.
    pub rescheduled: u32,
    /// Decisions that somebody else overtook.
    pub stale: u32,
    /// People whose store was away.
    pub failed: u32,
}
