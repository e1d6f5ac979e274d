//! The changes since a cursor.

use std::collections::{HashMap, HashSet};

use rollcall_core::policy::PolicyChange;
use rollcall_functions::capabilities::ChangesSince;
use rusqlite::Connection;

use super::log::{self, Entry};
use super::numbers;

/// The upper bound of the limit: a few megabytes.
const MAX_FOLLOWED: u32 = 16_384;

/// The lower bound of the limit, from the contract.
const MIN_FOLLOWED: u32 = 64;

/// How many changes a page of numbers counts for: it takes 8 KiB.
const PAGE_WEIGHT: u32 = 64;

/// The changes after the cursor.
pub(super) fn since(connection: &Connection, cursor: &[u64], limit: u32) -> rusqlite::Result<ChangesSince> {
    let from = match cursor {
        [] => return Ok(ChangesSince::Changes(Vec::new(), vec![log::last(connection)?.unsigned_abs()])),
        [from] => i64::try_from(*from).ok(),
        _ => None,
    };
    let Some(from) = from else { return Ok(ChangesSince::Gap) };
    if from == log::last(connection)? {
        return Ok(ChangesSince::Changes(Vec::new(), cursor.to_vec()));
    }
    let limit = limit.clamp(MIN_FOLLOWED, MAX_FOLLOWED);
    let Some(mut entries) = log::after(connection, from, limit)? else { return Ok(ChangesSince::Gap) };
    entries.truncate(count_within(&entries, limit));
    let to = entries.last().map_or(from, |(seq, _)| *seq);
    Ok(ChangesSince::Changes(changes(connection, entries)?, vec![to.unsigned_abs()]))
}

/// How many entries are within the limit; the first always is.
fn count_within(entries: &[(i64, Entry)], limit: u32) -> usize {
    let (mut weight, mut pages) = (0, HashSet::new());
    let within = |(_, entry): &&(i64, Entry)| {
        let room = weight < limit;
        weight += match entry {
            Entry::Change(_) => 1,
            Entry::Page(page) if pages.insert(*page) => PAGE_WEIGHT,
            Entry::Page(_) => 0,
        };
        room
    };
    entries.iter().take_while(within).count()
}

/// The entries as changes. A page is read in its current state and put at the position of its last entry. Later entries
/// about single numbers of the page lead to the same state.
fn changes(connection: &Connection, entries: Vec<(i64, Entry)>) -> rusqlite::Result<Vec<PolicyChange>> {
    let mut last = HashMap::new();
    for (seq, entry) in &entries {
        if let Entry::Page(page) = entry {
            last.insert(*page, *seq);
        }
    }
    let mut changes = Vec::with_capacity(entries.len());
    for (seq, entry) in entries {
        match entry {
            Entry::Change(change) => changes.push(change),
            Entry::Page(page) if last.get(&page) == Some(&seq) => {
                let (free, restricted) = numbers::free_and_restricted(connection, page)?;
                changes.extend(free.map(PolicyChange::UnrestrictMany));
                changes.extend(restricted.map(PolicyChange::RestrictMany));
            }
            Entry::Page(_) => {}
        }
    }
    Ok(changes)
}
