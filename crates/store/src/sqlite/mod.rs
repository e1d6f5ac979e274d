//! Last seen in a SQLite file, beside it what the embedded store leaves behind for its next run, and who may see whom.
//!
//! One thread writes, one reads: a look never waits behind a write. Everything that is answered is on disk. Nothing
//! here panics over a file: one that cannot be used is refused at opening, by name; one that fails later answers
//! [`Error::Unavailable`], says so once in the log, and works again as soon as the disk does.

mod json;
mod open;
mod policies;
mod saved_sessions;
mod worker;

use std::path::Path;
use std::sync::Arc;

use rollcall_core::{Error, Session, Time, UserId};
use rollcall_functions::capabilities::LastSeenEntry;
use rusqlite::{Connection, OptionalExtension, params};

use crate::last_seen_entries::bounded;
use crate::persistence::{ChoiceStore, SavedSessions, StoredChoice};
use crate::{Answer, LastSeen};

pub use open::OpenError;
pub use policies::{LOG_KEPT, SqlitePolicies};
use worker::{Purpose, Worker};

/// What SQLite calls a database without a file.
const IN_MEMORY: &str = ":memory:";

/// An older last seen entry changes nothing.
const PUT: &str = "INSERT INTO user_presence (user_id, last_seen_at) VALUES (?1, ?2) ON CONFLICT (user_id) \
                   DO UPDATE SET last_seen_at = excluded.last_seen_at WHERE excluded.last_seen_at > last_seen_at";
const GET: &str = "SELECT last_seen_at FROM user_presence WHERE user_id = ?1";

/// The archive in a file. Dropping it finishes what was asked of it and closes the file.
#[derive(Debug)]
pub struct SqliteArchive {
    /// First, so that it is closed first: the last to close folds the log into the file, which a reader may not. Where
    /// the database is in memory this is the writer itself: there it belongs to one connection.
    reader: Arc<Worker>,
    writer: Arc<Worker>,
    shared: Arc<policies::Shared>,
}

impl SqliteArchive {
    /// Opens a file, or makes it. The name `:memory:` is not a file: see [`Self::in_memory`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        if path == Path::new(IN_MEMORY) {
            return Self::in_memory();
        }
        let writer = Worker::start(open::writer(path)?, Purpose::Writing, path)?;
        let reader = Worker::start(open::reader(path)?, Purpose::Reading, path)?;
        Ok(Self { writer: Arc::new(writer), reader: Arc::new(reader), shared: Arc::new(policies::Shared::new()) })
    }

    /// An archive that forgets everything when it is dropped.
    pub fn in_memory() -> Result<Self, OpenError> {
        let worker = Worker::start(open::in_memory()?, Purpose::Writing, Path::new(IN_MEMORY))?;
        let writer = Arc::new(worker);
        Ok(Self { reader: Arc::clone(&writer), writer, shared: Arc::new(policies::Shared::new()) })
    }

    /// Saves everybody, in place of whatever was saved before: the last thing that a run does.
    pub async fn save(&self, at: Time, sessions: Vec<(UserId, Session)>) -> Result<(), Error> {
        self.writer.ask(move |connection| saved_sessions::save(connection, at, sessions)).await
    }

    /// What an earlier run left behind; `now` says which choices still mean something. It stays there until
    /// [`Self::forget_saved`], so that a start that fails half-way loses nothing.
    pub async fn load_saved(&self, now: Time) -> Result<SavedSessions, Error> {
        self.writer.ask(move |connection| saved_sessions::load(connection, now)).await
    }

    /// Strikes out what was saved, choices excepted. To be called as soon as the new run serves: from then on the save
    /// is out of date, and after a kill it would bring back people who have left.
    pub async fn forget_saved(&self) -> Result<(), Error> {
        self.writer.ask(saved_sessions::forget).await
    }
}

impl LastSeen for SqliteArchive {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Answer<'_, ()> {
        Box::pin(async move {
            bounded(&last_seen_entries)?;
            self.writer.ask(move |connection| put(connection, &last_seen_entries)).await
        })
    }

    fn get_many(&self, users: Vec<UserId>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(async move {
            bounded(&users)?;
            self.reader.ask(move |connection| get(connection, &users)).await
        })
    }
}

impl ChoiceStore for SqliteArchive {
    fn store(&self, stored: StoredChoice) -> Answer<'static, ()> {
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

fn get(connection: &Connection, users: &[UserId]) -> rusqlite::Result<Vec<Option<Time>>> {
    let mut get = connection.prepare_cached(GET)?;
    let mut look = |user: &UserId| get.query_row([user.as_str()], |row| row.get(0)).optional();
    users.iter().map(|user| Ok(look(user)?.map(time_of))).collect()
}

/// A time as SQLite keeps it. We write none below zero, so one that is was not ours, and reads as the beginning.
fn time_of(ms: i64) -> Time {
    Time(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_LAST_SEEN_ENTRIES;

    fn last_seen_entry(user: usize) -> Option<LastSeenEntry> {
        Some(LastSeenEntry { user: UserId::parse(format!("user-{user}")).ok()?, last_seen: Time(7) })
    }

    #[tokio::test]
    async fn a_full_disk_fails_the_write_keeps_what_was_there_and_heals() -> Result<(), Box<dyn std::error::Error>> {
        let archive = SqliteArchive::in_memory()?;
        archive.put_many((0..10).filter_map(last_seen_entry).collect()).await?;
        archive.writer.ask(|c| c.pragma_update_and_check(None, "max_page_count", 8, |_| Ok(()))).await?;
        let many: Vec<_> = (0..MAX_LAST_SEEN_ENTRIES).filter_map(last_seen_entry).collect();
        assert_eq!(archive.put_many(many.clone()).await, Err(Error::Unavailable(1000)));
        let known = |answers: Vec<Option<Time>>| answers.into_iter().flatten().count();
        let users: Vec<UserId> = many.iter().map(|last_seen_entry| last_seen_entry.user.clone()).collect();
        assert_eq!(archive.get_many(users.clone()).await.map(known), Ok(10));
        archive.writer.ask(|c| c.pragma_update_and_check(None, "max_page_count", 100_000, |_| Ok(()))).await?;
        archive.put_many(many).await?;
        assert_eq!(archive.get_many(users).await.map(known), Ok(MAX_LAST_SEEN_ENTRIES));
        Ok(())
    }
}
