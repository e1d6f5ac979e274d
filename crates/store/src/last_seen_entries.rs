//! The batch limit of every archive.

use rollcall_core::Error;

/// The most last seen entries or users in one call of an archive: the limit of the contract.
pub const MAX_LAST_SEEN_ENTRIES: usize = 10_000;

/// Refuses a call above the limit.
pub(crate) fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_LAST_SEEN_ENTRIES { Err(Error::TooMany(MAX_LAST_SEEN_ENTRIES as u32)) } else { Ok(()) }
}
