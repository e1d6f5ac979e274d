//! Restricted accounts in files, for bulk import and export.
//!
//! Two formats: a text file with one id per line, and a bitmap where bit i is account i, which cannot express ids that are
//! names. A text file is checked completely before the first batch, so that a file with an error in its last line changes
//! nothing. Memory is bounded by the numbers, not by the file size: 512 MiB if every page of 65,536 has a number near its
//! end.

mod accounts;
mod batches;
mod export;
mod lines;

use std::io;

use rollcall_core::Error;
use thiserror::Error as ThisError;

pub use batches::{Batches, read_bitmap, read_ids};
pub use export::{Exported, export};

/// The most bad lines that are reported; the others are only counted.
pub const MAX_REPORTED: usize = 20;

/// The format of a file of accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One id per line. Blank lines, lines that begin with `#`, and white space around an id are ignored.
    Ids,
    /// One bit per account: the first is the highest bit of the first byte.
    Bitmap,
}

/// What to do with the accounts in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportAction {
    /// Restrict them.
    Restrict,
    /// Lift their restriction.
    Unrestrict,
}

/// A line that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// The line number; the first is 1.
    pub line: u64,
    /// The rule it breaks, as a clause: "is not UTF-8".
    pub rule: String,
}

/// Why a file could not be read or written.
#[derive(Debug, ThisError)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Some lines are not valid ids.
    #[error("{count} bad lines; {}", listed(.lines))]
    BadLines {
        /// The first bad lines, at most [`MAX_REPORTED`].
        lines: Vec<BadLine>,
        /// The number of bad lines.
        count: u64,
    },
    /// A bitmap is longer than all numbers take.
    #[error("the bitmap has {0} bytes; the most is 536870912, for accounts below 2^32")]
    TooLong(u64),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The store's log was trimmed faster than it could be read.
    #[error("the policy changes faster than it can be exported; try again")]
    Overtaken,
}

fn listed(lines: &[BadLine]) -> String {
    let lines: Vec<String> = lines.iter().map(|BadLine { line, rule }| format!("line {line} {rule}")).collect();
    lines.join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests;
