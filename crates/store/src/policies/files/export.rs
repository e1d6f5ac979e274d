//! Writes the restricted accounts to a file.

use std::io::Write;

use rollcall_core::UserId;
use rollcall_core::policy::PAGE_BYTES;
use rollcall_functions::capabilities::ChangesSince;

use super::accounts::{self, Accounts};
use super::lines::expressible;
use super::{FileError, Format};
use crate::policies::PolicyStore;

/// How many changes are requested at once.
const FOLLOW_LIMIT: u32 = 4096;

/// How often to start again because the log was trimmed during the read.
const ATTEMPTS: u32 = 3;

/// The outcome of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// How many accounts are in the file.
    pub accounts: u64,
    /// How many accounts the format cannot express: in a bitmap, names; in a list, ids that begin with `#` or have leading
    /// or trailing white space.
    pub left_out: u64,
}

/// Writes all restricted accounts, as of the moment when the last page has been read. All are held in memory.
pub async fn export(
    policies: &dyn PolicyStore,
    writer: &mut (dyn Write + Send),
    format: Format,
) -> Result<Exported, FileError> {
    let accounts = restricted(policies).await?;
    let exported = match format {
        Format::Ids => write_ids(&accounts, writer)?,
        Format::Bitmap => write_bitmap(&accounts, writer)?,
    };
    writer.flush()?;
    Ok(exported)
}

async fn restricted(policies: &dyn PolicyStore) -> Result<Accounts, FileError> {
    for _ in 0..ATTEMPTS {
        let (mut accounts, mut first, mut next) = (Accounts::default(), None, Some(0));
        while let Some(page) = next {
            let page = policies.snapshot(page).await?;
            page.changes.into_iter().for_each(|change| accounts.apply(change));
            first.get_or_insert(page.cursor);
            next = page.next;
        }
        if follow(policies, &mut accounts, first.unwrap_or_default()).await? {
            return Ok(accounts);
        }
    }
    Err(FileError::Overtaken)
}

/// Applies the changes since the first page. Returns false if the log no longer reaches back that far.
async fn follow(policies: &dyn PolicyStore, accounts: &mut Accounts, mut cursor: Vec<u64>) -> Result<bool, FileError> {
    loop {
        match policies.since(cursor, FOLLOW_LIMIT).await? {
            ChangesSince::Gap => return Ok(false),
            ChangesSince::Changes(changes, _) if changes.is_empty() => return Ok(true),
            ChangesSince::Changes(changes, after) => {
                changes.into_iter().for_each(|change| accounts.apply(change));
                cursor = after;
            }
        }
    }
}

fn write_ids(accounts: &Accounts, writer: &mut dyn Write) -> Result<Exported, FileError> {
    let mut exported = Exported { accounts: 0, left_out: 0 };
    for (page, bits) in &accounts.pages {
        for number in accounts::each(*page, bits) {
            writeln!(writer, "{number}")?;
            exported.accounts += 1;
        }
    }
    for name in accounts.names.iter().map(UserId::as_str) {
        if expressible(name) {
            writeln!(writer, "{name}")?;
            exported.accounts += 1;
        } else {
            exported.left_out += 1;
        }
    }
    Ok(exported)
}

fn write_bitmap(accounts: &Accounts, writer: &mut dyn Write) -> Result<Exported, FileError> {
    let mut exported = Exported { accounts: 0, left_out: accounts.names.len() as u64 };
    let mut written = 0_u64;
    for (page, bits) in &accounts.pages {
        let count = accounts::count(bits);
        if count == 0 {
            continue;
        }
        let begin = u64::from(*page) * PAGE_BYTES as u64;
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), begin - written), writer)?;
        writer.write_all(bits)?;
        written = begin + bits.len() as u64;
        exported.accounts += count;
    }
    Ok(exported)
}
