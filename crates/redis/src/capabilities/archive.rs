//! Last seen, stored in Redis. A batch that failed half-way can be repeated: a last seen only rises.
//!
//! A user takes about a hundred bytes here, a quarter of a session. With hundreds of millions of users, a database is
//! cheaper.

use rollcall_core::{Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry, MAX_LAST_SEEN_ENTRIES, bounded};

use super::RedisStore;
use crate::keyspace::decode_score;
use crate::transport::{Batch, Transport, pieces};

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

    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        bounded(users.len(), MAX_LAST_SEEN_ENTRIES)?;
        let keys = self.keys();
        let mut asked: Vec<_> =
            users.iter().enumerate().map(|(index, user)| (keys.shard_of(user), index, user)).collect();
        asked.sort_unstable();
        let mut batch = Batch::with_capacity(asked.len(), asked.len());
        for shard in asked.chunk_by(|one, other| one.0 == other.0) {
            let number = shard.first().map_or(0, |(number, ..)| *number);
            batch.add("", number, |to| keys.get_last_seen(to, number, shard.iter().map(|(.., user)| *user)));
        }
        let replies = self.transport.run(batch).await;
        let mut times = vec![None; users.len()];
        for (shard, item) in asked.chunk_by(|one, other| one.0 == other.0).zip(replies.items()) {
            for ((_, index, _), score) in shard.iter().zip(pieces(item?)) {
                if let Some(time) = times.get_mut(*index) {
                    *time = self.read(decode_score(score))?;
                }
            }
        }
        Ok(times)
    }
}
