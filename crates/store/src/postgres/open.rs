//! Connects, and checks once, at opening, that the database can hold last seen. Every error says how to fix it.

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

/// How long connecting may take in all: every address of every host, TLS, and authentication. Only the start waits for
/// it: while there is no connection, calls fail at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A second less than a caller waits (see `connection.rs`), so that the server gives up first. Otherwise a statement that
/// waits for a lock would go on waiting after the caller gave up, and each retry would add another.
const SESSION_SETTINGS: &str = "SET statement_timeout = 2000";

const CREATE: &str = "CREATE TABLE IF NOT EXISTS user_presence \
                      (user_id text PRIMARY KEY, last_seen_at timestamptz NOT NULL)";

/// The encoding, whether the table exists, and the types of both columns; null if a column does not exist.
const INSPECT: &str = "SELECT current_setting('server_encoding'), to_regclass('user_presence') IS NOT NULL, \
                    (SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = to_regclass('user_presence') AND attname = 'user_id'), \
                    (SELECT format_type(atttypid, NULL) FROM pg_attribute \
                     WHERE attrelid = to_regclass('user_presence') AND attname = 'last_seen_at')";

/// Why this database cannot be the archive. No message contains the password.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// The URL is invalid.
    #[error("the PostgreSQL URL is invalid: {reason}. Expected postgres://user:password@host/database")]
    BadUrl {
        /// The rule it breaks.
        reason: String,
    },
    /// No server answers there, or it is not PostgreSQL.
    #[error("cannot reach PostgreSQL at {endpoint}: {reason}. Is it running, and is this its host and port?")]
    Unreachable {
        /// Host and port.
        endpoint: String,
        /// The last error.
        reason: String,
    },
    /// Authentication failed.
    #[error("PostgreSQL at {endpoint} refuses the user `{role}`: {reason}. Check user and password in the URL")]
    Refused {
        /// Host and port.
        endpoint: String,
        /// The user of the URL.
        role: String,
        /// What the server says.
        reason: String,
    },
    /// The database does not exist.
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
    /// The database exists, but cannot be the archive.
    #[error("cannot use the database `{database}` of PostgreSQL at {endpoint} as the archive: {reason}")]
    Unusable {
        /// Host and port.
        endpoint: String,
        /// The database of the URL.
        database: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// Why a connection could not be made, or ended.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error of the client library.
    Client(Error),
    /// No answer in time.
    TimedOut,
    /// The server closed it.
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
            Self::TimedOut => f.write_str("the server did not answer in time"),
            Self::Closed => f.write_str("the connection was closed"),
        }
    }
}

/// An error with its causes, which its own text omits. Of a server error only the message and code: the details may
/// contain user ids.
pub(super) fn describe(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// The future that reads and writes the socket. It ends with the connection.
pub(super) type Driver = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A new connection.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) driver: Driver,
}

impl Connected {
    /// Connects and applies the session settings.
    pub(super) async fn to(address: &Address) -> Result<Self, Failure> {
        let connect = async {
            let (client, driver) = address.config.connect(address.tls.clone()).await?;
            let mut driver: Driver = Box::pin(driver);
            driving(&mut driver, client.batch_execute(SESSION_SETTINGS)).await??;
            Ok(Self { client, driver })
        };
        timeout(CONNECT_TIMEOUT, connect).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// Connects for the first time and checks the database: an error here is one of configuration, and says so.
    pub(super) async fn first(address: &Address) -> Result<Self, OpenError> {
        let mut connected = Self::to(address).await.map_err(|failure| explain(address, failure))?;
        let prepared = driving(&mut connected.driver, prepare(&connected.client, address)).await;
        prepared.map_err(|failure| explain(address, failure))??;
        Ok(connected)
    }
}

/// Drives a new connection while it does some work.
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
        // Another server error: too many connections, or it is still starting.
        Some(_) => OpenError::Unreachable { endpoint, reason },
        None if address.config.get_password().is_none() && reason.contains("password") => {
            OpenError::Refused { endpoint, role, reason: "it asks for a password, and the URL has none".to_owned() }
        }
        None => OpenError::Unreachable { endpoint, reason },
    }
}

/// Creates the table if it does not exist, and checks that it can be used.
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
    // The statements themselves, with no rows: they check the privileges and the primary key.
    let (no_users, no_times) = (Vec::<&str>::new(), Vec::<std::time::SystemTime>::new());
    let nothing: [(&(dyn ToSql + Sync), _); 2] = [(&no_users, Type::TEXT_ARRAY), (&no_times, Type::TIMESTAMPTZ_ARRAY)];
    client.execute_typed(PUT, &nothing).await.map_err(failed)?;
    client.query_typed(GET, &[(&no_users, Type::TEXT_ARRAY)]).await.map_err(failed)?;
    Ok(())
}

/// Only called if the table does not exist: `IF NOT EXISTS` requires the privilege to create even if the table exists.
async fn create(client: &Client) -> Result<(), Error> {
    match client.batch_execute(CREATE).await {
        // Two hosts that start together may both see no table; one of them then fails because the other created it.
        Err(error) if matches!(error.code().map(SqlState::code), Some("42P07" | "42710" | "23505")) => Ok(()),
        created => created,
    }
}

/// An id may contain any character. One that the encoding lacks would fail its whole batch, on every retry.
fn check_encoding(encoding: &str) -> Result<(), String> {
    match encoding {
        "UTF8" | "SQL_ASCII" => Ok(()),
        _ => Err(format!("its encoding is {encoding}. Create a database with ENCODING 'UTF8'")),
    }
}

/// Other types would convert values: a `timestamp` by the session's time zone, a `citext` would match another case.
fn check_columns(columns: [Option<String>; 2]) -> Result<(), String> {
    let [user, last_seen] = columns.map(|column| column.unwrap_or_else(|| "missing".to_owned()));
    if !matches!(&*user, "text" | "character varying") {
        return Err(format!("`user_presence.user_id` is {user}; it must be text"));
    }
    if last_seen != "timestamp with time zone" {
        return Err(format!("`user_presence.last_seen_at` is {last_seen}; it must be timestamptz"));
    }
    Ok(())
}

/// The server's message, and how to fix it.
fn advise(error: &Error, role: &str) -> String {
    let message = describe(error);
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON user_presence TO \"{role}\"");
    match error.code().map(SqlState::code) {
        // About the schema: there is no table, and no privilege to create one.
        Some("42501" | "3F000") if !message.contains("user_presence") => {
            let table = CREATE.replace(" IF NOT EXISTS", "");
            format!("{message}. `{role}` may not create the table; run as a role that may: {table}; {grant}")
        }
        Some("42501") => format!("{message}. Run as the owner of the table: {grant}"),
        Some("42P10") => "`user_presence.user_id` is not its primary key".to_owned(),
        Some("25006") => format!("{message}. This server is read-only: connect to the primary"),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_column_types_are_refused_by_name() {
        let columns =
            |user: Option<&str>, seen: Option<&str>| check_columns([user, seen].map(|c| c.map(str::to_owned)));
        let timestamptz = Some("timestamp with time zone");
        assert_eq!(columns(Some("text"), timestamptz), Ok(()));
        assert_eq!(columns(Some("character varying"), timestamptz), Ok(()));
        let refused = columns(Some("uuid"), timestamptz);
        assert_eq!(refused, Err("`user_presence.user_id` is uuid; it must be text".to_owned()));
        let refused = columns(Some("text"), None);
        assert_eq!(refused, Err("`user_presence.last_seen_at` is missing; it must be timestamptz".to_owned()));
    }

    #[test]
    fn encoding_that_lacks_characters_is_refused() {
        assert!(check_encoding("UTF8").is_ok() && check_encoding("LATIN1").is_err());
    }
}
