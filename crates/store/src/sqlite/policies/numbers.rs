//! Restricted accounts whose ids are numbers: one bit each, 65,536 per row.

use rollcall_core::policy::{Numbers, PAGE_BYTES, PAGE_NUMBERS};
use rusqlite::{Connection, OptionalExtension, params};

/// What to do with the bits of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// Set the given bits.
    Set,
    /// Clear the given bits.
    Clear,
}

/// The page of a number, and a bitmap of the page in which only its bit is set.
pub(super) fn single_bit(number: u32) -> (u32, Vec<u8>) {
    let (page, within) = (number / PAGE_NUMBERS, number % PAGE_NUMBERS);
    let mut bits = vec![0; within as usize / 8];
    bits.push(0x80 >> (within % 8));
    (page, bits)
}

/// The bits of a page, without trailing zeros.
pub(super) fn load(connection: &Connection, page: u32) -> rusqlite::Result<Vec<u8>> {
    let mut select = connection.prepare_cached("SELECT bits FROM policy_numbers WHERE page = ?1")?;
    let mut bits: Vec<u8> = select.query_row([page], |row| row.get(0)).optional()?.unwrap_or_default();
    bits.truncate(PAGE_BYTES);
    Ok(bits)
}

/// Whether the number is restricted.
pub(super) fn has(connection: &Connection, number: u32) -> rusqlite::Result<bool> {
    let (page, within) = (number / PAGE_NUMBERS, number % PAGE_NUMBERS);
    let byte = "SELECT substr(bits, ?2, 1) FROM policy_numbers WHERE page = ?1";
    let byte: Option<Vec<u8>> =
        connection.prepare_cached(byte)?.query_row([page, within / 8 + 1], |row| row.get(0)).optional()?;
    Ok(byte.and_then(|byte| byte.first().copied()).is_some_and(|byte| byte & (0x80 >> (within % 8)) != 0))
}

/// Sets or clears the given bits of the page. Returns whether that changed anything.
pub(super) fn merge(connection: &Connection, page: u32, given: &[u8], how: Merge) -> rusqlite::Result<bool> {
    let found = load(connection, page)?;
    let mut bits = found.clone();
    match how {
        Merge::Set => {
            bits.resize(found.len().max(given.len()), 0);
            bits.iter_mut().zip(given).for_each(|(bit, given)| *bit |= given);
        }
        Merge::Clear => bits.iter_mut().zip(given).for_each(|(bit, given)| *bit &= !given),
    }
    bits.truncate(bits.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    if bits == found {
        return Ok(false);
    }
    if bits.is_empty() {
        connection.prepare_cached("DELETE FROM policy_numbers WHERE page = ?1")?.execute([page])?;
    } else {
        let insert = "INSERT OR REPLACE INTO policy_numbers (page, bits) VALUES (?1, ?2)";
        connection.prepare_cached(insert)?.execute(params![page, bits])?;
    }
    Ok(true)
}

/// The numbers of the page that are not restricted, and those that are: together the full state of the page.
pub(super) fn free_and_restricted(
    connection: &Connection,
    page: u32,
) -> rusqlite::Result<(Option<Numbers>, Option<Numbers>)> {
    let bits = load(connection, page)?;
    let mut free = vec![0xff; PAGE_BYTES];
    free.iter_mut().zip(&bits).for_each(|(free, bits)| *free = !bits);
    let some = |bits: Vec<u8>| Numbers::new(page, bits).ok().filter(|numbers| numbers.bits().iter().any(|&b| b != 0));
    Ok((some(free), some(bits)))
}
