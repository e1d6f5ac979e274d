//! A snapshot of all policy, page by page, without state between the pages.
//!
//! A page number encodes a table and a range of row ids, so that a page is found without reading those before it. Row ids
//! are assigned in order and never change. Deleted rows leave pages that are not full; empty pages are skipped.

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PAGE_BYTES, PolicyChange};
use rollcall_functions::capabilities::PolicyPage;
use rusqlite::{Connection, Row};

use super::apply::List;
use super::log;
use super::relations::privacy_in;

/// The position of the table's number within a page number. Bit 31 stays free: see `LocalCopy`.
const SECTION_SHIFT: u32 = 29;

/// The rows per page: at a hundred bytes each 400 KB, which takes the reader thread a few milliseconds.
const ROWS: i64 = 4096;

/// The same for rows of up to 8 KiB.
const NUMBER_ROWS: i64 = 64;

/// A table, in the order of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Listed,
    Privacy,
    Restricted,
    Numbers,
}

/// All of them, in order.
const SECTIONS: [Section; 4] = [Section::Listed, Section::Privacy, Section::Restricted, Section::Numbers];

impl Section {
    fn rows(self) -> i64 {
        match self {
            Self::Listed | Self::Privacy | Self::Restricted => ROWS,
            Self::Numbers => NUMBER_ROWS,
        }
    }

    fn range(self) -> &'static str {
        match self {
            Self::Listed => "SELECT owner, list, other FROM policy_listed WHERE id >= ?1 AND id < ?2 ORDER BY id",
            Self::Privacy => {
                "SELECT user_id, presence, last_seen FROM policy_privacy WHERE id >= ?1 AND id < ?2 ORDER BY id"
            }
            Self::Restricted => "SELECT user_id FROM policy_restricted WHERE id >= ?1 AND id < ?2 ORDER BY id",
            Self::Numbers => "SELECT page, bits FROM policy_numbers WHERE page >= ?1 AND page < ?2 ORDER BY page",
        }
    }

    fn first_from(self) -> &'static str {
        match self {
            Self::Listed => "SELECT min(id) FROM policy_listed WHERE id >= ?1",
            Self::Privacy => "SELECT min(id) FROM policy_privacy WHERE id >= ?1",
            Self::Restricted => "SELECT min(id) FROM policy_restricted WHERE id >= ?1",
            Self::Numbers => "SELECT min(page) FROM policy_numbers WHERE page >= ?1",
        }
    }

    /// The row as a change; `None` if it was not written by this program.
    fn change(self, row: &Row<'_>) -> rusqlite::Result<Option<PolicyChange>> {
        let id = |column| row.get::<_, String>(column).map(|text| UserId::parse(text).ok());
        Ok(match self {
            Self::Listed => {
                let (owner, list, other) = (id(0)?, row.get::<_, u8>(1)?, id(2)?);
                owner.zip(other).map(|(owner, other)| {
                    if list == List::Blocks.number() {
                        PolicyChange::Block(owner, other)
                    } else {
                        PolicyChange::AddContact(owner, other)
                    }
                })
            }
            Self::Privacy => {
                let privacy = privacy_in(row, 1)?;
                id(0)?.map(|user| PolicyChange::SetPrivacy(user, privacy))
            }
            Self::Restricted => id(0)?.map(PolicyChange::Restrict),
            Self::Numbers => {
                let (page, mut bits) = (row.get(0)?, row.get::<_, Vec<u8>>(1)?);
                bits.truncate(PAGE_BYTES);
                Numbers::new(page, bits).ok().map(PolicyChange::RestrictMany)
            }
        })
    }
}

/// One page, with the cursor of the log before it was read.
pub(super) fn page(connection: &Connection, page: u32, salt: u64) -> rusqlite::Result<PolicyPage> {
    let cursor = vec![log::last(connection)?.unsigned_abs()];
    let at = (page >> SECTION_SHIFT) as usize;
    let index = i64::from(page & ((1 << SECTION_SHIFT) - 1));
    let Some(&section) = SECTIONS.get(at) else {
        return Ok(PolicyPage { changes: Vec::new(), next: None, cursor, salt });
    };
    let (begin, end) = (index * section.rows(), (index + 1) * section.rows());
    let mut select = connection.prepare_cached(section.range())?;
    let changes: Vec<Option<PolicyChange>> =
        select.query_map([begin, end], |row| section.change(row))?.collect::<rusqlite::Result<_>>()?;
    let next = next(connection, at, end)?;
    Ok(PolicyPage { changes: changes.into_iter().flatten().collect(), next, cursor, salt })
}

/// The first page that is not empty, from this row of this table on.
fn next(connection: &Connection, at: usize, from: i64) -> rusqlite::Result<Option<u32>> {
    for (number, section) in (0_u32..).zip(SECTIONS).skip(at) {
        let from = if number as usize == at { from } else { 0 };
        let first: Option<i64> =
            connection.prepare_cached(section.first_from())?.query_row([from], |row| row.get(0))?;
        if let Some(first) = first {
            // 2^29 pages of 4,096 rows: this fails after two trillion inserts.
            let index = u32::try_from(first / section.rows()).ok().filter(|index| index >> SECTION_SHIFT == 0);
            let index = index.ok_or(rusqlite::Error::IntegralValueOutOfRange(0, first))?;
            return Ok(Some((number << SECTION_SHIFT) | index));
        }
    }
    Ok(None)
}
