//! Connecting, and making sure once, at opening, that last seen can be kept there: a fault is named by what mends it.

use std::error::Error as _;
use std::pin::Pin;
use std::time::Duration;

use thiserror::Error as ThisError;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::address::Address;
use super::{GET, PUT};

/// How long connecting may take in all: every address of every host, TLS, and proving who we are. Nobody waits for it
/// but the start: while there is no connection, calls are answered at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A second less than a caller waits (see `connection.rs`), so that the server gives up before we do: a statement that waits
/// for somebody's lock would go on waiting after we had left, and each repetition would leave one more of them there.
const SESSION_SETTINGS: &str = "SET statement_timeout = 2000";

const CREATE: &str = "CREATE TABLE IF NOT EXISTS user_presence \
                      (user_id text PRIMARY KEY, last_seen_at timestamptz NOT NULL)";

/// The encoding, and the types of both columns; no type where there is no such column or no such table.
const INSPECT: &str = "SELECT current_setting('server_encoding'), to_regclass('user_presence') IS NOT NULL, \
                    (SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = to_regclass('user_presence') AND attname = 'user_id'), \
                    (SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = to_regclass('user_presence') AND attname = 'last_seen_at')";

/// Why last seen cannot be kept in this database. None of these texts has the password in it.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// The URL cannot be understood.
    #[error("the URL of PostgreSQL cannot be used: {reason}. One looks like postgres://user:password@host/database")]
    BadUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers there, or not as PostgreSQL does.
    #[error("cannot reach PostgreSQL at {endpoint}: {reason}. Is it running, and is this its host and port?")]
    Unreachable {
        /// Host and port.
        endpoint: String,
        /// What was tried last.
        reason: String,
    },
    /// It does not let us in.
    #[error("PostgreSQL at {endpoint} refuses the user `{role}`: {reason}. Check user and password in the URL")]
    Refused {
        /// Host and port.
        endpoint: String,
        /// The user of the URL.
        role: String,
        /// What the server says.
        reason: String,
    },
    /// There is no such database.
    #[error(
        "PostgreSQL at {endpoint} has no database `{database}`. Create it: \
         CREATE DATABASE \"{database}\" OWNER \"{role}\" ENCODING 'UTF8'"
    )]
    NoDatabase {
        /// Host and port.
        endpoint: String,
        /// The database of the URL.
        database: String,
        /// The user of the URL.
        role: String,
    },
    /// The database is there, but not fit.
    #[error("cannot keep last seen in the database `{database}` of PostgreSQL at {endpoint}: {reason}")]
    Unusable {
        /// Host and port.
        endpoint: String,
        /// The database of the URL.
        database: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// Why there is no connection, or no longer one.
#[derive(Debug)]
pub(super) enum Failure {
    /// What the client library says.
    Client(Error),
    /// Nothing was said for too long.
    TimedOut,
    /// The other side closed it.
    Closed,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(error) => f.write_str(&describe(error)),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::Closed => f.write_str("the connection was closed"),
        }
    }
}

/// An error with its causes, which its own text leaves out. Of the server's errors the message alone: the details may
/// name people.
pub(super) fn describe(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} ({})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// The side of a connection that reads and writes the socket. It ends with the connection.
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A fresh connection.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) driver: Driver,
}

impl Connected {
    /// Connects and says how this session is to be.
    pub(super) async fn to(address: &Address) -> Result<Self, Failure> {
        let connect = async {
            let (client, driver) = address.config.connect(address.tls.clone()).await?;
            let mut driver: Driver = Box::pin(driver);
            driving(&mut driver, client.batch_execute(SESSION_SETTINGS)).await??;
            Ok(Self { client, driver })
        };
        timeout(CONNECT_TIMEOUT, connect).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// Connects for the first time: what is wrong here is wrong with the configuration, and is said so.
    pub(super) async fn first(address: &Address) -> Result<Self, OpenError> {
        let mut connected = Self::to(address).await.map_err(|failure| explain(address, failure))?;
        let prepared = driving(&mut connected.driver, prepare(&connected.client, address)).await;
        prepared.map_err(|failure| explain(address, failure))??;
        Ok(connected)
    }
}

/// Does some work on a connection that nobody drives yet.
async fn driving<T>(driver: &mut Driver, work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        done = work => Ok(done),
        ended = driver => Err(ended.err().map_or(Failure::Closed, Failure::Client)),
    }
}

fn explain(address: &Address, failure: Failure) -> OpenError {
    let (endpoint, role, database) = (address.endpoint.clone(), address.role.clone(), address.database.clone());
    let reason = failure.to_string();
    let Failure::Client(error) = failure else { return OpenError::Unreachable { endpoint, reason } };
    match error.code() {
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => OpenError::NoDatabase { endpoint, database, role },
        Some(code) if code.code().starts_with("28") => OpenError::Refused { endpoint, role, reason },
        // The server answers with some error of its own: too many connections, or that it is just starting.
        Some(_) => OpenError::Unreachable { endpoint, reason },
        None if address.config.get_password().is_none() && reason.contains("password") => {
            OpenError::Refused { endpoint, role, reason: "it asks for a password, and the URL has none".to_owned() }
        }
        None => OpenError::Unreachable { endpoint, reason },
    }
}

/// Makes the table if it is not there, and sees to it that it can be used.
async fn prepare(client: &Client, address: &Address) -> Result<(), OpenError> {
    let unusable = |reason: String| {
        let (endpoint, database) = (address.endpoint.clone(), address.database.clone());
        OpenError::Unusable { endpoint, database, reason }
    };
    let failed = |error: Error| unusable(advise(&error, &address.role));
    let row = client.query_typed_one(INSPECT, &[]).await.map_err(failed)?;
    let encoding: String = row.try_get(0).map_err(failed)?;
    check_encoding(&encoding).map_err(unusable)?;
    if row.try_get(1).map_err(failed)? {
        let columns = [row.try_get(2).map_err(failed)?, row.try_get(3).map_err(failed)?];
        check_columns(columns).map_err(unusable)?;
    } else {
        create(client).await.map_err(failed)?;
    }
    // The work itself, with nothing to do: it shows whether we may do it, and whether the table has its key.
    let (nobody, never) = (Vec::<&str>::new(), Vec::<std::time::SystemTime>::new());
    let nothing: [(&(dyn ToSql + Sync), _); 2] = [(&nobody, Type::TEXT_ARRAY), (&never, Type::TIMESTAMPTZ_ARRAY)];
    client.execute_typed(PUT, &nothing).await.map_err(failed)?;
    client.query_typed(GET, &[(&nobody, Type::TEXT_ARRAY)]).await.map_err(failed)?;
    Ok(())
}

/// Where the table exists, even `IF NOT EXISTS` asks for the right to create one: hence only after a look.
async fn create(client: &Client) -> Result<(), Error> {
    match client.batch_execute(CREATE).await {
        // Two nodes that start together may both see no table, and then one of them fails on what the other made.
        Err(error) if matches!(error.code().map(SqlState::code), Some("42P07" | "42710" | "23505")) => Ok(()),
        created => created,
    }
}

/// An id may have any character. One that the database cannot write down would fail its whole batch, for ever.
fn check_encoding(encoding: &str) -> Result<(), String> {
    match encoding {
        "UTF8" | "SQL_ASCII" => Ok(()),
        _ => Err(format!("its encoding is {encoding}. Create a database with ENCODING 'UTF8'")),
    }
}

/// Anything else would be converted on the way and come back as something else: a `timestamp` by the session's time
/// zone, a `citext` in another case.
fn check_columns(columns: [Option<String>; 2]) -> Result<(), String> {
    let [user, last_seen] = columns.map(|column| column.unwrap_or_else(|| "missing".to_owned()));
    if !matches!(&*user, "text" | "character varying") {
        return Err(format!("`user_presence.user_id` is {user}, and must be text"));
    }
    if last_seen != "timestamp with time zone" {
        return Err(format!("`user_presence.last_seen_at` is {last_seen}, and must be timestamptz"));
    }
    Ok(())
}

/// What the server says, and what to do about it.
fn advise(error: &Error, role: &str) -> String {
    let said = describe(error);
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON user_presence TO \"{role}\"");
    match error.code().map(SqlState::code) {
        // About a schema: there is no table, and no right to make one.
        Some("42501" | "3F000") if !said.contains("user_presence") => {
            let table = CREATE.replace(" IF NOT EXISTS", "");
            format!("{said}. `{role}` may not create the table; who may can do so: {table}; {grant}")
        }
        Some("42501") => format!("{said}. Who owns the table can allow it: {grant}"),
        Some("42P10") => "`user_presence.user_id` is not its primary key".to_owned(),
        Some("25006") => format!("{said}. This server only reads: name the one that writes"),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_another_shape_is_refused_by_column() {
        let columns =
            |user: Option<&str>, seen: Option<&str>| check_columns([user, seen].map(|c| c.map(str::to_owned)));
        let timestamptz = Some("timestamp with time zone");
        assert_eq!(columns(Some("text"), timestamptz), Ok(()));
        assert_eq!(columns(Some("character varying"), timestamptz), Ok(()));
        let refused = columns(Some("uuid"), timestamptz);
        assert_eq!(refused, Err("`user_presence.user_id` is uuid, and must be text".to_owned()));
        let refused = columns(Some("text"), None);
        assert_eq!(refused, Err("`user_presence.last_seen_at` is missing, and must be timestamptz".to_owned()));
    }

    #[test]
    fn an_encoding_that_cannot_hold_every_id_is_refused() {
        assert!(check_encoding("UTF8").is_ok() && check_encoding("LATIN1").is_err());
    }
}
