//! What a request asks for and what it is answered, as plain values that have been checked.
//!
//! They mirror the contract (`wit/heartbeat.wit`, `query.wit`, `subscribe.wit`, `typing.wit`, `offline-sweep.wit`,
//! `restriction-check.wit`, `restrictions.wit`), so that whoever calls a function converts field by field. Nothing here
//! knows JSON.

pub use rollcall_core::choose::Words;
pub use rollcall_core::heartbeat::{Beat, Departure, Reason};
use rollcall_core::policy::{Change, Privacy};
pub use rollcall_core::visibility::View;
use rollcall_core::{Choice, ConversationId, DeviceId, DeviceKind, Ids, Stance, State, UserId};

pub use crate::event_id::EventId;
use crate::{Caller, Problem};

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
    Choose(ChoiceRequest),
    /// Who is here?
    LookUp(LookUp),
    /// Watch people and conversations, by server-sent events.
    Subscribe(Subscribe),
    /// A connection on which to watch, beat and type.
    Socket(Connect),
    /// A sign of typing.
    Type(TypingUpdate),
    /// Who types in a conversation?
    Typists {
        /// Through whose eyes; none: a service's, which see everybody.
        viewer: Option<UserId>,
        /// Where.
        conversation: ConversationId,
    },
    /// What does a person let others see?
    Privacy {
        /// Who.
        user: UserId,
    },
    /// A person sets what others may see.
    SetPrivacy {
        /// Who.
        user: UserId,
        /// What.
        privacy: Privacy,
    },
    /// Whom did a person list?
    Listed {
        /// Who.
        user: UserId,
        /// In which list.
        list: List,
    },
    /// A person lists somebody, or takes that back.
    List {
        /// Whose list it is.
        owner: UserId,
        /// Whom. Never the owner.
        other: UserId,
        /// In which list.
        list: List,
        /// Whether they stand in it from now on.
        listed: bool,
    },
    /// Is an account restricted?
    Restriction {
        /// Whose.
        user: UserId,
    },
    /// An administrator restricts an account, or lifts that.
    SetRestriction {
        /// Whose.
        user: UserId,
        /// Whether it is restricted from now on.
        restricted: bool,
    },
    /// What may somebody see of these people, and why not?
    Check {
        /// Through whose eyes; none: a service's.
        viewer: Option<UserId>,
        /// Of whom, in the order asked. At least one, at most [`MAX_SUBJECTS`](rollcall_core::policy::MAX_SUBJECTS).
        subjects: Ids<UserId>,
    },
    /// Many changes of who may see whom, of which the bad ones were set apart.
    Changes(Changes),
    /// Settle who is due.
    Sweep(Sweep),
    /// What did the host count?
    Stats,
    /// What is known about a person?
    Person {
        /// Whom.
        user: UserId,
    },
}

/// A batch of beats, cut in two: what can be tried, and what cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beats {
    /// The beats to take, in the order sent.
    pub good: Vec<Beat>,
    /// Those refused already, by rising place.
    pub refused: Vec<Refused>,
}

/// One item of a batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its place in the batch, from 0.
    pub place: usize,
    /// Whose it was, if that much could be read.
    pub user: Option<UserId>,
    /// Why; the field is named as within the item.
    pub problem: Problem,
}

/// A list that a person keeps of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Those who may see what is for contacts only.
    Contacts,
    /// Those whom the person does not want to see or to be seen by.
    Blocks,
}

/// A batch of changes of policy, cut in two: what can be tried, and what cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The changes to make, in the order sent.
    pub good: Vec<Change>,
    /// Those refused already, by rising place.
    pub refused: Vec<Refused>,
}

/// A person's own setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceRequest {
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

/// A connection that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Who opened it: until when to believe it, and what may be asked on it, is theirs.
    pub caller: Caller,
    /// Through whose eyes; none: a service's, which see everybody.
    pub viewer: Option<UserId>,
    /// The device that it keeps alive; none: whoever holds the connection names one.
    pub device: Option<DeviceId>,
    /// Of what kind the device is.
    pub kind: DeviceKind,
    /// Whether the connection is a sign of life. Never for a caller that sees everybody: a program is not present.
    pub beats: bool,
    /// Whether the person opened it, rather than a program that connects again by itself: then it is no sign that they are
    /// there.
    pub active: bool,
}

/// Watch people and conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// By which connection.
    pub connect: Connect,
    /// Whom, each once. If nobody, then some conversation.
    pub users: Vec<UserId>,
    /// Where to see who types, each once.
    pub conversations: Vec<ConversationId>,
    /// Up to where the watcher has heard; none: nothing yet.
    pub since: Option<EventId>,
}

/// A person starts, goes on, or stops typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingUpdate {
    /// Who.
    pub user: UserId,
    /// Where.
    pub conversation: ConversationId,
    /// Started or goes on, or stopped.
    pub typing: bool,
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
