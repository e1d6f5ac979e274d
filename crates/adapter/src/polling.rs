//! Watching by looking again and again, where a platform cannot be listened to.
//!
//! The contract holds all the same, because what is published stays readable: a look finds the newest of everybody, and
//! what it finds newer than the look before is a change. What it costs is a read of everybody watched, twice a second.

use std::collections::BTreeMap;
use std::future::pending;
use std::rc::Rc;

use rollcall_core::{Error, Published, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_redis::resp::Inbox;
use rollcall_redis::{Connection, Probing, RedisStore};

use crate::settings::Ready;
use crate::watch::Watch;

/// Between two looks: a change is seen half of this late on average, and well within the second that is promised.
const LOOK_MS: u64 = 500;

/// People being looked at.
pub struct Looking<W> {
    ready: Rc<Ready<RedisStore<Probing<W>>>>,
    users: Vec<UserId>,
    known: Known,
    arrived: Inbox,
    looked_at_us: u64,
}

impl<W: Connection + 'static> Looking<W> {
    /// Looks once, so that whatever is published from now on is known to be new.
    pub async fn begin(ready: Rc<Ready<RedisStore<Probing<W>>>>, users: Vec<UserId>) -> Result<Self, Error> {
        let looked_at_us = ready.platform.connection().ticks_us();
        let mut known = Known::default();
        for (user, found) in users.iter().zip(ready.platform.read_published(&users).await?) {
            known.note(user, readable(found)?.as_ref());
        }
        Ok(Self { ready, users, known, arrived: Inbox::default(), looked_at_us })
    }

    /// Waits until it is time, and looks.
    async fn look(&mut self) -> Result<(), Error> {
        let wire = self.ready.platform.connection();
        let since_ms = wire.ticks_us().saturating_sub(self.looked_at_us) / 1000;
        if let Some(rest) = LOOK_MS.checked_sub(since_ms).filter(|rest| *rest > 0) {
            wire.sleep(rest).await;
        }
        self.looked_at_us = wire.ticks_us();
        let found = self.ready.platform.read_published(&self.users).await?;
        for (user, found) in self.users.iter().zip(found) {
            if let Some(published) = readable(found)?
                && self.known.note(user, Some(&published))
            {
                self.arrived.put(Change { user: user.clone(), published });
            }
        }
        Ok(())
    }

    fn is_fresh(&self) -> bool {
        let since_us = self.ready.platform.connection().ticks_us().saturating_sub(self.looked_at_us);
        since_us < LOOK_MS * 1000
    }
}

impl<W: Connection + 'static> Watch for Looking<W> {
    const TWO_MINUTES: u32 = (120_000 / LOOK_MS) as u32;

    async fn next(&mut self) -> Result<Option<Change>, Error> {
        // What waited for a slow reader may have been replaced meanwhile.
        if self.is_fresh()
            && let Some(change) = self.arrived.take()
        {
            return Ok(Some(change));
        }
        self.look().await?;
        Ok(self.arrived.take())
    }

    /// Nothing is: the next look finds whatever changed.
    async fn lost(&mut self) -> Error {
        pending().await
    }
}

/// A record as it was read; none also for one that makes no sense, which is not to keep the others from being told.
fn readable(found: Result<Option<Published>, Error>) -> Result<Option<Published>, Error> {
    match found {
        Ok(found) => Ok(found),
        Err(Error::Unavailable(retry_ms)) => Err(Error::Unavailable(retry_ms)),
        Err(Error::Invalid(_) | Error::TooMany(_) | Error::Denied | Error::Other(_)) => Ok(None),
    }
}

/// The newest version that was seen of each person.
#[derive(Debug, Default)]
struct Known(BTreeMap<UserId, u64>);

impl Known {
    /// Takes down what was read; true: it is newer than anything before. That somebody is no longer kept is no news.
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
    fn only_what_is_newer_is_news() {
        let mut known = Known::default();
        let bob = UserId::parse("bob").unwrap();
        let at = |version| Some(Published { state: State::Online, note: None, since: None, last_seen: None, version });
        let news: Vec<bool> =
            [None, at(3), at(3), None, at(2), at(4)].iter().map(|found| known.note(&bob, found.as_ref())).collect();
        assert_eq!(news, [false, true, false, false, false, true]);
    }

    #[test]
    fn what_makes_no_sense_is_passed_over_and_what_is_away_is_not() {
        assert_eq!(readable(Err(Error::Other("garbled".to_owned()))), Ok(None));
        assert_eq!(readable(Err(Error::Unavailable(5))), Err(Error::Unavailable(5)));
    }
}
