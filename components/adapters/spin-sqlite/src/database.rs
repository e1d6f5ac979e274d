//! Last seen in the component's database `default`: a table as the native archive has it.
//!
//! All calls of an instance share one connection: each of its own would wait for the locks of all others. So nothing that
//! is begun in one statement may be left to another to end, and each call is one statement, whatever its size: what it is
//! about goes in as one text of JSON. So it is all or nothing, and bounded by no number of variables.

use std::rc::Rc;

use rollcall_contract::guest::adapter::{RETRY_MS, SharedConnection};
use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry};
use serde_json::json;
use spin_sdk::sqlite::{self, Connection, RowResult, Value};

const MAKE: &str = "CREATE TABLE IF NOT EXISTS user_presence \
                    (user_id TEXT PRIMARY KEY, last_seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// An older last seen entry changes nothing. The condition that is always true tells SQLite that `ON CONFLICT` is no join's.
const PUT: &str = "INSERT INTO user_presence (user_id, last_seen_at) \
                   SELECT value ->> 0, value ->> 1 FROM json_each(?1) WHERE true \
                   ON CONFLICT (user_id) DO UPDATE SET last_seen_at = excluded.last_seen_at \
                   WHERE excluded.last_seen_at > last_seen_at";

/// The place of whoever was ever seen, and when.
const GET: &str = "SELECT asked.key, last_seen_at FROM json_each(?1) AS asked \
                   JOIN user_presence ON user_id = asked.value";

thread_local! {
    /// With the table in it.
    static CONNECTION: Rc<SharedConnection<Connection, Error>> = Rc::default();
}

/// The database of the component.
pub(crate) struct Database;

impl Archive for Database {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        if last_seen_entries.is_empty() {
            return Ok(());
        }
        let pairs = last_seen_entries
            .iter()
            .map(|last_seen_entry| json!([last_seen_entry.user.as_str(), signed(last_seen_entry.last_seen)]));
        run(PUT, pairs.collect()).await?;
        Ok(())
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let mut times = vec![None; users.len()];
        if users.is_empty() {
            return Ok(times);
        }
        for row in run(GET, users.iter().map(|user| json!(user.as_str())).collect()).await? {
            let (place, time) = found(&row).ok_or_else(|| Error::Other("the archive holds no times".to_owned()))?;
            if let Some(answer) = times.get_mut(place) {
                *answer = Some(time);
            }
        }
        Ok(times)
    }
}

/// Runs a statement on these, and takes all rows.
async fn run(statement: &str, about: Vec<serde_json::Value>) -> Result<Vec<RowResult>, Error> {
    let kept = CONNECTION.with(Rc::clone);
    let connection = kept.get(open()).await?;
    let about = Value::Text(serde_json::Value::Array(about).to_string());
    rows(&connection, statement, Some(about)).await.map_err(|error| {
        kept.discard(&connection);
        refused(error)
    })
}

/// Opens the database, and makes the table if it is missing.
async fn open() -> Result<Connection, Error> {
    let connection = Connection::open_default().await.map_err(refused)?;
    rows(&connection, MAKE, None).await.map_err(refused)?;
    Ok(connection)
}

async fn rows(connection: &Connection, statement: &str, about: Option<Value>) -> Result<Vec<RowResult>, sqlite::Error> {
    connection.execute(statement, about).await?.collect().await
}

/// SQLite's integers have a sign; a time beyond them is as good as the last.
fn signed(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn found(row: &RowResult) -> Option<(usize, Time)> {
    let [Value::Integer(place), Value::Integer(time)] = row.values.as_slice() else { return None };
    Some((usize::try_from(*place).ok()?, Time(u64::try_from(*time).ok()?)))
}

/// What a failure means for the caller; whoever operates this is told why.
fn refused(error: sqlite::Error) -> Error {
    match error {
        sqlite::Error::NoSuchDatabase | sqlite::Error::AccessDenied => {
            Error::Other("the component may not use the database `default`: see its `sqlite_databases`".to_owned())
        }
        sqlite::Error::InvalidConnection | sqlite::Error::DatabaseFull | sqlite::Error::Io(_) => {
            eprintln!("rollcall: the archive is away: {error:?}");
            Error::Unavailable(RETRY_MS)
        }
    }
}
