//! Changes from the platform, pulled one call at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use rollcall_core::Error;
use rollcall_functions::capabilities::{PresenceChange, PresenceChanges};

use super::capability_bindings::wit::topics;
use super::sync::take_wait_ms;
use super::wit::types;

/// A stream of changes from the platform.
pub struct PlatformChanges {
    stream: topics::PresenceChangeStream,
    /// Received and not taken yet.
    received: VecDeque<types::PresenceChange>,
    end: Option<types::Error>,
}

impl PlatformChanges {
    /// Watches these users.
    pub(super) async fn watch(users: Vec<String>) -> Result<Self, Error> {
        Ok(Self { stream: topics::watch(&users)?, received: VecDeque::new(), end: None })
    }

    /// Pending if no change came in time.
    fn poll_next(&mut self) -> Poll<Option<PresenceChange>> {
        loop {
            while let Some(change) = self.received.pop_front() {
                // A change with an invalid id is about none of the watched users.
                if let Ok(change) = change.try_into() {
                    return Poll::Ready(Some(change));
                }
            }
            match self.stream.next(take_wait_ms()) {
                Ok(changes) if changes.is_empty() => return Poll::Pending,
                Ok(changes) => self.received.extend(changes),
                Err(error) => {
                    self.end = Some(error);
                    return Poll::Ready(None);
                }
            }
        }
    }
}

impl PresenceChanges for PlatformChanges {
    async fn next(&mut self) -> Option<PresenceChange> {
        poll_fn(|_| self.poll_next()).await
    }

    async fn end(self) -> Result<(), Error> {
        self.end.map_or(Ok(()), |error| Err(error.into()))
    }
}
