//! Changes from the platform, as a stream.

use rollcall_core::Error;
use rollcall_functions::capabilities::{PresenceChange, PresenceChanges};
use wit_bindgen::{FutureReader, StreamReader};

use super::capability_bindings::wit::topics;
use super::wit::types;

/// A stream of changes from the platform.
pub struct PlatformChanges {
    changes: StreamReader<types::PresenceChange>,
    end: FutureReader<Result<(), types::Error>>,
}

impl PlatformChanges {
    /// Watches these users.
    pub(super) async fn watch(users: Vec<String>) -> Result<Self, Error> {
        let (changes, end) = topics::watch(users).await?;
        Ok(Self { changes, end })
    }
}

impl PresenceChanges for PlatformChanges {
    async fn next(&mut self) -> Option<PresenceChange> {
        loop {
            // A change with an invalid id is about none of the watched users.
            if let Ok(change) = self.changes.next().await?.try_into() {
                return Some(change);
            }
        }
    }

    async fn end(self) -> Result<(), Error> {
        Ok(self.end.await?)
    }
}
