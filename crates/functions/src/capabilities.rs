//! What a function needs from its platform: the capabilities of the contract, as traits over core types.

#![allow(async_fn_in_trait, reason = "functions are generic over capabilities and name no future's auto traits")]

use rollcall_core::heartbeat::Found;
use rollcall_core::policy::{self, Privacy, Relation};
use rollcall_core::settle::Decision;
pub use rollcall_core::visibility::Visibility;
use rollcall_core::{
    ConversationId, DeviceId, DeviceKind, Error, Ids, Moment, Published, Revision, Session, Span, Time, UserId,
};

/// The most items in one batch: the bound of the contract.
pub const MAX_BATCH: usize = 1024;

/// One device's trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Whose device.
    pub user: UserId,
    /// Which of them.
    pub device: DeviceId,
    /// What happened to it.
    pub event: DeviceEvent,
}

/// Many traces, column by column: the one question on the hot path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touches {
    /// Whose devices.
    pub users: Ids<UserId>,
    /// Which of them.
    pub devices: Ids<DeviceId>,
    /// What happened to each.
    pub events: Vec<DeviceEvent>,
}

impl Touches {
    /// Whose device, which, and what happened to it: each in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str, DeviceEvent)> {
        self.users
            .iter()
            .zip(self.devices.iter())
            .zip(&self.events)
            .map(|((user, device), event)| (user, device, *event))
    }
}

impl FromIterator<Touch> for Touches {
    fn from_iter<T: IntoIterator<Item = Touch>>(touches: T) -> Self {
        let touches = touches.into_iter();
        let count = touches.size_hint().0;
        let (users, devices) = (Ids::with_capacity(count), Ids::with_capacity(count));
        let mut packed = Self { users, devices, events: Vec::with_capacity(count) };
        for Touch { user, device, event } in touches {
            packed.users.push(&user);
            packed.devices.push(&device);
            packed.events.push(event);
        }
        packed
    }
}

/// What can happen to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It beat.
    Beat {
        /// What sort of program beat.
        kind: DeviceKind,
        /// Whether the person used it since its last beat.
        active: bool,
        /// How long this keeps it alive.
        alive_for: Span,
    },
    /// Its connection broke: it lives on for this long, or until its expiry.
    Dropped(Span),
    /// It is gone at once.
    Logout,
}

/// What a batch of touches found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The store's time.
    pub now: Time,
    /// What each found, as it was just before.
    pub found: Vec<Result<Found, Error>>,
}

/// Loaded sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The store's time and the outage grace in force.
    pub moment: Moment,
    /// The sessions, in the order asked.
    pub sessions: Vec<Result<Session, Error>>,
}

/// A change of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Whose session.
    pub user: UserId,
    /// Where it stood when the decision was made.
    pub expected: Revision,
    /// The change.
    pub decision: Decision,
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It was applied.
    Applied,
    /// Something came between; nothing was changed.
    Stale,
}

/// A cold session to be dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// Whose session.
    pub user: UserId,
    /// Where it stood when the decision was made.
    pub expected: Revision,
}

/// A run of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// The first.
    pub first: u32,
    /// One past the last.
    pub end: u32,
}

/// Where traces, choices and records are kept.
pub trait Sessions {
    /// Leaves traces.
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error>;
    /// Reads sessions.
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error>;
    /// Changes sessions by compare-and-swap.
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error>;
    /// People whose settle instant has passed.
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error>;
    /// People whose evict instant has passed.
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error>;
    /// Drops sessions that stand where they stood.
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error>;
}

/// When a person was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastSeenEntry {
    /// Who.
    pub user: UserId,
    /// When.
    pub last_seen: Time,
}

/// Last seen, kept for ever.
pub trait Archive {
    /// Keeps last seen entries; none moves a last seen backwards.
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error>;
    /// When each was last seen, in the order asked.
    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error>;
}

/// Who may see whom.
pub trait RestrictionCheck {
    /// RestrictionCheck for one viewer, in the order asked.
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error>;
}

/// What a person set for themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnSettings {
    /// What they let others see.
    pub privacy: Privacy,
    /// Whom they listed as contacts, in no particular order.
    pub contacts: Vec<UserId>,
    /// Whom they blocked, in no particular order.
    pub blocks: Vec<UserId>,
}

/// A place in the logs of changes, one number per log.
pub type Cursor = Vec<u64>;

/// A part of everything that anybody set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Changes that, applied to nothing, give the state of this part.
    pub changes: Vec<policy::Change>,
    /// What to ask for next; none: this was the last page.
    pub next: Option<u32>,
    /// Where the logs stood just before this page was read.
    pub cursor: Cursor,
    /// A number that nobody outside can know, to seed hashes with.
    pub salt: u64,
}

/// What came after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangesSince {
    /// These changes, in order, and the cursor after them.
    Changes(Vec<policy::Change>, Cursor),
    /// The store no longer keeps that far back, or lost what it had.
    Gap,
}

/// Who restricted, blocked, listed whom, and what each person lets others see.
pub trait Policy {
    /// How one viewer stands to these subjects, exactly, in the order asked.
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error>;
    /// What a person set for themselves.
    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error>;
    /// One page of everything.
    async fn snapshot(&self, page: u32) -> Result<Page, Error>;
    /// What changed since the cursor; since an empty one nothing did, and the answer is where the logs stand.
    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error>;
    /// Makes changes, durably, in order.
    async fn apply_many(&self, changes: Vec<policy::Change>) -> Result<Vec<Result<(), Error>>, Error>;
}

/// A sign of typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingSignal {
    /// Where.
    pub conversation: ConversationId,
    /// Who.
    pub user: UserId,
    /// How long it lasts; zero takes it away.
    pub lasts: Span,
}

/// Who types, and until when unless they go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typist {
    /// Who.
    pub user: UserId,
    /// Until when.
    pub until: Time,
}

/// Something was published about a watched person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub user: UserId,
    /// What.
    pub published: Published,
}

/// Signs of typing.
pub trait Typing {
    /// Leaves signs, or takes them away; how each ended, in the order asked.
    async fn set_typing(&self, signs: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error>;
    /// Who types in each conversation, in the order asked.
    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error>;
}

/// What changes, as it changes, for hosts without a hub.
pub trait Watching {
    /// The changes of some people.
    type Changes: Changes;
    /// Watches these people: everything published about them from now on.
    async fn watch(&self, users: Vec<UserId>) -> Result<Self::Changes, Error>;
}

/// A stream of changes.
pub trait Changes {
    /// The next; none when it ended: then [`Changes::end`] says why.
    async fn next(&mut self) -> Option<Change>;
    /// Why it ended.
    async fn end(self) -> Result<(), Error>;
}

/// Refuses a batch over the bound of the contract.
pub(crate) fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_BATCH { Err(Error::TooMany(MAX_BATCH as u32)) } else { Ok(()) }
}
