//! A SQLite file with the archive of last seen, the saved sessions of the embedded store, and the policy.
//!
//! One thread writes and one reads, so that a read never waits behind a write. A write is on disk before it is confirmed.
//! A file that cannot be used is refused at opening, by name. A file that fails later returns [`Error::Unavailable`], logs
//! it once, and works again as soon as the disk does.

mod json;
mod open;
mod policies;
mod saved_sessions;
mod worker;

use std::path::Path;
use std::sync::Arc;

use rollcall_core::{Error, Ids, Session, Time, UserId};
use rollcall_functions::capabilities::{LastSeenEntry, MAX_LAST_SEEN_ENTRIES, bounded};
use rusqlite::{Connection, params};

use crate::persistence::{ChoiceStore, SavedSessions, StoredChoice};
use crate::{ArchiveStore, StoreFuture};

pub use open::OpenError;
pub use policies::{LOG_KEPT, SqlitePolicies};
use worker::{Purpose, Worker};

/// SQLite's name for a database without a file.
const IN_MEMORY: &str = ":memory:";

/// An older entry changes nothing.
const PUT: &str = "INSERT INTO user_presence (user_id, last_seen_at) VALUES (?1, ?2) ON CONFLICT (user_id) \
                   DO UPDATE SET last_seen_at = excluded.last_seen_at WHERE excluded.last_seen_at > last_seen_at";
/// The index in the request and last seen of each user who has one.
const GET: &str = "SELECT asked.key, last_seen_at FROM json_each(?1) AS asked \
                   JOIN user_presence ON user_id = asked.value";

/// The archive in a file. Dropping it finishes the queued work and closes the file.
#[derive(Debug)]
pub struct SqliteArchive {
    /// Declared first, so that it is closed first: the last connection to close checkpoints the write-ahead log, which a
    /// read-only connection cannot. For an in-memory database this is the writer: such a database has one connection.
    reader: Arc<Worker>,
    writer: Arc<Worker>,
    shared: Arc<policies::Shared>,
}

impl SqliteArchive {
    /// Opens a file, or creates it. The name `:memory:` means [`Self::in_memory`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        if path == Path::new(IN_MEMORY) {
            return Self::in_memory();
        }
        let writer = Worker::start(open::writer(path)?, Purpose::Writing, path)?;
        let reader = Worker::start(open::reader(path)?, Purpose::Reading, path)?;
        Ok(Self { writer: Arc::new(writer), reader: Arc::new(reader), shared: Arc::new(policies::Shared::new()) })
    }

    /// An archive in memory; dropping it discards everything.
    pub fn in_memory() -> Result<Self, OpenError> {
        let worker = Worker::start(open::in_memory()?, Purpose::Writing, Path::new(IN_MEMORY))?;
        let writer = Arc::new(worker);
        Ok(Self { reader: Arc::clone(&writer), writer, shared: Arc::new(policies::Shared::new()) })
    }

    /// Saves all sessions and replaces the previous save: the last step of a shutdown.
    pub async fn save(&self, at: Time, sessions: Vec<(UserId, Session)>) -> Result<(), Error> {
        self.writer.ask(move |connection| saved_sessions::save(connection, at, sessions)).await
    }

    /// What an earlier run saved, with the choices that still have an effect at `now`. It stays in the file until
    /// [`Self::forget_saved`], so that a start that fails half-way loses nothing.
    pub async fn load_saved(&self, now: Time) -> Result<SavedSessions, Error> {
        self.writer.ask(move |connection| saved_sessions::load(connection, now)).await
    }

    /// Deletes the saved sessions, but not the choices. Call it as soon as the new run serves: from then on the save is
    /// out of date, and after a kill it would bring back users who have gone offline.
    pub async fn forget_saved(&self) -> Result<(), Error> {
        self.writer.ask(saved_sessions::forget).await
    }
}

impl ArchiveStore for SqliteArchive {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            bounded(last_seen_entries.len(), MAX_LAST_SEEN_ENTRIES)?;
            self.writer.ask(move |connection| put(connection, &last_seen_entries)).await
        })
    }

    fn get_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Vec<Option<Time>>> {
        Box::pin(async move {
            bounded(users.len(), MAX_LAST_SEEN_ENTRIES)?;
            self.reader.ask(move |connection| get(connection, &users)).await
        })
    }
}

impl ChoiceStore for SqliteArchive {
    fn store(&self, stored: StoredChoice) -> StoreFuture<'static, ()> {
        Box::pin(self.writer.ask(move |connection| {
            let seen = stored.last_seen.map(|last_seen| LastSeenEntry { user: stored.user.clone(), last_seen });
            put(connection, seen.as_slice())?;
            saved_sessions::store_choice(connection, stored)
        }))
    }
}

fn put(connection: &Connection, last_seen_entries: &[LastSeenEntry]) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(PUT)?;
    for LastSeenEntry { user, last_seen } in last_seen_entries {
        put.execute(params![user.as_str(), i64::try_from(last_seen.0).unwrap_or(i64::MAX)])?;
    }
    Ok(())
}

fn get(connection: &Connection, users: &Ids<UserId>) -> rusqlite::Result<Vec<Option<Time>>> {
    let mut times = vec![None; users.len()];
    let mut get = connection.prepare_cached(GET)?;
    let asked = serde_json::Value::from_iter(users.iter()).to_string();
    let mut rows = get.query([asked])?;
    while let Some(row) = rows.next()? {
        if let Some(time) = times.get_mut(row.get::<_, u32>(0)? as usize) {
            *time = Some(time_of(row.get(1)?));
        }
    }
    Ok(times)
}

/// A stored time. A negative one was not written by this program; it reads as zero.
fn time_of(ms: i64) -> Time {
    Time(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_seen_entry(user: usize) -> Option<LastSeenEntry> {
        Some(LastSeenEntry { user: UserId::parse(format!("user-{user}")).ok()?, last_seen: Time(7) })
    }

    #[tokio::test]
    async fn full_disk_fails_the_write_and_recovers() -> Result<(), Box<dyn std::error::Error>> {
        let archive = SqliteArchive::in_memory()?;
        archive.put_many((0..10).filter_map(last_seen_entry).collect()).await?;
        archive.writer.ask(|c| c.pragma_update_and_check(None, "max_page_count", 8, |_| Ok(()))).await?;
        let many: Vec<_> = (0..MAX_LAST_SEEN_ENTRIES).filter_map(last_seen_entry).collect();
        assert_eq!(archive.put_many(many.clone()).await, Err(Error::Unavailable(1000)));
        let known = |answers: Vec<Option<Time>>| answers.into_iter().flatten().count();
        let users: Ids<UserId> = many.iter().map(|last_seen_entry| &last_seen_entry.user).collect();
        assert_eq!(archive.get_many(users.clone()).await.map(known), Ok(10));
        archive.writer.ask(|c| c.pragma_update_and_check(None, "max_page_count", 100_000, |_| Ok(()))).await?;
        archive.put_many(many).await?;
        assert_eq!(archive.get_many(users).await.map(known), Ok(MAX_LAST_SEEN_ENTRIES));
        Ok(())
    }
}
