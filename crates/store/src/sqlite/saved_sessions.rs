//! What the embedded store saves for its next run: choices when they are made, everything else at shutdown.

use std::collections::HashMap;

use rollcall_core::{Choice, Session, Time, UserId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::json::{ChoiceBody, SessionBody};
use super::time_of;
use crate::persistence::{SavedSessions, StoredChoice};

/// The name in `meta` under which the time of the save is stored.
const SAVED_AT: &str = "saved_at";

/// Stores one choice, or deletes it.
pub(super) fn store_choice(connection: &Connection, stored: StoredChoice) -> rusqlite::Result<()> {
    match stored.choice {
        Some(choice) => {
            let body = to_json(&ChoiceBody::from(choice))?;
            let insert = "INSERT OR REPLACE INTO choice (user_id, body) VALUES (?1, ?2)";
            connection.prepare_cached(insert)?.execute(params![stored.user.as_str(), body])?;
        }
        None => {
            connection.prepare_cached("DELETE FROM choice WHERE user_id = ?1")?.execute([stored.user.as_str()])?;
        }
    }
    Ok(())
}

/// Replaces what an earlier run saved.
pub(super) fn save(connection: &Connection, at: Time, sessions: Vec<(UserId, Session)>) -> rusqlite::Result<()> {
    forget(connection)?;
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO session (user_id, body) VALUES (?1, ?2)")?;
    for (user, session) in sessions {
        insert.execute(params![user.as_str(), to_json(&SessionBody::from(session))?])?;
    }
    let at = i64::try_from(at.0).unwrap_or(i64::MAX);
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)", params![SAVED_AT, at])?;
    Ok(())
}

/// Deletes what an earlier run saved, but not the choices.
pub(super) fn forget(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM session", [])?;
    connection.execute("DELETE FROM meta WHERE name = ?1", [SAVED_AT])?;
    Ok(())
}

/// What an earlier run saved. Choices that no longer have an effect are deleted on the way. A row that cannot be read is
/// skipped: it loses one user's session, and must not lose the others.
pub(super) fn load(connection: &Connection, now: Time) -> rusqlite::Result<SavedSessions> {
    let at = "SELECT value FROM meta WHERE name = ?1";
    let at = connection.query_row(at, [SAVED_AT], |row| row.get(0)).optional()?.map(time_of);
    let mut sessions: HashMap<UserId, Session> = HashMap::new();
    for (user, body) in rows(connection, "SELECT user_id, body FROM session")? {
        let session = from_json::<SessionBody>(&body).and_then(|body| body.try_into().ok());
        if let (Ok(user), Some(session)) = (UserId::parse(user), session) {
            sessions.insert(user, session);
        }
    }
    for (user, body) in rows(connection, "SELECT user_id, body FROM choice")? {
        let choice = from_json::<ChoiceBody>(&body).map(Choice::from).filter(|choice| choice.matters_at(now));
        match (UserId::parse(user.as_str()), choice) {
            (Ok(user), Some(choice)) => restore_choice(sessions.entry(user).or_default(), choice),
            _ => {
                connection.execute("DELETE FROM choice WHERE user_id = ?1", [user])?;
            }
        }
    }
    Ok(SavedSessions { at, sessions: sessions.into_iter().collect() })
}

/// The newer choice wins: one may have been made after the save, by a run that was killed before it deleted the save.
fn restore_choice(session: &mut Session, choice: Choice) {
    if session.choice.as_ref().is_none_or(|saved| saved.at <= choice.at) {
        session.choice = Some(choice);
    }
}

fn rows(connection: &Connection, select: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let pair = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    connection.prepare(select)?.query_map([], pair)?.collect()
}

fn to_json(body: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(body).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn from_json<T: serde::de::DeserializeOwned>(body: &str) -> Option<T> {
    serde_json::from_str(body).inspect_err(|error| tracing::warn!(%error, "Saved row is unreadable; skipping it")).ok()
}
