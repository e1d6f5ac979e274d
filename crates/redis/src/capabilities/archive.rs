//! Last seen, stored in Redis. A batch that failed half-way can be repeated: a last seen only rises.
//!
//! A user takes about a hundred bytes here, a quarter of a session. With hundreds of millions of users, a database is
//! cheaper.

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry, MAX_LAST_SEEN_ENTRIES, bounded};

use super::RedisStore;
use crate::keyspace::decode_score;
use crate::transport::{Batch, Transport, piece};

impl<T: Transport> Archive for RedisStore<T> {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        bounded(last_seen_entries.len(), MAX_LAST_SEEN_ENTRIES)?;
        let keys = self.keys();
        let mut batch = Batch::with_capacity(last_seen_entries.len(), last_seen_entries.len());
        for LastSeenEntry { user, last_seen } in &last_seen_entries {
            let user = user.as_str();
            batch.add(user, keys.shard_of(user), |to| keys.put_last_seen(to, user, *last_seen));
        }
        let replies = self.transport.run(batch).await;
        replies.items().try_for_each(|item| item.map(drop))
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        bounded(users.len(), MAX_LAST_SEEN_ENTRIES)?;
        let keys = self.keys();
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in users.iter().map(UserId::as_str) {
            batch.add("", keys.shard_of(user), |to| keys.get_last_seen(to, user));
        }
        let replies = self.transport.run(batch).await;
        replies.items().map(|item| self.read(decode_score(piece(item?)))).collect()
    }
}
