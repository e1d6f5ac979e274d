//! Last seen in PostgreSQL: one archive for all hosts, in a table that other programs may read.
//!
//! The table is `user_presence (user_id text PRIMARY KEY, last_seen_at timestamptz NOT NULL)`; it is created if it does
//! not exist. Opening fails on any error, and says how to fix it. Later errors are not fatal: while the server is down
//! every call fails at once with the time to retry, and the connections reconnect.
//!
//! Statements are not prepared, because a pooler in between may route each to another session. Deliberately absent:
//! client certificates, and a pool. One connection writes and one reads; both are far from their limits.

mod address;
mod connection;
mod open;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rollcall_core::{Ids, Time, UserId};
use rollcall_functions::capabilities::{LastSeenEntry, MAX_LAST_SEEN_ENTRIES, bounded};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::{ArchiveStore, StoreFuture};

use address::Address;
use connection::Connections;
pub use open::OpenError;

/// The last millisecond that `timestamptz` can hold: the end of the year 294276.
const LATEST_MS: u64 = 9_224_318_015_999_999;

/// An older entry changes nothing. One statement, so that all entries are written or none. Rows are locked in the order of
/// the arrays: every host sorts them by id, so that no two hosts deadlock.
const PUT: &str = "INSERT INTO user_presence (user_id, last_seen_at) \
                   SELECT * FROM unnest($1::text[], $2::timestamptz[]) ON CONFLICT (user_id) \
                   DO UPDATE SET last_seen_at = EXCLUDED.last_seen_at \
                   WHERE user_presence.last_seen_at < EXCLUDED.last_seen_at";

/// One row per requested user, in the order of the request.
const GET: &str = "SELECT known.last_seen_at FROM unnest($1::text[]) WITH ORDINALITY AS asked (user_id, place) \
                   LEFT JOIN user_presence AS known ON known.user_id = asked.user_id ORDER BY asked.place";

/// The archive in a PostgreSQL database. Dropping it closes its connections.
pub struct PostgresArchive {
    connections: Connections,
    endpoint: String,
}

/// Checks the URL of a PostgreSQL database without connecting.
pub fn check_url(url: &str) -> Result<(), OpenError> {
    Address::parse(url).map(drop)
}

impl PostgresArchive {
    /// Connects to `postgres://user:password@host/database`, and creates the table if it does not exist. `sslmode` is
    /// `disable`, `prefer` (the default), `require` or `verify-full`; `sslrootcert` names a file of authorities.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let endpoint = address.endpoint.clone();
        Ok(Self { connections: Connections::open(address).await?, endpoint })
    }
}

impl fmt::Debug for PostgresArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresArchive").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ArchiveStore for PostgresArchive {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            bounded(last_seen_entries.len(), MAX_LAST_SEEN_ENTRIES)?;
            let (users, times): (Vec<UserId>, Vec<SystemTime>) = latest(last_seen_entries).into_iter().unzip();
            if users.is_empty() {
                return Ok(());
            }
            let put = self.connections.writer.ask(|handle| async move {
                let users: Vec<&str> = users.iter().map(UserId::as_str).collect();
                let values = [(&users as _, Type::TEXT_ARRAY), (&times as _, Type::TIMESTAMPTZ_ARRAY)];
                handle.client.execute_typed(PUT, &values).await
            });
            put.await.map(drop)
        })
    }

    fn get_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Vec<Option<Time>>> {
        Box::pin(async move {
            bounded(users.len(), MAX_LAST_SEEN_ENTRIES)?;
            if users.is_empty() {
                return Ok(Vec::new());
            }
            let get = self.connections.reader.ask(|handle| async move {
                let users: Vec<&str> = users.iter().collect();
                let rows = handle.client.query_typed(GET, &[(&users, Type::TEXT_ARRAY)]).await?;
                rows.iter().map(time_in).collect()
            });
            get.await
        })
    }
}

/// The latest entry of each user, sorted by id: an upsert may affect a row only once.
fn latest(last_seen_entries: Vec<LastSeenEntry>) -> BTreeMap<UserId, SystemTime> {
    let mut latest = BTreeMap::new();
    for LastSeenEntry { user, last_seen } in last_seen_entries {
        let instant = instant_of(last_seen);
        latest.entry(user).and_modify(|known: &mut SystemTime| *known = instant.max(*known)).or_insert(instant);
    }
    latest
}

fn time_in(row: &Row) -> Result<Option<Time>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<SystemTime>>(0)?.map(time_of))
}

fn instant_of(time: Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(time.0.min(LATEST_MS))
}

/// A time before 1970 was not written by this program; it reads as zero.
fn time_of(instant: SystemTime) -> Time {
    let ms = instant.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Time(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_entry_per_user_stays_sorted() -> Result<(), Box<dyn std::error::Error>> {
        let mut last_seen_entries = Vec::new();
        for (user, at) in [("bob", 3), ("ann", 1), ("bob", 9), ("bob", 5)] {
            last_seen_entries.push(LastSeenEntry { user: UserId::parse(user)?, last_seen: Time(at) });
        }
        let latest: Vec<_> =
            latest(last_seen_entries).into_iter().map(|(user, at)| (user.into_string(), time_of(at).0)).collect();
        assert_eq!(latest, [("ann".to_owned(), 1), ("bob".to_owned(), 9)]);
        Ok(())
    }

    #[test]
    fn times_round_trip_up_to_the_latest_timestamp() {
        for ms in [0, 1, 999, 1_700_000_000_123, LATEST_MS] {
            assert_eq!(time_of(instant_of(Time(ms))), Time(ms));
        }
        assert_eq!(time_of(instant_of(Time(u64::MAX))), Time(LATEST_MS));
        assert_eq!(time_of(UNIX_EPOCH - Duration::from_secs(1)), Time(0));
    }
}
