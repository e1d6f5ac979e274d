//! The capabilities that functions import, as traits over core types.

#![allow(async_fn_in_trait, reason = "functions are generic over capabilities and name no future's auto traits")]

use rollcall_core::heartbeat::PriorState;
use rollcall_core::policy::{self, Relation};
use rollcall_core::settle::Decision;

pub use rollcall_core::policy::OwnSettings;
pub use rollcall_core::visibility::Visibility;
use rollcall_core::{
    ConversationId, DeviceId, DeviceKind, Error, Ids, Moment, Published, Record, Revision, Session, Span, Time, UserId,
};

/// The most items in one batch: the limit of the contract.
pub const MAX_BATCH: usize = 1024;

/// The most last seen entries or users in one call of an archive.
pub const MAX_LAST_SEEN_ENTRIES: usize = 10_000;

/// One touch: a device event of a user's device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// The user.
    pub user: UserId,
    /// The device.
    pub device: DeviceId,
    /// The device event.
    pub event: DeviceEvent,
}

/// A batch of touches, in columns: the only call on the hot path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touches {
    /// The users.
    pub users: Ids<UserId>,
    /// The device of each.
    pub devices: Ids<DeviceId>,
    /// The event of each.
    pub events: Vec<DeviceEvent>,
}

impl Touches {
    /// User, device and event of each touch.
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

/// What a touch reports about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A heartbeat.
    Beat {
        /// The kind of device.
        kind: DeviceKind,
        /// Whether the user used the device since its last beat.
        active: bool,
        /// How long the beat keeps the device alive.
        alive_for: Span,
    },
    /// The connection broke: the device stays alive for this grace, or until it expires, whichever is first.
    Dropped(Span),
    /// The device logged out: it ends at once.
    Logout,
}

/// The result of a batch of touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The store's time.
    pub now: Time,
    /// The state just before each touch.
    pub prior: Vec<Result<PriorState, Error>>,
}

/// Published records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// The store's time, from before the read.
    pub now: Time,
    /// The record of each user, in the order asked.
    pub records: Vec<Result<Record, Error>>,
}

/// Loaded sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The store's time and the outage grace in force.
    pub moment: Moment,
    /// The sessions, in the order asked.
    pub sessions: Vec<Result<Session, Error>>,
}

/// A compare-and-swap on one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The user.
    pub user: UserId,
    /// The revision that the decision was made on.
    pub expected: Revision,
    /// The change.
    pub decision: Decision,
}

/// The outcome of a commit or an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// The change was applied.
    Applied,
    /// The revision has changed; nothing was written.
    Stale,
}

/// A session to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The user.
    pub user: UserId,
    /// The revision that the decision was made on.
    pub expected: Revision,
}

/// A range of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// The first shard.
    pub first: u32,
    /// One past the last shard.
    pub end: u32,
}

/// The hot store of sessions.
pub trait Sessions {
    /// Touches sessions: stores a device event for each.
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error>;
    /// Reads published records.
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error>;
    /// Reads sessions.
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error>;
    /// Changes sessions by compare-and-swap.
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error>;
    /// Users who are due.
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error>;
    /// Users whose sessions can be evicted.
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error>;
    /// Drops sessions whose revision is unchanged.
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error>;
}

/// The last seen of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastSeenEntry {
    /// The user.
    pub user: UserId,
    /// When the user was last seen.
    pub last_seen: Time,
}

/// The durable store of last seen.
pub trait Archive {
    /// Stores last seen entries. An entry older than the stored one changes nothing.
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error>;
    /// The last seen of each user, in the order asked.
    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error>;
}

/// Decides visibility.
pub trait RestrictionCheck {
    /// What the viewer is shown of each subject, in the order asked.
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error>;
}

/// A position in the logs of changes, one number per log.
pub type Cursor = Vec<u64>;

/// A page of a snapshot of all policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPage {
    /// Changes that, applied to an empty index, give the state of this page.
    pub changes: Vec<policy::PolicyChange>,
    /// The next page; `None` if this was the last.
    pub next: Option<u32>,
    /// The cursor just before this page was read.
    pub cursor: Cursor,
    /// A secret number to seed hashes with.
    pub salt: u64,
}

/// The changes since a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangesSince {
    /// The changes, in order, and the cursor after them.
    Changes(Vec<policy::PolicyChange>, Cursor),
    /// The log no longer reaches back to the cursor, or lost entries: a new snapshot is needed.
    Gap,
}

/// The store of policy: restrictions, blocks, contacts and privacy.
pub trait Policy {
    /// The exact relations of a viewer to the subjects, in the order asked.
    async fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Relation>, Error>;
    /// A user's own settings.
    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error>;
    /// One page of a snapshot; the first is page 0.
    async fn snapshot(&self, page: u32) -> Result<PolicyPage, Error>;
    /// The changes since the cursor. An empty cursor asks for the newest cursor, without changes.
    async fn since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error>;
    /// Applies changes, durably and in order.
    async fn apply_many(&self, changes: Vec<policy::PolicyChange>) -> Result<Vec<Result<(), Error>>, Error>;
}

/// A typing signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingSignal {
    /// The conversation.
    pub conversation: ConversationId,
    /// The user who types.
    pub user: UserId,
    /// How long it lasts; zero means that the user stopped.
    pub lasts: Span,
}

/// A user who is typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typist {
    /// The user.
    pub user: UserId,
    /// When the typing signal expires, unless it is renewed.
    pub until: Time,
}

/// A publication about a watched user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceChange {
    /// The user.
    pub user: UserId,
    /// The published record.
    pub published: Published,
}

/// Typing signals.
pub trait Typing {
    /// Stores and publishes typing signals. Returns the outcome of each, in the order asked.
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error>;
    /// The typists of each conversation, in the order asked.
    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error>;
}

/// Subscribes to changes, for hosts without a hub.
pub trait Watching {
    /// The stream of changes.
    type Changes: PresenceChanges;
    /// Watches users: streams everything published about them from now on.
    async fn watch(&self, users: Vec<UserId>) -> Result<Self::Changes, Error>;
}

/// A stream of changes.
pub trait PresenceChanges {
    /// The next change; `None` when the stream has ended: [`PresenceChanges::end`] then gives the reason.
    async fn next(&mut self) -> Option<PresenceChange>;
    /// Why the stream ended.
    async fn end(self) -> Result<(), Error>;
}

/// Refuses a call with more items than a limit of the contract.
pub fn bounded(count: usize, limit: usize) -> Result<(), Error> {
    if count > limit { Err(Error::TooMany(u32::try_from(limit).unwrap_or(u32::MAX))) } else { Ok(()) }
}
