//! The copy as a SQLite database: the policy in parts, in the order in which they are to be applied.
//!
//! `part` has a row for each page of the store's snapshot, then one for each answer that followed it. `copy` has one row: of
//! which store, up to which cursor, how many bytes are the snapshot, and a checksum of all of it.
//!
//! Nothing is synced. A killed process loses nothing: the kernel has its writes, and SQLite's journal undoes half a
//! transaction. After a power cut any page of the file may be old or torn; the checksum finds that, and the copy is dropped.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crc32fast::Hasher;
use rollcall_core::policy::PolicyChange;
use rollcall_functions::capabilities::{Cursor, PolicyPage};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use thiserror::Error as ThisError;

use crate::policies::encoding;

const SCHEMA: &str = "CREATE TABLE copy (id INTEGER PRIMARY KEY CHECK (id = 0), identity TEXT NOT NULL,
        cursor BLOB NOT NULL, snapshot_bytes INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;
    CREATE TABLE part (number INTEGER PRIMARY KEY, changes BLOB NOT NULL) STRICT;";

const INSERT_PART: &str = "INSERT INTO part (number, changes) VALUES (?1, ?2)";

/// The bytes of a database page. A part of the snapshot takes hundreds of kilobytes, so that larger pages mean fewer reads;
/// one that follows takes a hundred bytes, and rewrites a page or two.
const PAGE_SIZE: u32 = 16 << 10;

/// How long to wait for another connection: the copy is not worth waiting for.
const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

/// The log of a copy may always take this many bytes.
const MIN_LOG_BYTES: u64 = 16 << 20;

/// Parts that are served as one page have at most this many bytes, or are one: a log has many small parts.
const GROUP_BYTES: u64 = 256 << 10;

/// Why the copy could not be used.
#[derive(Debug, ThisError)]
pub(super) enum CopyError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("its checksum is wrong: it was torn or damaged")]
    Damaged,
    #[error("another process changed it")]
    Changed,
}

/// Where the parts are and what they sum up to.
#[derive(Debug, Default)]
struct Index {
    groups: Vec<Group>,
    parts: i64,
    bytes: u64,
    /// Of all parts so far, in order.
    checksum: u32,
}

/// Parts that are served together.
#[derive(Debug, Clone, Copy)]
struct Group {
    first: i64,
    end: i64,
    bytes: u64,
    checksum_before: u32,
    checksum_after: u32,
}

impl Index {
    fn add(&mut self, part: &[u8]) {
        let (bytes, checksum_after) = (part.len() as u64, continued(self.checksum, part));
        match self.groups.last_mut().filter(|group| group.bytes + bytes <= GROUP_BYTES) {
            Some(group) => {
                group.end += 1;
                group.bytes += bytes;
                group.checksum_after = checksum_after;
            }
            None => {
                let (first, checksum_before) = (self.parts, self.checksum);
                self.groups.push(Group { first, end: first + 1, bytes, checksum_before, checksum_after });
            }
        }
        self.parts += 1;
        self.bytes += bytes;
        self.checksum = checksum_after;
    }
}

/// A copy that is complete: a snapshot, and the log after it.
#[derive(Debug)]
pub(super) struct Complete {
    connection: Connection,
    index: Index,
    header: Header,
}

/// The row of `copy`, without its checksum.
#[derive(Debug, Default)]
struct Header {
    identity: String,
    cursor: Cursor,
    snapshot_bytes: u64,
}

impl Header {
    /// The checksum of the whole copy, given that of its parts.
    fn seal(&self, parts: u32, cursor: &[u64]) -> u32 {
        let sealed = continued(continued(parts, self.identity.as_bytes()), &cursor_bytes(cursor));
        continued(sealed, &self.snapshot_bytes.to_le_bytes())
    }
}

impl Complete {
    /// Opens and verifies a copy, which reads all of it; `None` if it is a copy of another store.
    pub(super) fn open(path: &Path, identity: &str) -> Result<Option<Self>, CopyError> {
        let mut connection = connect(path)?;
        let transaction = connection.transaction()?;
        let select = "SELECT identity, cursor, snapshot_bytes, checksum FROM copy WHERE id = 0";
        let (header, seal) = transaction.query_row(select, [], |row| {
            let snapshot_bytes = row.get::<_, i64>(2)?.unsigned_abs();
            let header =
                Header { identity: row.get(0)?, cursor: cursor_of(row.get_ref(1)?.as_blob()?), snapshot_bytes };
            Ok((header, row.get::<_, u32>(3)?))
        })?;
        let mut index = Index::default();
        {
            let mut select = transaction.prepare("SELECT number, changes FROM part ORDER BY number")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                if row.get::<_, i64>(0)? != index.parts {
                    return Err(CopyError::Damaged);
                }
                index.add(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
            }
        }
        transaction.finish()?;
        if header.seal(index.checksum, &header.cursor) != seal {
            return Err(CopyError::Damaged);
        }
        Ok((header.identity == identity).then_some(Self { connection, index, header }))
    }

    /// Up to where it is a copy.
    pub(super) fn cursor(&self) -> &Cursor {
        &self.header.cursor
    }

    /// Whether the log has outgrown the snapshot: reading the store again then costs less than reading all of this.
    pub(super) fn outgrown(&self) -> bool {
        let snapshot_bytes = self.header.snapshot_bytes;
        self.index.bytes.saturating_sub(snapshot_bytes) > snapshot_bytes.max(MIN_LOG_BYTES)
    }

    /// Adds what came after the copy.
    pub(super) fn append(&mut self, changes: &[PolicyChange], after: Cursor) -> Result<(), CopyError> {
        let part = encoded(changes);
        let seal = |parts, cursor| self.header.seal(parts, cursor);
        let (before, sealed) =
            (seal(self.index.checksum, &self.header.cursor), seal(continued(self.index.checksum, &part), &after));
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let update = "UPDATE copy SET cursor = ?1, checksum = ?2 WHERE id = 0 AND checksum = ?3";
        if transaction.prepare_cached(update)?.execute(params![cursor_bytes(&after), sealed, before])? != 1 {
            return Err(CopyError::Changed);
        }
        transaction.prepare_cached(INSERT_PART)?.execute(params![self.index.parts, part])?;
        transaction.commit()?;
        self.index.add(&part);
        self.header.cursor = after;
        Ok(())
    }

    /// How many groups of parts it is read in.
    pub(super) fn groups(&self) -> usize {
        self.index.groups.len()
    }

    /// The changes of one group. Verified again: a disk may fail after the copy was opened.
    pub(super) fn group(&self, number: usize) -> Result<Vec<PolicyChange>, CopyError> {
        let group = self.index.groups.get(number).ok_or(CopyError::Damaged)?;
        let select = "SELECT changes FROM part WHERE number >= ?1 AND number < ?2 ORDER BY number";
        let mut select = self.connection.prepare_cached(select)?;
        let mut rows = select.query([group.first, group.end])?;
        let (mut checksum, mut changes) = (group.checksum_before, Vec::new());
        while let Some(row) = rows.next()? {
            let mut part = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
            checksum = continued(checksum, part);
            while !part.is_empty() {
                changes.push(encoding::decode(&mut part).ok_or(CopyError::Damaged)?);
            }
        }
        if checksum == group.checksum_after { Ok(changes) } else { Err(CopyError::Damaged) }
    }
}

/// A copy that is not complete yet, in a file beside the one that it will replace. It is one transaction. Dropping it removes
/// the file.
#[derive(Debug)]
pub(super) struct Recording {
    /// `None` once it is complete.
    connection: Option<Connection>,
    beside: PathBuf,
    index: Index,
    header: Header,
    /// The next page; `None` after the last.
    expected: Option<u32>,
}

impl Recording {
    /// Begins a recording with the store's first page, in place of any that was begun before.
    pub(super) fn begin(path: &Path, identity: &str, page: &PolicyPage) -> Result<Self, CopyError> {
        let beside = with_suffix(path, ".new");
        remove(&beside)?;
        create_private(&beside)?;
        let header = Header { identity: identity.to_owned(), cursor: page.cursor.clone(), snapshot_bytes: 0 };
        // From here on dropping it removes the file.
        let mut recording =
            Self { connection: None, beside: beside.clone(), index: Index::default(), header, expected: Some(0) };
        let connection = connect(&beside)?;
        connection.pragma_update(None, "page_size", PAGE_SIZE)?;
        // Without a journal: if this process is killed, the next recording begins with a new file.
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        connection.execute_batch(SCHEMA)?;
        recording.connection = Some(connection);
        recording.add(page)?;
        Ok(recording)
    }

    /// The next page; `None` if the recording is complete.
    pub(super) fn expected(&self) -> Option<u32> {
        self.expected
    }

    /// Adds the page that was expected.
    pub(super) fn add(&mut self, page: &PolicyPage) -> Result<(), CopyError> {
        let connection = self.connection.as_ref().ok_or(CopyError::Changed)?;
        let part = encoded(&page.changes);
        connection.prepare_cached(INSERT_PART)?.execute(params![self.index.parts, part])?;
        self.index.add(&part);
        self.expected = page.next;
        Ok(())
    }

    /// Moves it into place.
    pub(super) fn finish(mut self, path: &Path) -> Result<Complete, CopyError> {
        let connection = self.connection.take().ok_or(CopyError::Changed)?;
        let (index, mut header) = (std::mem::take(&mut self.index), std::mem::take(&mut self.header));
        header.snapshot_bytes = index.bytes;
        let insert = "INSERT INTO copy (id, identity, cursor, snapshot_bytes, checksum) VALUES (0, ?1, ?2, ?3, ?4)";
        let seal = header.seal(index.checksum, &header.cursor);
        let bytes = i64::try_from(header.snapshot_bytes).unwrap_or(i64::MAX);
        connection.execute(insert, params![header.identity, cursor_bytes(&header.cursor), bytes, seal])?;
        connection.execute_batch("COMMIT")?;
        connection.close().map_err(|(_, error)| error)?;
        // A journal that an unusable copy left behind would be applied to this one.
        remove(&with_suffix(path, "-journal"))?;
        fs::rename(&self.beside, path)?;
        // Opened again, so that its journal is beside it under its own name.
        Ok(Complete { connection: connect(path)?, index, header })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.connection.take());
        // Not there any more if it was moved into place.
        let _ = remove(&self.beside);
    }
}

/// Removes a copy from the disk.
pub(super) fn remove_copy(path: &Path) {
    // What remains is found to be of no use when it is opened.
    let _ = remove(path);
    let _ = remove(&with_suffix(path, "-journal"));
}

fn connect(path: &Path) -> Result<Connection, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    Ok(connection)
}

/// Creates a file that only the owner of the process can read: it contains who blocked which user.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn encoded(changes: &[PolicyChange]) -> Vec<u8> {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| encoding::encode(&mut bytes, change));
    bytes
}

fn cursor_bytes(cursor: &[u64]) -> Vec<u8> {
    cursor.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn cursor_of(bytes: &[u8]) -> Cursor {
    bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect()
}

/// The CRC-32 of what came before, and of these bytes with their length.
fn continued(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(before);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}
