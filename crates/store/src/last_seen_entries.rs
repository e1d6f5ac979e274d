//! What every archive refuses: more at once than the contract allows.

use rollcall_core::Error;

/// The most last seen entries or people in one call of an archive: the bound of the contract.
pub const MAX_LAST_SEEN_ENTRIES: usize = 10_000;

/// Refuses a call above the bound, whole.
pub(crate) fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_LAST_SEEN_ENTRIES { Err(Error::TooMany(MAX_LAST_SEEN_ENTRIES as u32)) } else { Ok(()) }
}
