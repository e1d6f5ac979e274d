//! The part of `/v1/stats` that all workers share: what this host is, how many users are online, and who is watched most.
//! Nothing of it is computed unless it is asked for.

use std::sync::Arc;
use std::time::Duration;

use rollcall_api::responses::{HostStats, MostWatchedUser, RulesStats, Watchers};
use rollcall_core::{Rules, Time, UserId};
use rollcall_redis::native::NativeRedis;
use rollcall_store::Memory;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::hub::Hubs;

/// How many of the most watched users are shown.
const MAX_LISTED: usize = 10;

/// How long a computed value is reused, on all workers.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// How long counting may take.
const COUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// What this host is.
#[derive(Debug, Clone)]
pub(crate) struct HostInfo {
    /// When it started, by the store's clock.
    pub(crate) started: Time,
    /// The name of the hot store.
    pub(crate) store: &'static str,
    /// The name of the archive.
    pub(crate) archive: &'static str,
    /// Whether no token is required.
    pub(crate) open: bool,
    /// The rules in force.
    pub(crate) rules: Rules,
}

impl HostInfo {
    /// The `host` field of `/v1/stats`.
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

    /// The `rules` field of `/v1/stats`.
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

/// Counts users who are online.
#[derive(Debug, Clone)]
pub(crate) enum OnlineCounter {
    /// In this process, exactly.
    Embedded(Arc<Memory>),
    /// In Redis, from the due queue: see [`NativeRedis::online_count`] for what else it contains.
    Redis(Arc<NativeRedis>),
}

/// The stats that all workers of a host share.
#[derive(Debug)]
pub(crate) struct SharedStats {
    /// What this host is.
    pub(crate) info: HostInfo,
    online_counter: OnlineCounter,
    hubs: Hubs,
    online: Cached<Option<u64>>,
    most_watched: Cached<Vec<MostWatchedUser>>,
}

impl SharedStats {
    pub(crate) fn new(info: HostInfo, online_counter: OnlineCounter, hubs: Hubs) -> Self {
        Self { info, online_counter, hubs, online: Cached::default(), most_watched: Cached::default() }
    }

    /// How many users of the whole store are not offline; `None` if the store does not answer.
    pub(crate) async fn online(&self) -> Option<u64> {
        match &self.online_counter {
            OnlineCounter::Embedded(memory) => Some(memory.online_count() as u64),
            OnlineCounter::Redis(redis) => {
                let count = async || timeout(COUNT_TIMEOUT, redis.online_count()).await.ok().and_then(Result::ok);
                self.online.get(Instant::now, count).await
            }
        }
    }

    /// The users with the most watchers on this host, most first.
    pub(crate) async fn most_watched(&self) -> Vec<MostWatchedUser> {
        let entry = |(user, watchers): (UserId, u64)| MostWatchedUser { user: user.into_string(), watchers };
        self.most_watched
            .get(Instant::now, async || self.hubs.most_watched(MAX_LISTED).await.into_iter().map(entry).collect())
            .await
    }

    /// How many watchers a user has.
    pub(crate) async fn watchers_of(&self, user: &UserId) -> Watchers {
        let all = self.hubs.watcher_counts([user.clone()]).await;
        let watched = all.get(user).copied().unwrap_or_default();
        // The count of all hosts is some seconds old.
        let total = (watched.total > 0).then_some(watched.total.max(watched.here));
        Watchers { this_host: watched.here, all_hosts: total }
    }
}

/// A value that is expensive to compute, and computed at most once per [`CACHED_FOR`].
#[derive(Debug)]
struct Cached<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Cached<T> {
    /// The cached value, or a new one. Callers that arrive while it is computed wait for it and share it: its age counts from
    /// the end of the computation, so no caller waits for more than two.
    async fn get(&self, clock: impl Fn() -> Instant, find: impl AsyncFnOnce() -> T) -> T {
        let mut cached = self.0.lock().await;
        if let Some((at, found)) = &*cached
            && clock().saturating_duration_since(*at) < CACHED_FOR
        {
            return found.clone();
        }
        let found = find().await;
        *cached = Some((clock(), found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn value_is_computed_once_per_second() {
        let (cached, now) = (Cached::default(), Instant::now());
        assert_eq!(cached.get(|| now, async || 1).await, 1);
        assert_eq!(cached.get(|| now + CACHED_FOR / 2, async || 2).await, 1, "cached half a second ago");
        assert_eq!(cached.get(|| now + CACHED_FOR, async || 3).await, 3);
    }

    #[tokio::test]
    async fn waiting_caller_shares_the_value() {
        let (cached, now) = (Cached::default(), Cell::new(Instant::now()));
        let slow = async || {
            now.set(now.get() + CACHED_FOR * 3);
            1
        };
        let (first, second) = tokio::join!(cached.get(|| now.get(), slow), cached.get(|| now.get(), async || 2));
        assert_eq!((first, second), (1, 1), "however long the computation took");
    }
}
