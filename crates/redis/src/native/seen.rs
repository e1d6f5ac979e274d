//! Last seen, kept in Redis: the archive that every host shares with nothing more to run. A person takes about a hundred
//! bytes here, a quarter of what a session takes; whoever has hundreds of millions of them keeps them in a database.
//!
//! A batch that fails half-way is safe to be said again, since a last seen only rises.

use crate::keyspace::{Piece, decode_score};
use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::LastSeenEntry;

use super::Redis;
use super::batch::{Batch, pieces};
use crate::capabilities::archive::bounded;
use rollcall_store::{Answer, LastSeen};

impl LastSeen for Redis {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Answer<'_, ()> {
        Box::pin(async move {
            bounded(&last_seen_entries)?;
            let keys = &self.inner.keys;
            let mut batch = Batch::with_capacity(last_seen_entries.len(), last_seen_entries.len());
            for LastSeenEntry { user, last_seen } in &last_seen_entries {
                let user = user.as_str();
                batch.add(user, keys.shard_of(user), |to| keys.keep_seen(to, user, *last_seen));
            }
            let replies = self.inner.run(&batch).await;
            replies.items().try_for_each(|item| item.map(drop))
        })
    }

    fn get_many(&self, users: Vec<UserId>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(async move {
            bounded(&users)?;
            let keys = &self.inner.keys;
            let mut batch = Batch::with_capacity(users.len(), users.len());
            for user in users.iter().map(UserId::as_str) {
                batch.add(user, keys.shard_of(user), |to| keys.when_seen(to, user));
            }
            let replies = self.inner.run(&batch).await;
            let time = |item: Result<&[redis::Value], Error>| {
                let score = item?.first().and_then(|value| pieces(value).next()).unwrap_or(Piece::Nil);
                decode_score(score).map_err(|garbled| Error::Other(garbled.to_string()))
            };
            replies.items().map(time).collect()
        })
    }
}
