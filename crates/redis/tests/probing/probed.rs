//! Wraps the capabilities for the stores' suites.

use std::sync::Arc;

use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{ConversationId, Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, ChangesSince, Commit, Cursor, Eviction, LastSeenEntry, Loaded, OwnSettings, Policy, PolicyPage, Records,
    Sessions, Shards, Touched, Touches, Typing, TypingSignal, Typist,
};
use rollcall_redis::native::NativeRedis;
use rollcall_redis::{ProbingTransport, RedisStore};
use rollcall_store::{ArchiveStore, Outcomes, PolicyStore, SessionStore, StoreFuture, TopicStore, TopicSubscription};
use tokio::sync::watch;

use crate::connection::TestConnection;

/// The capabilities, and a host on the same data for what they cannot do: subscribe.
pub(crate) struct Probed {
    pub(crate) platform: RedisStore<ProbingTransport<TestConnection>>,
    pub(crate) host: Arc<NativeRedis>,
}

impl SessionStore for Probed {
    fn touch_many(&self, touches: Touches) -> StoreFuture<'_, Touched> {
        Box::pin(self.platform.touch_many(touches))
    }
    fn read_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Records> {
        Box::pin(self.platform.read_many(users))
    }
    fn load_many(&self, users: Vec<UserId>) -> StoreFuture<'_, Loaded> {
        Box::pin(self.platform.load_many(users))
    }
    fn commit_many(&self, commits: Vec<Commit>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.platform.commit_many(commits))
    }
    fn due(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(self.platform.due(shards, limit))
    }
    fn evictable(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(self.platform.evictable(shards, limit))
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.platform.evict_many(evictions))
    }
    fn shards(&self) -> u32 {
        self.platform.keys().shards()
    }
}

impl ArchiveStore for Probed {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> StoreFuture<'_, ()> {
        Box::pin(self.platform.put_many(last_seen_entries))
    }
    fn get_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Vec<Option<Time>>> {
        Box::pin(self.platform.get_many(users))
    }
}

impl PolicyStore for Probed {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        Box::pin(self.platform.relations(viewer, subjects))
    }
    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        Box::pin(self.platform.settings_of(user))
    }
    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        Box::pin(self.platform.snapshot(page))
    }
    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        Box::pin(self.platform.since(cursor, limit))
    }
    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.apply_many(changes))
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.host.invalidated()
    }
}

impl TopicStore for Probed {
    fn subscription(&self) -> TopicSubscription {
        self.host.subscription()
    }
    fn set_typing(&self, signals: Vec<TypingSignal>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.set_typing(signals))
    }
    fn typists(&self, conversations: Vec<ConversationId>) -> StoreFuture<'_, Vec<Result<Vec<Typist>, Error>>> {
        Box::pin(self.platform.typists(conversations))
    }
    fn count_watchers(&self, worker: &str, counts: Vec<(UserId, u32)>) -> StoreFuture<'_, Vec<u64>> {
        self.host.count_watchers(worker, counts)
    }
    fn now(&self) -> Time {
        TopicStore::now(&*self.host)
    }
}
