//! The platform's archive, as the functions know it.

use rollcall_core::{Error, Time, UserId};
use rollcall_functions::capabilities::{Archive, Sighting};

use crate::codec::error_in;
use crate::sessions::texts;
use crate::wit::archive as wit;

/// The archive that the platform provides.
pub struct PlatformArchive;

impl Archive for PlatformArchive {
    async fn put_many(&self, sightings: Vec<Sighting>) -> Result<(), Error> {
        let sightings = sightings
            .into_iter()
            .map(|sighting| wit::Sighting { user: sighting.user.into_string(), last_seen: sighting.last_seen.0 })
            .collect();
        wit::put_many(sightings).await.map_err(error_in)
    }

    async fn get_many(&self, users: Vec<UserId>) -> Result<Vec<Option<Time>>, Error> {
        let times = wit::get_many(texts(users)).await.map_err(error_in)?;
        Ok(times.into_iter().map(|time| time.map(Time)).collect())
    }
}
