//! Wraps the capabilities for the stores' suites.

use std::sync::Arc;

use rollcall_core::policy::{Change, Relation};
use rollcall_core::{ConversationId, Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, ChangesSince, Commit, Cursor, Eviction, LastSeenEntry, Loaded, OwnSettings, Page, Policy, Sessions,
    Shards, Touched, Touches, Typing, TypingSignal, Typist,
};
use rollcall_redis::native::Redis;
use rollcall_redis::{Probing, RedisStore};
use rollcall_store::{Answer, LastSeen, Outcomes, Policies, Store, TopicSubscription, Topics};
use tokio::sync::watch;

use crate::connection::TestConnection;

/// The capabilities, and a host on the same data for what they cannot do: subscribe.
pub(crate) struct Probed {
    pub(crate) platform: RedisStore<Probing<TestConnection>>,
    pub(crate) host: Arc<Redis>,
}

impl Store for Probed {
    fn touch_many(&self, touches: Touches) -> Answer<'_, Touched> {
        Box::pin(self.platform.touch_many(touches))
    }
    fn load_many(&self, users: Vec<UserId>) -> Answer<'_, Loaded> {
        Box::pin(self.platform.load_many(users))
    }
    fn commit_many(&self, commits: Vec<Commit>) -> Answer<'_, Outcomes> {
        Box::pin(self.platform.commit_many(commits))
    }
    fn due(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(self.platform.due(shards, limit))
    }
    fn evictable(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(self.platform.evictable(shards, limit))
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> Answer<'_, Outcomes> {
        Box::pin(self.platform.evict_many(evictions))
    }
    fn shards(&self) -> u32 {
        self.platform.keys().shards()
    }
}

impl LastSeen for Probed {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Answer<'_, ()> {
        Box::pin(self.platform.put_many(last_seen_entries))
    }
    fn get_many(&self, users: Vec<UserId>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(self.platform.get_many(users))
    }
}

impl Policies for Probed {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        Box::pin(self.platform.relations(viewer, subjects))
    }
    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        Box::pin(self.platform.settings_of(user))
    }
    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        Box::pin(self.platform.snapshot(page))
    }
    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, ChangesSince> {
        Box::pin(self.platform.since(cursor, limit))
    }
    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.apply_many(changes))
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.host.invalidated()
    }
}

impl Topics for Probed {
    fn subscription(&self) -> TopicSubscription {
        self.host.subscription()
    }
    fn set_typing(&self, signals: Vec<TypingSignal>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.set_typing(signals))
    }
    fn typists(&self, conversations: Vec<ConversationId>) -> Answer<'_, Vec<Result<Vec<Typist>, Error>>> {
        Box::pin(self.platform.typists(conversations))
    }
    fn count_watchers(&self, station: &str, counts: Vec<(UserId, u32)>) -> Answer<'_, Vec<u64>> {
        self.host.count_watchers(station, counts)
    }
    fn now(&self) -> Time {
        Topics::now(&*self.host)
    }
}
