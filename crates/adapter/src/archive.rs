//! The contract's `archive`, over whatever an adapter brings.

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::{Archive, LastSeenEntry};

use crate::bindings::exports::rollcall::presence::archive as wit;
use crate::codec::{all, bounded, error_out, time_out, user_in};
use crate::settings::{Adapter, Exports, platform_of};
use crate::wit::types;

/// The most in one call: the bound of the contract.
const MAX_LAST_SEEN_ENTRIES: usize = 10_000;

impl<A: Adapter> wit::Guest for Exports<A> {
    async fn put_many(last_seen_entries: Vec<wit::LastSeenEntry>) -> Result<(), types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let last_seen_entries =
            last_seen_entries.into_iter().map(|last_seen_entry| (last_seen_entry.user, last_seen_entry.last_seen));
        put_many(&ready.platform, last_seen_entries.collect()).await
    }

    async fn get_many(users: Vec<String>) -> Result<Vec<Option<u64>>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        get_many(&ready.platform, users).await
    }
}

/// Keeps last seen entries, of whom and when, in an archive: the contract's `put-many`.
pub async fn put_many(archive: &impl Archive, last_seen_entries: Vec<(String, u64)>) -> Result<(), types::Error> {
    let decoded = bounded(last_seen_entries.len(), MAX_LAST_SEEN_ENTRIES).and_then(|()| {
        all(last_seen_entries, |(user, last_seen)| {
            Ok(LastSeenEntry { user: UserId::parse(user)?, last_seen: Time(last_seen) })
        })
    });
    archive.put_many(decoded.map_err(error_out)?).await.map_err(error_out)
}

/// When each was last seen by an archive: the contract's `get-many`.
pub async fn get_many(archive: &impl Archive, users: Vec<String>) -> Result<Vec<Option<u64>>, types::Error> {
    let users = bounded(users.len(), MAX_LAST_SEEN_ENTRIES).and_then(|()| all(users, user_in)).map_err(error_out)?;
    Ok(archive.get_many(users).await.map_err(error_out)?.into_iter().map(time_out).collect())
}
