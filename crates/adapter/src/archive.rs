//! The contract's `archive`, over whatever an adapter brings.

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::{Archive, Sighting};

use crate::bindings::exports::rollcall::presence::archive as wit;
use crate::codec::{all, bounded, error_out, time_out, user_in};
use crate::settings::{Adapter, Exports, platform_of};
use crate::wit::types;

/// The most in one call: the bound of the contract.
const MAX_SIGHTINGS: usize = 10_000;

impl<A: Adapter> wit::Guest for Exports<A> {
    async fn put_many(sightings: Vec<wit::Sighting>) -> Result<(), types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        let sightings = sightings.into_iter().map(|sighting| (sighting.user, sighting.last_seen));
        put_many(&ready.platform, sightings.collect()).await
    }

    async fn get_many(users: Vec<String>) -> Result<Vec<Option<u64>>, types::Error> {
        let ready = platform_of::<A>().map_err(error_out)?;
        get_many(&ready.platform, users).await
    }
}

/// Keeps sightings, of whom and when, in an archive: the contract's `put-many`.
pub async fn put_many(archive: &impl Archive, sightings: Vec<(String, u64)>) -> Result<(), types::Error> {
    let decoded = bounded(sightings.len(), MAX_SIGHTINGS).and_then(|()| {
        all(sightings, |(user, last_seen)| Ok(Sighting { user: UserId::parse(user)?, last_seen: Time(last_seen) }))
    });
    archive.put_many(decoded.map_err(error_out)?).await.map_err(error_out)
}

/// When each was last seen by an archive: the contract's `get-many`.
pub async fn get_many(archive: &impl Archive, users: Vec<String>) -> Result<Vec<Option<u64>>, types::Error> {
    let users = bounded(users.len(), MAX_SIGHTINGS).and_then(|()| all(users, user_in)).map_err(error_out)?;
    Ok(archive.get_many(users).await.map_err(error_out)?.into_iter().map(time_out).collect())
}
