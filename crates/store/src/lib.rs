//! Native implementations of the capabilities: sessions and topics in memory, last seen in SQLite or PostgreSQL, policy
//! in SQLite; and the traits, which `rollcall-redis` implements too.
//!
//! There is one object-safe trait per capability: the host picks a store at start, and nothing else in it depends on
//! which. The same test suite runs on every implementation; it takes a factory.

mod clock;
pub mod memory;
mod persistence;
pub mod policies;
pub mod postgres;
pub mod sqlite;
pub mod topics;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rollcall_core::{ConversationId, Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{
    self, Commit, Committed, Eviction, LastSeenEntry, Loaded, Records, Shards, Touched, Touches, TypingSignal, Typist,
};

pub use clock::Clock;
pub use memory::Memory;
pub use persistence::{ChoiceStore, SavedSessions, StoredChoice};
pub use policies::{LocalCopy, PolicyStore};
pub use postgres::PostgresArchive;
pub use rollcall_core::{DEFAULT_SHARDS, shard_of};
pub use sqlite::{SqliteArchive, SqlitePolicies};
pub use topics::{NativeChanges, PublishedTyping, Topic, TopicStore, TopicSubscription, TopicUpdate, WATCHERS_TTL};

/// The future of a result that may need the network or the disk.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The outcomes of commits or evictions, in the order asked.
pub type Outcomes = Vec<Result<Committed, Error>>;

/// A store of sessions: the contract's `sessions`, natively.
pub trait SessionStore: Send + Sync + 'static {
    /// Touches sessions: stores a device event for each.
    fn touch_many(&self, touches: Touches) -> StoreFuture<'_, Touched>;
    /// Reads published records.
    fn read_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Records>;
    /// Reads sessions.
    fn load_many(&self, users: Vec<UserId>) -> StoreFuture<'_, Loaded>;
    /// Changes sessions by compare-and-swap.
    fn commit_many(&self, commits: Vec<Commit>) -> StoreFuture<'_, Outcomes>;
    /// Users who are due, the earliest deadline first.
    fn due(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>>;
    /// Users whose sessions can be evicted, the earliest instant first.
    fn evictable(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>>;
    /// Drops sessions whose revision is unchanged.
    fn evict_many(&self, evictions: Vec<Eviction>) -> StoreFuture<'_, Outcomes>;
    /// The number of shards.
    fn shards(&self) -> u32;
}

/// A durable store of last seen: the contract's `archive`, natively.
pub trait ArchiveStore: Send + Sync + 'static {
    /// Stores last seen entries. An entry older than the stored one changes nothing.
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> StoreFuture<'_, ()>;
    /// The last seen of each user, in the order asked.
    fn get_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Vec<Option<Time>>>;
}

/// A store as a capability, for functions that are linked natively: they require a sized type.
#[derive(Clone)]
pub struct NativeSessions(pub Arc<dyn SessionStore>);

/// An archive as a capability, for functions that are linked natively.
#[derive(Clone)]
pub struct NativeArchive(pub Arc<dyn ArchiveStore>);

/// Topics as capabilities, for functions that are linked natively.
#[derive(Clone)]
pub struct NativeTopics(pub Arc<dyn TopicStore>);

impl capabilities::Sessions for NativeSessions {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        self.0.touch_many(touches).await
    }
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        self.0.read_many(users).await
    }
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        self.0.load_many(users).await
    }
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Outcomes, Error> {
        self.0.commit_many(commits).await
    }
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.0.due(shards, limit).await
    }
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.0.evictable(shards, limit).await
    }
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Outcomes, Error> {
        self.0.evict_many(evictions).await
    }
}

impl capabilities::Archive for NativeArchive {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        self.0.put_many(last_seen_entries).await
    }
    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        self.0.get_many(users).await
    }
}

impl capabilities::Typing for NativeTopics {
    async fn set_typing(&self, signals: Vec<TypingSignal>) -> Result<Vec<Result<(), Error>>, Error> {
        self.0.set_typing(signals).await
    }
    async fn typists(&self, conversations: Vec<ConversationId>) -> Result<Vec<Result<Vec<Typist>, Error>>, Error> {
        self.0.typists(conversations).await
    }
}

impl capabilities::Watching for NativeTopics {
    type Changes = NativeChanges;
    async fn watch(&self, users: Vec<UserId>) -> Result<NativeChanges, Error> {
        NativeChanges::begin(&*self.0, users).await
    }
}
