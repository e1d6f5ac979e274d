//! Limits on the size and duration of requests.

use std::time::Duration;

/// The most ids in one query. A friends list or a page of search results fits; more is several queries.
pub const MAX_QUERY_IDS: usize = 500;

/// The most beats in one batch: the limit of the contract's `beat-many`.
pub const MAX_BATCH_BEATS: usize = 1024;

/// The most changes in one batch: the limit of the contract's `apply`.
pub const MAX_CHANGES: usize = 1024;

/// Room for one beat, departure or status with every character of every field escaped six-fold: (128 + 128 + 140 + 32)
/// × 6 is 2.6 KB; the rest is margin for field names and whitespace.
pub const MAX_BODY_BYTES: usize = 16 * 1024;

/// Room for the largest list, which is the subjects of a check: 10,000 ids of 128 bytes are 1.3 MB with their quotes. A
/// full batch is less: 1,024 beats of two such ids are 350 KB with their field names.
pub const MAX_BATCH_BODY_BYTES: usize = 2 * 1024 * 1024;

/// The most bytes of one message on a socket: as much as a body that holds one item. A hundred ids of full length fit.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;

/// How long a client may take to send a body: the largest is two megabytes.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most ids in one query, duplicates included; for users and for conversations each.
    pub query_ids: usize,
    /// The most beats in one batch.
    pub batch_beats: usize,
    /// The most bytes of a body that holds one item.
    pub body_bytes: usize,
    /// The most bytes of a body that holds a list.
    pub batch_body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            query_ids: MAX_QUERY_IDS,
            batch_beats: MAX_BATCH_BEATS,
            body_bytes: MAX_BODY_BYTES,
            batch_body_bytes: MAX_BATCH_BODY_BYTES,
        }
    }
}
