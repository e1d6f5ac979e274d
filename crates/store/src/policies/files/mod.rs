//! Restricted accounts in files, for bulk import and export.
//!
//! Two formats: ids, one a line, which a person can read; and a bitmap, where bit i is account i, which cannot express
//! ids that are names. A file is checked whole before any of it is handed out, so that one with a mistake in its last
//! line changes nothing. Memory is bounded by the numbers there are, not by the file: 512 MiB if every page of 65,536
//! has one of its last.

mod accounts;
mod batches;
mod export;
mod lines;

use std::io;

use rollcall_core::Error;
use thiserror::Error as ThisError;

pub use batches::{Batches, read_bitmap, read_ids};
pub use export::{Exported, export};

/// The bad lines that are reported; the others are only counted.
pub const MAX_REPORTED: usize = 20;

/// How accounts are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One id a line. Blank lines, lines that begin with `#`, and white space around an id count for nothing.
    Ids,
    /// One bit an account: the first is the highest bit of the first byte.
    Bitmap,
}

/// What is to become of the accounts in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// They are restricted.
    Restrict,
    /// Their restriction is lifted.
    Unrestrict,
}

/// A line that holds no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Which, the first being 1.
    pub line: u64,
    /// What is wrong with it, as a clause: "is not UTF-8".
    pub rule: String,
}

/// Why a file could not be read or written.
#[derive(Debug, ThisError)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Lines hold no ids.
    #[error("{count} bad lines; {}", listed(.lines))]
    BadLines {
        /// The first of them.
        lines: Vec<BadLine>,
        /// How many there are.
        count: u64,
    },
    /// A bitmap has bits for accounts that cannot be numbers.
    #[error("the bitmap has {0} bytes; accounts below 2^32 take 536870912")]
    TooLong(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The store's log was trimmed faster than it could be followed.
    #[error("the store changes faster than it can be read")]
    Overtaken,
}

fn listed(lines: &[BadLine]) -> String {
    let lines: Vec<String> = lines.iter().map(|BadLine { line, rule }| format!("line {line} {rule}")).collect();
    lines.join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests;
