//! Opens the file and migrates it. A file of another program or of a newer version is refused; the error names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use thiserror::Error as ThisError;

/// The version of the tables below, stored in `PRAGMA user_version`.
const SCHEMA_VERSION: i64 = 2;

/// How long to wait for another process that has locked the file. A checkpoint or a backup takes less; after that it is
/// better to fail the callers that queue up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The migrations, the oldest first; a file runs all that it lacks.
///
/// 1: `user_presence` is the archive. `choice` has a row per user whose choice has an effect, written when the choice is
/// made. `session` is what a graceful shutdown saved, and `meta` has the time of that.
///
/// 2: policy. `policy_listed` has blocks (0) and contacts (1); `policy_privacy` the users whose privacy is not the
/// default; `policy_restricted` the restricted accounts whose ids are names, `policy_numbers` those whose ids are numbers,
/// one bit each. A snapshot is paged by row id. `policy_log` has the changes: one change, or the page of numbers that
/// changed; `prev` is the row before.
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
    /// The file cannot be read or written, or it is not a database.
    #[error("cannot use {} as the archive: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The error of SQLite or of the system.
        reason: String,
    },
    /// The file is a database of another program.
    #[error("cannot use {} as the archive: it is another program's database", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version of this program.
    #[error("cannot use {} as the archive: it has schema version {found}, newer than {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's schema version.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
}

impl OpenError {
    pub(super) fn unusable(path: &Path, reason: impl ToString) -> Self {
        Self::Unusable { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Opens the file for writing, and creates it and its tables if they do not exist.
pub(super) fn writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    set_up(&connection).map_err(|error| OpenError::unusable(path, error))?;
    // SQLite opens a read-only file without an error; only the first write would fail.
    if connection.is_readonly("main").map_err(|error| OpenError::unusable(path, error))? {
        return Err(OpenError::unusable(path, "it is read-only"));
    }
    migrate(&connection, path)?;
    Ok(connection)
}

/// Opens an existing file for reading.
pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Opens a database in memory, which ends with its connection.
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
        // Opening reads nothing; this does, so that a file that is not a database fails here.
        connection.pragma_query_value(None, "schema_version", |_| Ok(()))?;
        Ok(connection)
    };
    connect().map_err(|error: rusqlite::Error| OpenError::unusable(path, error))
}

/// A write-ahead log, so that readers do not wait for writers. `synchronous = FULL`, because with a write-ahead log
/// `NORMAL` survives a killed process but not a power cut, and the contract says *durably once this returns*. It costs
/// one sync per group of queued writes, not one per write.
fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let unusable = |error| OpenError::unusable(path, error);
    // Immediate: if two processes open a new file, one creates the tables and the other waits and finds them.
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
