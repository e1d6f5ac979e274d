//! Applies changes in one transaction. A change without an effect is not logged.

use std::collections::HashMap;

use rollcall_core::policy::{MAX_LISTED, PolicyChange, Privacy, number_of};
use rollcall_core::{Error, UserId};
use rusqlite::{Connection, OptionalExtension, params};

use super::log::Log;
use super::numbers::{self, Merge};
use crate::policies::encoding::audience_byte;

/// The lists of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum List {
    Blocks,
    Contacts,
}

impl List {
    /// The value of the column `list`.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Blocks => 0,
            Self::Contacts => 1,
        }
    }
}

/// The outcome of a batch.
#[derive(Debug)]
pub(super) struct Applied {
    /// The outcome of each change.
    pub(super) results: Vec<Result<(), Error>>,
    /// Whether any change had an effect.
    pub(super) changed: bool,
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Changed,
    Unchanged,
    ListFull,
}

impl From<bool> for Outcome {
    fn from(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

/// Applies the changes in order.
pub(super) fn apply(
    connection: &Connection,
    changes: &[PolicyChange],
    now: i64,
    kept: u64,
) -> rusqlite::Result<Applied> {
    let mut log = Log::open(connection, now)?;
    let mut lists = Lists { connection, lengths: HashMap::new() };
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        results.push(match apply_one(&mut lists, change)? {
            Outcome::Changed => {
                log.add(change)?;
                Ok(())
            }
            Outcome::Unchanged => Ok(()),
            Outcome::ListFull => Err(Error::TooMany(MAX_LISTED as u32)),
        });
    }
    Ok(Applied { results, changed: log.close(kept)? })
}

fn apply_one<'a>(lists: &mut Lists<'a>, change: &'a PolicyChange) -> rusqlite::Result<Outcome> {
    let connection = lists.connection;
    match change {
        PolicyChange::Restrict(user) => restrict(connection, user, Merge::Set),
        PolicyChange::Unrestrict(user) => restrict(connection, user, Merge::Clear),
        PolicyChange::RestrictMany(given) => {
            numbers::merge(connection, given.page(), given.bits(), Merge::Set).map(Outcome::from)
        }
        PolicyChange::UnrestrictMany(given) => {
            numbers::merge(connection, given.page(), given.bits(), Merge::Clear).map(Outcome::from)
        }
        PolicyChange::Block(owner, other) => lists.put(owner, List::Blocks, other),
        PolicyChange::Unblock(owner, other) => lists.take(owner, List::Blocks, other),
        PolicyChange::AddContact(owner, other) => lists.put(owner, List::Contacts, other),
        PolicyChange::RemoveContact(owner, other) => lists.take(owner, List::Contacts, other),
        PolicyChange::SetPrivacy(user, privacy) => set_privacy(connection, user, *privacy),
    }
}

fn restrict(connection: &Connection, user: &UserId, how: Merge) -> rusqlite::Result<Outcome> {
    if let Some(number) = number_of(user.as_str()) {
        let (page, bits) = numbers::single_bit(number);
        return numbers::merge(connection, page, &bits, how).map(Outcome::from);
    }
    let statement = match how {
        Merge::Set => "INSERT OR IGNORE INTO policy_restricted (user_id) VALUES (?1)",
        Merge::Clear => "DELETE FROM policy_restricted WHERE user_id = ?1",
    };
    Ok(Outcome::from(connection.prepare_cached(statement)?.execute([user.as_str()])? > 0))
}

/// The default has no row: most users never change it.
fn set_privacy(connection: &Connection, user: &UserId, privacy: Privacy) -> rusqlite::Result<Outcome> {
    if privacy == Privacy::default() {
        let delete = "DELETE FROM policy_privacy WHERE user_id = ?1";
        return Ok(Outcome::from(connection.prepare_cached(delete)?.execute([user.as_str()])? > 0));
    }
    let upsert = "INSERT INTO policy_privacy (user_id, presence, last_seen) VALUES (?1, ?2, ?3) \
                  ON CONFLICT (user_id) DO UPDATE SET presence = excluded.presence, last_seen = excluded.last_seen \
                  WHERE presence <> excluded.presence OR last_seen <> excluded.last_seen";
    let (presence, last_seen) = (audience_byte(privacy.presence), audience_byte(privacy.last_seen));
    let changed = connection.prepare_cached(upsert)?.execute(params![user.as_str(), presence, last_seen])?;
    Ok(Outcome::from(changed > 0))
}

/// The lists, with a cache of the lengths of those that the batch has changed: counting a list of 10,000 for each change
/// would take longer than the changes.
struct Lists<'a> {
    connection: &'a Connection,
    lengths: HashMap<(&'a str, List), usize>,
}

impl<'a> Lists<'a> {
    fn put(&mut self, owner: &'a UserId, list: List, other: &UserId) -> rusqlite::Result<Outcome> {
        if self.has(owner, list, other)? {
            return Ok(Outcome::Unchanged);
        }
        let length = self.length(owner, list)?;
        if length >= MAX_LISTED {
            return Ok(Outcome::ListFull);
        }
        let insert = "INSERT INTO policy_listed (owner, list, other) VALUES (?1, ?2, ?3)";
        self.connection.prepare_cached(insert)?.execute(params![owner.as_str(), list.number(), other.as_str()])?;
        self.lengths.insert((owner.as_str(), list), length + 1);
        Ok(Outcome::Changed)
    }

    fn take(&mut self, owner: &'a UserId, list: List, other: &UserId) -> rusqlite::Result<Outcome> {
        let delete = "DELETE FROM policy_listed WHERE owner = ?1 AND list = ?2 AND other = ?3";
        let keys = params![owner.as_str(), list.number(), other.as_str()];
        let gone = self.connection.prepare_cached(delete)?.execute(keys)?;
        if let Some(length) = self.lengths.get_mut(&(owner.as_str(), list)) {
            *length = length.saturating_sub(gone);
        }
        Ok(Outcome::from(gone > 0))
    }

    fn has(&self, owner: &UserId, list: List, other: &UserId) -> rusqlite::Result<bool> {
        let select = "SELECT 1 FROM policy_listed WHERE owner = ?1 AND list = ?2 AND other = ?3";
        let keys = params![owner.as_str(), list.number(), other.as_str()];
        Ok(self.connection.prepare_cached(select)?.query_row(keys, |_| Ok(())).optional()?.is_some())
    }

    fn length(&self, owner: &UserId, list: List) -> rusqlite::Result<usize> {
        if let Some(length) = self.lengths.get(&(owner.as_str(), list)) {
            return Ok(*length);
        }
        let count = "SELECT count(*) FROM policy_listed WHERE owner = ?1 AND list = ?2";
        let count: i64 = self
            .connection
            .prepare_cached(count)?
            .query_row(params![owner.as_str(), list.number()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}
