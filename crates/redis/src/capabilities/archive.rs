//! Last seen, kept in Redis. A batch that fails half-way is safe to be said again, since a last seen only rises.

use crate::keyspace::decode_score;
use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry};

use super::batch::{Batch, piece};
use super::{Platform, Wire};

/// The most last seen entries or people in one call of an archive: the bound of the contract.
const MAX_LAST_SEEN_ENTRIES: usize = 10_000;

impl<W: Wire> Archive for Platform<W> {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        bounded(&last_seen_entries)?;
        let mut batch = Batch::with_capacity(last_seen_entries.len(), last_seen_entries.len());
        for LastSeenEntry { user, last_seen } in &last_seen_entries {
            batch.add("", |to| self.keys.keep_seen(to, user.as_str(), *last_seen));
        }
        let replies = self.run(&batch).await;
        replies.items().try_for_each(|item| item.map(drop))
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        bounded(&users)?;
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in &users {
            batch.add("", |to| self.keys.when_seen(to, user.as_str()));
        }
        let replies = self.run(&batch).await;
        replies.items().map(|item| self.read(decode_score(piece(item?)))).collect()
    }
}

pub(crate) fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_LAST_SEEN_ENTRIES { Err(Error::TooMany(MAX_LAST_SEEN_ENTRIES as u32)) } else { Ok(()) }
}
