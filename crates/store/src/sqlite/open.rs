//! Opening the file: what is there is ours and of a version we know, or the error says which file and why not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use thiserror::Error as ThisError;

/// The version of the tables below, kept in `PRAGMA user_version`.
const SCHEMA_VERSION: i64 = 2;

/// How long to wait for another process that holds the file. A checkpoint or a backup takes less; longer, and the
/// callers that queue behind are better told that the file is away.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The tables that each version added, the oldest first; a file goes through all that it lacks.
///
/// 1: `user_presence` is the archive. `choice` has a row for whoever chose something that still means something,
/// written as it is chosen. `session` is what a run that ended in good order left behind, and `meta` says when that
/// was.
///
/// 2: who may see whom. `policy_listed` has blocks (0) and contacts (1); `policy_privacy` whoever does not let everyone
/// see everything; `policy_restricted` accounts whose ids are names, `policy_numbers` those whose ids are numbers, a
/// bit each. Row numbers are what a snapshot is cut into pages by. `policy_log` says what changed: a change, or a page
/// of numbers; `prev` is the row before.
const SCHEMA: [&str; SCHEMA_VERSION as usize] = [
    "CREATE TABLE user_presence (user_id TEXT PRIMARY KEY, last_seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE choice (user_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE session (user_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    PRAGMA user_version = 1;",
    "CREATE TABLE policy_listed (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, list INTEGER NOT NULL,
        other TEXT NOT NULL, UNIQUE (owner, list, other)) STRICT;
    CREATE TABLE policy_privacy (id INTEGER PRIMARY KEY, user_id TEXT NOT NULL UNIQUE, presence INTEGER NOT NULL,
        last_seen INTEGER NOT NULL) STRICT;
    CREATE TABLE policy_restricted (id INTEGER PRIMARY KEY, user_id TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE policy_numbers (page INTEGER PRIMARY KEY, bits BLOB NOT NULL) STRICT;
    CREATE TABLE policy_log (seq INTEGER PRIMARY KEY, prev INTEGER NOT NULL, page INTEGER, change BLOB) STRICT;
    PRAGMA user_version = 2;",
];

/// Why the file could not be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// It cannot be read or written, or it is not a database.
    #[error("cannot use {} as the archive: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the database says.
        reason: String,
    },
    /// It is a database, but not ours.
    #[error("cannot use {} as the archive: it is another program's database", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a later version of this program.
    #[error("cannot use {} as the archive: it has schema version {found}, newer than {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
}

impl OpenError {
    pub(super) fn unusable(path: &Path, reason: impl ToString) -> Self {
        Self::Unusable { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Opens the file for writing, and makes it and its tables if they are not there.
pub(super) fn writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    set_up(&connection).map_err(|error| OpenError::unusable(path, error))?;
    // A file that may not be written opens all the same, and only the first write would fail.
    if connection.is_readonly("main").map_err(|error| OpenError::unusable(path, error))? {
        return Err(OpenError::unusable(path, "it is read-only"));
    }
    migrate(&connection, path)?;
    Ok(connection)
}

/// Opens the file, which is there, for reading.
pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// A database that lives in memory and ends with its connection.
pub(super) fn in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(super::IN_MEMORY);
    let connection = Connection::open_in_memory().map_err(|error| OpenError::unusable(path, error))?;
    migrate(&connection, path)?;
    Ok(connection)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let connect = || {
        let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Opening alone reads nothing; this does, so that a file which is no database is found out here.
        connection.pragma_query_value(None, "schema_version", |_| Ok(()))?;
        Ok(connection)
    };
    connect().map_err(|error: rusqlite::Error| OpenError::unusable(path, error))
}

/// A write-ahead log, so that readers do not wait for writers. `synchronous = FULL`, because under a write-ahead log
/// `NORMAL` survives a killed process but not a power cut, and the contract says *durably once this returns*; what that
/// costs is one sync for whatever has queued up, not one for each.
fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let unusable = |error| OpenError::unusable(path, error);
    // Immediate: of two processes that find a new file, one makes the tables and the other finds them made.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(unusable)?;
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unusable)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(unusable)?;
    let done = match usize::try_from(found) {
        Ok(0) if tables > 0 => return Err(OpenError::Foreign { path: path.to_owned() }),
        Ok(done) if done <= SCHEMA.len() => done,
        _ => return Err(OpenError::Newer { path: path.to_owned(), found, known: SCHEMA_VERSION }),
    };
    for step in SCHEMA.iter().skip(done) {
        connection.execute_batch(step).map_err(unusable)?;
    }
    connection.execute_batch("COMMIT").map_err(unusable)
}
