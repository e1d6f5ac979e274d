//! The log of changes: a chain of rows, trimmed to the newest.
//!
//! A row's number is the time in microseconds, or one more than the number before it if the clock is behind. Counting
//! from one would reuse the numbers of lost rows after the file was restored from a backup, and a reader that had seen
//! the lost rows would not notice.

use rollcall_core::policy::PolicyChange;
use rusqlite::{Connection, OptionalExtension, params};

use crate::policies::encoding;

/// The names in `meta`: the number of the newest row, which outlives the row, and the number of rows.
const LAST: &str = "policy_seq";
const ROWS: &str = "policy_rows";

/// A row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// A change.
    Change(PolicyChange),
    /// A page of 65,536 numbers that changed. A reader of the log looks up its state: the change itself would take 8 KiB
    /// per row.
    Page(u32),
}

/// The log, for one batch of changes.
pub(super) struct Log<'a> {
    connection: &'a Connection,
    last: i64,
    added: i64,
    now_us: i64,
}

/// The number of the newest row ever added; zero before the first.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<i64> {
    meta(connection, LAST)
}

impl<'a> Log<'a> {
    pub(super) fn open(connection: &'a Connection, now_us: i64) -> rusqlite::Result<Self> {
        Ok(Self { connection, last: last(connection)?, added: 0, now_us })
    }

    pub(super) fn add(&mut self, change: &PolicyChange) -> rusqlite::Result<()> {
        let (page, bytes) = match change {
            PolicyChange::RestrictMany(numbers) | PolicyChange::UnrestrictMany(numbers) => (Some(numbers.page()), None),
            PolicyChange::Restrict(_)
            | PolicyChange::Unrestrict(_)
            | PolicyChange::Block(..)
            | PolicyChange::Unblock(..)
            | PolicyChange::AddContact(..)
            | PolicyChange::RemoveContact(..)
            | PolicyChange::SetPrivacy(..) => {
                let mut bytes = Vec::new();
                encoding::encode(&mut bytes, change);
                (None, Some(bytes))
            }
        };
        let seq = self.now_us.max(self.last.saturating_add(1));
        let insert = "INSERT INTO policy_log (seq, prev, page, change) VALUES (?1, ?2, ?3, ?4)";
        self.connection.prepare_cached(insert)?.execute(params![seq, self.last, page, bytes])?;
        self.last = seq;
        self.added += 1;
        Ok(())
    }

    /// Trims the log to `kept` rows. Returns whether any row was added.
    pub(super) fn close(self, kept: u64) -> rusqlite::Result<bool> {
        if self.added == 0 {
            return Ok(false);
        }
        let rows = meta(self.connection, ROWS)?.saturating_add(self.added);
        let surplus = rows.saturating_sub(i64::try_from(kept).unwrap_or(i64::MAX)).max(0);
        let trim = "DELETE FROM policy_log WHERE seq IN (SELECT seq FROM policy_log ORDER BY seq LIMIT ?1)";
        if surplus > 0 {
            self.connection.prepare_cached(trim)?.execute([surplus])?;
        }
        set_meta(self.connection, LAST, self.last)?;
        set_meta(self.connection, ROWS, rows - surplus)?;
        Ok(true)
    }
}

/// The next rows after this one, in order; `None` if the chain does not continue from it.
pub(super) fn after(connection: &Connection, from: i64, most: u32) -> rusqlite::Result<Option<Vec<(i64, Entry)>>> {
    let select = "SELECT seq, prev, page, change FROM policy_log WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    let mut select = connection.prepare_cached(select)?;
    let mut rows = select.query(params![from, most])?;
    let (mut at, mut entries) = (from, Vec::new());
    while let Some(row) = rows.next()? {
        let (seq, prev): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (page, change): (Option<u32>, Option<Vec<u8>>) = (row.get(2)?, row.get(3)?);
        let change = || change.and_then(|bytes| encoding::decode(&mut bytes.as_slice())).map(Entry::Change);
        let Some(entry) = page.map(Entry::Page).or_else(change).filter(|_| prev == at) else { return Ok(None) };
        entries.push((seq, entry));
        at = seq;
    }
    // The caller is behind the newest row, so rows must follow; if none does, rows were lost.
    Ok(Some(entries).filter(|entries| !entries.is_empty()))
}

fn meta(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let mut select = connection.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    Ok(select.query_row([name], |row| row.get(0)).optional()?.unwrap_or(0))
}

fn set_meta(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
    connection.prepare_cached(insert)?.execute(params![name, value])?;
    Ok(())
}
