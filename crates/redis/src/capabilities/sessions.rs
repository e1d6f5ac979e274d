//! Sessions: loads, commits and evictions. Touches are in `touch.rs`, records in `records.rs`, due users in `due.rs`.

use rollcall_core::{Error, Ids, Published, Span, UserId};
use rollcall_functions::capabilities::{
    Commit, Committed, Eviction, Loaded, Records, Sessions, Shards, Touched, Touches,
};

use super::{MAX_BATCH, RedisStore, bounded};
use crate::keyspace::{BadReply, Keyspace, Queue, decode_outcome, decode_published, decode_session};
use crate::transport::{Batch, Reply, Transport, piece, pieces};

type Outcomes = Vec<Result<Committed, Error>>;

impl<T: Transport> Sessions for RedisStore<T> {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        self.touch(&touches).await
    }
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        self.read_records(&users).await
    }
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        self.load(&users).await
    }
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Outcomes, Error> {
        self.commit(&commits).await
    }
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.scan_queue(Queue::Due, shards, limit, Span(0)).await
    }
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.scan_queue(Queue::Archive, shards, limit, Span(0)).await
    }
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Outcomes, Error> {
        self.evict(&evictions).await
    }
}

impl<T: Transport> RedisStore<T> {
    /// What was last published about each of these users, in the order asked; `None` if nothing was.
    /// For watchers that poll because they cannot subscribe. At most 1,024 users.
    pub async fn read_published(&self, users: &[UserId]) -> Result<Vec<Result<Option<Published>, Error>>, Error> {
        bounded(users.len(), MAX_BATCH)?;
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in users.iter().map(UserId::as_str) {
            batch.add("", self.keys().shard_of(user), |to| self.keys().read_published(to, user));
        }
        let replies = self.transport.run(batch).await;
        Ok(replies.items().map(|item| self.read(decode_published(pieces(item?)))).collect())
    }

    /// As [`Sessions::due`], but only users whose instant passed at least `at_least` ago.
    pub async fn due_for(&self, shards: Shards, limit: u32, at_least: Span) -> Result<Vec<UserId>, Error> {
        self.scan_queue(Queue::Due, shards, limit, at_least).await
    }

    /// Reads these users' `alive` keys. Redis expires a key lazily when it is read, and sends its notification to every
    /// subscriber; without a read it may take minutes.
    pub async fn trigger_expiry(&self, users: &[UserId]) -> Result<(), Error> {
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in users.iter().map(UserId::as_str) {
            batch.add(user, self.keys().shard_of(user), |to| self.keys().trigger_expiry(to, user));
        }
        let replies = self.transport.run(batch).await;
        replies.items().try_for_each(|item| item.map(drop))
    }

    async fn load(&self, users: &[UserId]) -> Result<Loaded, Error> {
        bounded(users.len(), MAX_BATCH)?;
        let keys = self.keys();
        let mut batch = Batch::with_capacity(users.len(), users.len() * Keyspace::LOAD_COMMANDS);
        self.transport.begin_read(&mut batch);
        for user in users.iter().map(UserId::as_str) {
            batch.read(keys.shard_of(user), |to| keys.load(to, user));
        }
        let replies = self.transport.run(batch).await;
        let moment = replies.moment()?;
        let session = |values: &[T::Reply]| match values {
            [hash, due, cold] => decode_session(hash.pieces(), due.piece(), cold.piece()),
            _ => Err(BadReply("a reply")),
        };
        let sessions = replies.items().map(|item| self.read(session(item?))).collect();
        Ok(Loaded { moment, sessions })
    }

    async fn commit(&self, commits: &[Commit]) -> Result<Outcomes, Error> {
        bounded(commits.len(), MAX_BATCH)?;
        let (keys, now, publishing) = (self.keys(), self.transport.now().await?, self.transport.publishing());
        let mut batch = Batch::decided_at(now, commits.len(), commits.len());
        for commit in commits {
            let (user, at) = (commit.user.as_str(), self.stamped(now.us));
            batch.add(user, keys.shard_of(user), |to| keys.commit(to, commit, at, publishing));
        }
        Ok(self.outcomes(batch).await)
    }

    async fn evict(&self, evictions: &[Eviction]) -> Result<Outcomes, Error> {
        bounded(evictions.len(), MAX_BATCH)?;
        let (keys, now) = (self.keys(), self.transport.now().await?);
        let mut batch = Batch::decided_at(now, evictions.len(), evictions.len());
        for eviction in evictions {
            let user = eviction.user.as_str();
            batch.add(user, keys.shard_of(user), |to| keys.evict(to, eviction, now.us));
        }
        Ok(self.outcomes(batch).await)
    }

    async fn outcomes(&self, batch: Batch<'_>) -> Outcomes {
        let replies = self.transport.run(batch).await;
        replies.items().map(|item| self.read(decode_outcome(piece(item?)))).collect()
    }
}
