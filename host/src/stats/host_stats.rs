//! What is the same for all of a host's workers and is asked by whoever runs it: what this host is, how many people are
//! here, and whom most watch. Nothing of it is kept up to date while nobody looks.

use std::sync::Arc;
use std::time::Duration;

use rollcall_api::responses::{HostStats, HotUser, RulesStats, Watchers};
use rollcall_core::{Rules, Time, UserId};
use rollcall_redis::native::Redis;
use rollcall_store::Memory;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::hub::Hubs;

/// How many of those whom most watch are shown.
const HOTTEST: usize = 10;

/// How long what took some asking is told again, to whoever asks on whichever worker.
const RECENT: Duration = Duration::from_secs(1);

/// How long counting may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// What this host is.
#[derive(Debug, Clone)]
pub(crate) struct HostInfo {
    /// When it started, by the store's clock.
    pub(crate) started: Time,
    /// Where sessions are.
    pub(crate) store: &'static str,
    /// Where last seen is kept for ever.
    pub(crate) archive: &'static str,
    /// Whether callers are believed by their word.
    pub(crate) open: bool,
    /// By which times it decides.
    pub(crate) rules: Rules,
}

impl HostInfo {
    /// As the answer to `/v1/stats` has it.
    pub(crate) fn host(&self, now: Time) -> HostStats {
        HostStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: now.0,
            started: self.started.0,
            store: self.store.to_owned(),
            archive: self.archive.to_owned(),
            open: self.open,
        }
    }

    /// The times, as the answer to `/v1/stats` has them.
    pub(crate) fn rules(&self) -> RulesStats {
        let Rules { interval, tolerance, idle_after, grace, typing_ttl, watch_limit, .. } = self.rules;
        RulesStats {
            interval_ms: interval.0,
            tolerance_ms: tolerance.0,
            idle_after_ms: idle_after.0,
            grace_ms: grace.0,
            typing_ttl_ms: typing_ttl.0,
            watch_limit,
        }
    }
}

/// Where people are counted.
#[derive(Debug, Clone)]
pub(crate) enum OnlineCounter {
    /// In this process, exactly.
    Embedded(Arc<Memory>),
    /// In Redis, by who waits for a deadline: see [`Redis::here`] for who else does.
    Redis(Arc<Redis>),
}

/// What all workers of a host know together.
#[derive(Debug)]
pub(crate) struct SharedStats {
    /// What this host is.
    pub(crate) about: HostInfo,
    online_counter: OnlineCounter,
    hubs: Hubs,
    counted: Recent<Option<u64>>,
    hottest: Recent<Vec<HotUser>>,
}

impl SharedStats {
    pub(crate) fn new(about: HostInfo, online_counter: OnlineCounter, hubs: Hubs) -> Self {
        Self { about, online_counter, hubs, counted: Recent::default(), hottest: Recent::default() }
    }

    /// How many people are not offline, in the whole store; none: nobody can say, because the store does not answer.
    pub(crate) async fn here(&self) -> Option<u64> {
        match &self.online_counter {
            OnlineCounter::Embedded(memory) => Some(memory.here() as u64),
            OnlineCounter::Redis(redis) => {
                let count = async || timeout(PATIENCE, redis.here()).await.ok().and_then(Result::ok);
                self.counted.get(Instant::now, count).await
            }
        }
    }

    /// Whom most connections to this host watch, most first.
    pub(crate) async fn hottest(&self) -> Vec<HotUser> {
        let hot = |(user, watchers): (UserId, u64)| HotUser { user: user.into_string(), watchers };
        self.hottest.get(Instant::now, async || self.hubs.hottest(HOTTEST).await.into_iter().map(hot).collect()).await
    }

    /// How many connections watch this person.
    pub(crate) async fn watchers_of(&self, user: &UserId) -> Watchers {
        let all = self.hubs.watched([user.clone()]).await;
        let watched = all.get(user).copied().unwrap_or_default();
        // The count of all hosts is some seconds old.
        let total = (watched.total > 0).then_some(watched.total.max(watched.here));
        Watchers { here: watched.here, everywhere: total }
    }
}

/// Something that takes some asking and is asked for at most once in a while, whoever wants to know.
#[derive(Debug)]
struct Recent<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Recent<T> {
    /// What was found a moment ago, or what is found now. Whoever comes meanwhile waits for it, and is told the same: it is
    /// as old as its end, so that however long it takes to find, nobody waits for more than two.
    async fn get(&self, clock: impl Fn() -> Instant, find: impl AsyncFnOnce() -> T) -> T {
        let mut recent = self.0.lock().await;
        if let Some((at, found)) = &*recent
            && clock().saturating_duration_since(*at) < RECENT
        {
            return found.clone();
        }
        let found = find().await;
        *recent = Some((clock(), found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn what_takes_some_asking_is_asked_for_once_a_second() {
        let (recent, now) = (Recent::default(), Instant::now());
        assert_eq!(recent.get(|| now, async || 1).await, 1);
        assert_eq!(recent.get(|| now + RECENT / 2, async || 2).await, 1, "as it was half a second ago");
        assert_eq!(recent.get(|| now + RECENT, async || 3).await, 3);
    }

    #[tokio::test]
    async fn whoever_waited_for_an_answer_does_not_ask_again() {
        let (recent, now) = (Recent::default(), Cell::new(Instant::now()));
        let slow = async || {
            now.set(now.get() + RECENT * 3);
            1
        };
        let (first, second) = tokio::join!(recent.get(|| now.get(), slow), recent.get(|| now.get(), async || 2));
        assert_eq!((first, second), (1, 1), "however long it took");
    }
}
