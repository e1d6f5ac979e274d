//! The platform's archive, as the functions know it.

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry};

use crate::codec::error_in;
use crate::sessions::texts;
use crate::wit::archive as wit;

/// The archive that the platform provides.
pub struct PlatformArchive;

impl Archive for PlatformArchive {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        let last_seen_entries = last_seen_entries
            .into_iter()
            .map(|last_seen_entry| wit::LastSeenEntry {
                user: last_seen_entry.user.into_string(),
                last_seen: last_seen_entry.last_seen.0,
            })
            .collect();
        wit::put_many(last_seen_entries).await.map_err(error_in)
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let times = wit::get_many(texts(users)).await.map_err(error_in)?;
        Ok(times.into_iter().map(|time| time.map(Time)).collect())
    }
}
