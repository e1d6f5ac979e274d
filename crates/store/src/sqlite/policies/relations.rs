//! Reads relations and a user's own settings.

use rollcall_core::policy::{Audience, Privacy, Relation, number_of};
use rollcall_core::{Ids, UserId};
use rollcall_functions::capabilities::OwnSettings;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::apply::List;
use super::numbers;
use crate::policies::encoding::audience_from_byte;

/// The relation of the viewer to each subject, in the order asked.
pub(super) fn relations(
    connection: &Connection,
    viewer: Option<&UserId>,
    subjects: &Ids<UserId>,
) -> rusqlite::Result<Vec<Relation>> {
    let relation = |subject| {
        let (blocked, contact) = match viewer {
            Some(viewer) => between(connection, viewer.as_str(), subject)?,
            None => (false, false),
        };
        let (restricted, privacy) = (restricted(connection, subject)?, privacy(connection, subject)?);
        Ok(Relation { restricted, blocked, contact, privacy })
    };
    subjects.iter().map(relation).collect()
}

/// A user's own settings.
pub(super) fn settings_of(connection: &Connection, user: &UserId) -> rusqlite::Result<OwnSettings> {
    Ok(OwnSettings {
        privacy: privacy(connection, user.as_str())?,
        contacts: listed(connection, user, List::Contacts)?,
        blocks: listed(connection, user, List::Blocks)?,
    })
}

/// The privacy of a row that has both audiences, from this column on. An unknown audience reads as `nobody`: a row exists
/// only if the user restricted something.
pub(super) fn privacy_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Privacy> {
    let audience = |byte| audience_from_byte(byte).unwrap_or(Audience::Nobody);
    Ok(Privacy { presence: audience(row.get(column)?), last_seen: audience(row.get(column + 1)?) })
}

/// Whether either blocked the other, and whether the subject has the viewer as a contact.
fn between(connection: &Connection, viewer: &str, subject: &str) -> rusqlite::Result<(bool, bool)> {
    let select = "SELECT EXISTS (SELECT 1 FROM policy_listed WHERE owner = ?1 AND list = ?3 AND other = ?2) \
                      OR EXISTS (SELECT 1 FROM policy_listed WHERE owner = ?2 AND list = ?3 AND other = ?1), \
                         EXISTS (SELECT 1 FROM policy_listed WHERE owner = ?2 AND list = ?4 AND other = ?1)";
    let keys = params![viewer, subject, List::Blocks.number(), List::Contacts.number()];
    connection.prepare_cached(select)?.query_row(keys, |row| Ok((row.get(0)?, row.get(1)?)))
}

fn restricted(connection: &Connection, subject: &str) -> rusqlite::Result<bool> {
    if let Some(number) = number_of(subject) {
        return numbers::has(connection, number);
    }
    let select = "SELECT 1 FROM policy_restricted WHERE user_id = ?1";
    Ok(connection.prepare_cached(select)?.query_row([subject], |_| Ok(())).optional()?.is_some())
}

fn privacy(connection: &Connection, subject: &str) -> rusqlite::Result<Privacy> {
    let select = "SELECT presence, last_seen FROM policy_privacy WHERE user_id = ?1";
    let found = connection.prepare_cached(select)?.query_row([subject], |row| privacy_in(row, 0)).optional()?;
    Ok(found.unwrap_or_default())
}

fn listed(connection: &Connection, owner: &UserId, list: List) -> rusqlite::Result<Vec<UserId>> {
    let mut select = connection.prepare_cached("SELECT other FROM policy_listed WHERE owner = ?1 AND list = ?2")?;
    let others: Vec<String> =
        select.query_map(params![owner.as_str(), list.number()], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    // A value that is not a valid id was not written by this program.
    Ok(others.into_iter().filter_map(|other| UserId::parse(other).ok()).collect())
}
