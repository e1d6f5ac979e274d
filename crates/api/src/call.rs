//! Requests and results as plain, validated values.
//!
//! They mirror the contract (`wit/heartbeat.wit`, `query.wit`, `subscribe.wit`, `typing.wit`, `offline-sweep.wit`,
//! `restriction-check.wit`, `restrictions.wit`), so that callers of a function convert field by field. No
//! JSON here.

pub use rollcall_core::choose::NoteContent;
pub use rollcall_core::heartbeat::{Beat, Departure, DepartureReason};
use rollcall_core::policy::{PolicyChange, Privacy};
pub use rollcall_core::visibility::View;
use rollcall_core::{Choice, ConversationId, DeviceId, DeviceKind, Error, Ids, Stance, State, UserId};

pub use crate::event_id::EventId;
use crate::{Caller, Problem};

/// The answer to a batch of one.
pub fn only<T>(answers: Vec<Result<T, Error>>) -> Result<T, Error> {
    let missing = || Err(Error::Other("a function returned no item for a batch of one".to_owned()));
    answers.into_iter().next().unwrap_or_else(missing)
}

/// One request, decoded and permitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// One heartbeat.
    Beat(Beat),
    /// Many heartbeats; bad ones are separated.
    Beats(Beats),
    /// A device leaves.
    Leave(Departure),
    /// Set or remove the choice.
    Choose(ChoiceRequest),
    /// Query presence.
    LookUp(LookUp),
    /// Watch users and conversations by server-sent events.
    Subscribe(Subscribe),
    /// Open a WebSocket.
    Socket(Connect),
    /// Start, continue or stop typing.
    Type(TypingUpdate),
    /// List who is typing in a conversation.
    Typists {
        /// The viewer; `None` is a service, which sees every user.
        viewer: Option<UserId>,
        /// The conversation.
        conversation: ConversationId,
    },
    /// Read the privacy settings.
    Privacy {
        /// The user.
        user: UserId,
    },
    /// Set the privacy settings.
    SetPrivacy {
        /// The user.
        user: UserId,
        /// The new settings.
        privacy: Privacy,
    },
    /// Read a list.
    Listed {
        /// The user.
        user: UserId,
        /// Which list.
        list: List,
    },
    /// Add a user to a list, or remove one.
    List {
        /// The owner of the list.
        owner: UserId,
        /// The listed user; never the owner.
        other: UserId,
        /// Which list.
        list: List,
        /// Whether `other` is listed from now on.
        listed: bool,
    },
    /// Read whether an account is restricted.
    Restriction {
        /// The account.
        user: UserId,
    },
    /// Restrict an account, or lift the restriction.
    SetRestriction {
        /// The account.
        user: UserId,
        /// Whether it is restricted from now on.
        restricted: bool,
    },
    /// Check visibility, with the reason.
    Check {
        /// The viewer; `None` is a service.
        viewer: Option<UserId>,
        /// The subjects, in the order asked. At least one, at most [`MAX_SUBJECTS`](rollcall_core::policy::MAX_SUBJECTS).
        subjects: Ids<UserId>,
    },
    /// Many policy changes; bad ones are separated.
    Changes(PolicyChanges),
    /// Settle users who are due.
    Sweep(Sweep),
    /// Read the counters of the host.
    Stats,
    /// Read everything about a user.
    Person {
        /// The user.
        user: UserId,
    },
}

/// A batch of beats, split into valid and refused ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beats {
    /// The valid beats, in the order sent.
    pub good: Vec<Beat>,
    /// The refused items, by rising index.
    pub refused: Vec<Refused>,
}

/// One item of a batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its index in the batch.
    pub place: usize,
    /// The user, if it could be parsed.
    pub user: Option<UserId>,
    /// Why; the field is relative to the item.
    pub problem: Problem,
}

/// A user's list of other users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Users who may see what is set to `contacts`.
    Contacts,
    /// Blocked users: each is hidden from the other.
    Blocks,
}

/// A batch of policy changes, split into valid and refused ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChanges {
    /// The valid changes, in the order sent.
    pub good: Vec<PolicyChange>,
    /// The refused items, by rising index.
    pub refused: Vec<Refused>,
}

/// A request to set the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceRequest {
    /// The user.
    pub user: UserId,
    /// The choice.
    pub stance: Stance,
    /// How many seconds it lasts; if `None`, until it is replaced. Between 1 and [`rollcall_core::choose::MAX_FOR_S`].
    pub for_s: Option<u32>,
    /// The note to show with it.
    pub note: Option<NoteContent>,
}

/// A presence query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookUp {
    /// The viewer; `None` is a service, which sees every user.
    pub viewer: Option<UserId>,
    /// The users, in the order asked. Never empty; without duplicates in the compact form.
    pub users: Vec<UserId>,
    /// The form of the answer.
    pub form: Form,
}

/// The form of an answer about users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One presence.
    One,
    /// A list of presences, in the order asked.
    List,
    /// An object from id to state.
    Compact,
}

/// A stream or socket to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// The caller who opened it; their token limits its lifetime and permissions.
    pub caller: Caller,
    /// The viewer; `None` is a service, which sees every user.
    pub viewer: Option<UserId>,
    /// The device that it keeps alive; if `None`, the server chooses one.
    pub device: Option<DeviceId>,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// Whether the connection sends heartbeats. Never for a service, which has no presence.
    pub beats: bool,
    /// Whether the user opened it. False for a client that reconnects on its own.
    pub active: bool,
}

/// Watch users and conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// The connection.
    pub connect: Connect,
    /// The users, without duplicates. Empty only if `conversations` is not.
    pub users: Vec<UserId>,
    /// The conversations to watch for typing, without duplicates.
    pub conversations: Vec<ConversationId>,
    /// The last event received; `None` for a new watcher.
    pub since: Option<EventId>,
}

/// A user starts, continues or stops typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingUpdate {
    /// The user.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// True if started or continuing, false if stopped.
    pub typing: bool,
}

/// Settle users who are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// The most users to settle; if `None`, as many as one pass settles.
    pub limit: Option<u32>,
}

/// A user's state after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What others see.
    pub state: State,
    /// The version of that; 0 if nothing was ever published.
    pub version: u64,
    /// When the device should beat again, in milliseconds from now.
    pub next_beat_ms: u32,
}

/// A user's choice and the state that results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceResult {
    /// What others see.
    pub standing: Standing,
    /// The stored choice.
    pub choice: Choice,
}

/// The counts of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Users examined.
    pub examined: u32,
    /// Users with a newly published record.
    pub published: u32,
    /// Users found unchanged, with a new deadline.
    pub rescheduled: u32,
    /// Commits refused because the session changed meanwhile.
    pub stale: u32,
    /// Users whose store was unavailable.
    pub failed: u32,
}
