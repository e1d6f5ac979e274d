//! Last seen in the component's database `default`, in the same table as the native archive.
//!
//! All calls of an instance share one connection: with one each they would wait for each other's locks. On a shared
//! connection no transaction may span statements, so each call is one statement of any size, with its items in one JSON
//! parameter. That makes it atomic, and not limited by SQLite's number of parameters.

use std::rc::Rc;

use rollcall_contract::guest::adapter::{RETRY_MS, SharedConnection};
use rollcall_core::{Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry};
use serde_json::json;

use crate::spin::{self, Connection, Error as SqliteError, RowResult, Value};

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS user_presence \
                            (user_id TEXT PRIMARY KEY, last_seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// An older last seen changes nothing. `WHERE true` keeps SQLite from parsing `ON CONFLICT` as a join condition.
const PUT: &str = "INSERT INTO user_presence (user_id, last_seen_at) \
                   SELECT value ->> 0, value ->> 1 FROM json_each(?1) WHERE true \
                   ON CONFLICT (user_id) DO UPDATE SET last_seen_at = excluded.last_seen_at \
                   WHERE excluded.last_seen_at > last_seen_at";

/// The index in the request and last seen of each user who has one.
const GET: &str = "SELECT asked.key, last_seen_at FROM json_each(?1) AS asked \
                   JOIN user_presence ON user_id = asked.value";

thread_local! {
    /// The shared connection; the table exists.
    static CONNECTION: Rc<SharedConnection<Connection, Error>> = Rc::default();
}

/// The database of the component.
pub(crate) struct Database;

impl Archive for Database {
    async fn put_many(&self, entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let pairs = entries.iter().map(|entry| json!([entry.user.as_str(), signed(entry.last_seen)]));
        run(PUT, pairs.collect()).await?;
        Ok(())
    }

    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let mut times = vec![None; users.len()];
        if users.is_empty() {
            return Ok(times);
        }
        for row in run(GET, users.iter().map(|user| json!(user)).collect()).await? {
            let (index, time) =
                found(&row).ok_or_else(|| Error::Other("the archive returned a row without a time".to_owned()))?;
            if let Some(answer) = times.get_mut(index) {
                *answer = Some(time);
            }
        }
        Ok(times)
    }
}

/// Runs a statement with these items as its parameter. Returns all rows.
async fn run(statement: &str, items: Vec<serde_json::Value>) -> Result<Vec<RowResult>, Error> {
    let shared = CONNECTION.with(Rc::clone);
    let connection = shared.get(open()).await?;
    let parameter = Value::Text(serde_json::Value::Array(items).to_string());
    spin::rows(&connection, statement, Some(parameter)).await.map_err(|error| {
        shared.discard(&connection);
        archive_error(error)
    })
}

/// Opens the database and creates the table if it is missing.
async fn open() -> Result<Connection, Error> {
    let connection = spin::open().await.map_err(archive_error)?;
    spin::rows(&connection, CREATE_TABLE, None).await.map_err(archive_error)?;
    Ok(connection)
}

/// SQLite's integers are signed; a later time becomes the greatest.
fn signed(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn found(row: &RowResult) -> Option<(usize, Time)> {
    let [Value::Integer(index), Value::Integer(time)] = row.values.as_slice() else { return None };
    Some((usize::try_from(*index).ok()?, Time(u64::try_from(*time).ok()?)))
}

/// The error for the caller. An outage is logged with its reason.
fn archive_error(error: SqliteError) -> Error {
    match error {
        SqliteError::NoSuchDatabase | SqliteError::AccessDenied => Error::Other(
            "the component may not use the database `default`: add it to its `sqlite_databases`".to_owned(),
        ),
        SqliteError::InvalidConnection | SqliteError::DatabaseFull | SqliteError::Io(_) => {
            eprintln!("archive unavailable; the caller retries: {error:?}");
            Error::Unavailable(RETRY_MS)
        }
    }
}
