//! Watching by polling, where the platform has no subscriptions.
//!
//! Published records stay readable, so a poll finds the newest record of every user; a record newer than at the last
//! poll is a change. The cost is one read of every watched user, twice a second.

use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;

use rollcall_core::{Error, Published, UserId};
use rollcall_functions::capabilities::PresenceChange;

use super::RedisStore;
use crate::resp::Mailbox;
use crate::transport::{Connection, ProbingTransport};

/// The time between two polls. A change is seen 250 ms late on average, well within the promised second.
const POLL_MS: u64 = 500;

/// Users being polled.
pub struct Polling<W> {
    platform: Rc<RedisStore<ProbingTransport<W>>>,
    users: Vec<UserId>,
    known: Known,
    arrived: Mailbox,
    polled_at_us: u64,
}

impl<W: Connection + 'static> Polling<W> {
    /// Polls once, so that anything published from now on is recognised as new.
    pub async fn begin(platform: Rc<RedisStore<ProbingTransport<W>>>, users: Vec<UserId>) -> Result<Self, Error> {
        let polled_at_us = platform.connection().ticks_us();
        let mut known = Known::default();
        for (user, found) in users.iter().zip(platform.read_published(&users).await?) {
            known.note(user, readable(found)?.as_ref());
        }
        Ok(Self { platform, users, known, arrived: Mailbox::default(), polled_at_us })
    }

    /// Waits for the next poll, and polls.
    async fn poll(&mut self) -> Result<(), Error> {
        let connection = self.platform.connection();
        let since_ms = connection.ticks_us().saturating_sub(self.polled_at_us) / 1000;
        if let Some(rest) = POLL_MS.checked_sub(since_ms).filter(|rest| *rest > 0) {
            connection.sleep(rest).await;
        }
        self.polled_at_us = connection.ticks_us();
        let found = self.platform.read_published(&self.users).await?;
        for (user, found) in self.users.iter().zip(found) {
            if let Some(published) = readable(found)?
                && self.known.note(user, Some(&published))
            {
                self.arrived.put(PresenceChange { user: user.clone(), published });
            }
        }
        Ok(())
    }

    fn is_fresh(&self) -> bool {
        let since_us = self.platform.connection().ticks_us().saturating_sub(self.polled_at_us);
        since_us < POLL_MS * 1000
    }
}

impl<W: Connection + 'static> Polling<W> {
    /// The number of polls in two minutes.
    pub const MAX_QUIET_POLLS: u32 = (120_000 / POLL_MS) as u32;

    /// The next change; `None` if this poll found none. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
        // A change that waited for a slow reader may have been replaced meanwhile.
        if self.is_fresh()
            && let Some(change) = self.arrived.take()
        {
            return Ok(Some(change));
        }
        self.poll().await?;
        Ok(self.arrived.take())
    }

    /// Never resolves: nothing is lost, because the next poll finds every change.
    pub async fn lost(&mut self) -> Error {
        pending().await
    }
}

/// The record that was read. One that cannot be parsed counts as missing, so that it does not stop the others.
fn readable(found: Result<Option<Published>, Error>) -> Result<Option<Published>, Error> {
    match found {
        Ok(found) => Ok(found),
        Err(Error::Unavailable(retry_ms)) => Err(Error::Unavailable(retry_ms)),
        Err(Error::Invalid(_) | Error::TooMany(_) | Error::Denied | Error::Other(_)) => Ok(None),
    }
}

/// The newest version seen of each user.
#[derive(Debug, Default)]
struct Known(BTreeMap<UserId, u64>);

impl Known {
    /// Stores the version of a record; true if it is newer than all before. An evicted session is not a change.
    fn note(&mut self, user: &UserId, found: Option<&Published>) -> bool {
        let Some(found) = found else { return false };
        match self.0.get_mut(user) {
            Some(known) if *known >= found.version => false,
            Some(known) => {
                *known = found.version;
                true
            }
            None => {
                self.0.insert(user.clone(), found.version);
                true
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use rollcall_core::State;

    use super::*;

    #[test]
    fn only_a_newer_record_is_a_change() {
        let mut known = Known::default();
        let bob = UserId::parse("bob").unwrap();
        let at = |version| Some(Published { state: State::Online, note: None, since: None, last_seen: None, version });
        let update: Vec<bool> =
            [None, at(3), at(3), None, at(2), at(4)].iter().map(|found| known.note(&bob, found.as_ref())).collect();
        assert_eq!(update, [false, true, false, false, false, true]);
    }

    #[test]
    fn unreadable_record_is_skipped_and_outage_is_not() {
        assert_eq!(readable(Err(Error::Other("garbled".to_owned()))), Ok(None));
        assert_eq!(readable(Err(Error::Unavailable(5))), Err(Error::Unavailable(5)));
    }
}
