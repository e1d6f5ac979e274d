//! The capabilities as the suites of the stores take them.

use std::sync::Arc;

use rollcall_core::policy::{Change, Relation};
use rollcall_core::{ConversationId, Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, Commit, Cursor, Followed, Loaded, OwnSettings, Page, Policy, Retiree, Sessions, Shards, Sighting, Touched,
    Touches, Typing, TypingSign, Typist,
};
use rollcall_platform::Platform;
use rollcall_store::{Answer, LastSeen, Outcomes, Policies, Redis, Store, Tap, Topics};
use tokio::sync::watch;

use crate::wire::TestWire;

/// The capabilities, and a host on the same data that does what they cannot: listen.
pub(crate) struct OnPlatform {
    pub(crate) platform: Platform<TestWire>,
    pub(crate) host: Arc<Redis>,
}

impl Store for OnPlatform {
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
    fn retirable(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(self.platform.retirable(shards, limit))
    }
    fn retire_many(&self, retirees: Vec<Retiree>) -> Answer<'_, Outcomes> {
        Box::pin(self.platform.retire_many(retirees))
    }
    fn shards(&self) -> u32 {
        self.platform.keys().shards()
    }
}

impl LastSeen for OnPlatform {
    fn put_many(&self, sightings: Vec<Sighting>) -> Answer<'_, ()> {
        Box::pin(self.platform.put_many(sightings))
    }
    fn get_many(&self, users: Vec<UserId>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(self.platform.get_many(users))
    }
}

impl Policies for OnPlatform {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        Box::pin(self.platform.relations(viewer, subjects))
    }
    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        Box::pin(self.platform.settings_of(user))
    }
    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        Box::pin(self.platform.snapshot(page))
    }
    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, Followed> {
        Box::pin(self.platform.since(cursor, limit))
    }
    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.apply_many(changes))
    }
    fn stirred(&self) -> watch::Receiver<u64> {
        self.host.stirred()
    }
}

impl Topics for OnPlatform {
    fn tap(&self) -> Tap {
        self.host.tap()
    }
    fn mark_many(&self, signs: Vec<TypingSign>) -> Answer<'_, Vec<Result<(), Error>>> {
        Box::pin(self.platform.mark_many(signs))
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
