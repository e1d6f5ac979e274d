//! Queries about watchers, sent to every worker of this host, because each knows only its own connections.
//!
//! Nothing is collected unless it is asked for. A worker that does not answer in time is left out: statistics are not
//! worth waiting for a busy worker.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rollcall_core::UserId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How many of its most watched users each worker names. More than are shown: a user with many watchers on every worker may
/// be the most watched on none.
const CANDIDATES: usize = 40;

/// How long a worker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// A query to a worker's hub.
#[derive(Debug)]
pub(crate) enum HubQuery {
    /// The users with the most watchers, at most this many.
    MostWatched(usize, oneshot::Sender<Vec<UserId>>),
    /// How many watchers each of these users has.
    WatcherCounts(Arc<[UserId]>, oneshot::Sender<Vec<WatcherCounts>>),
}

/// How many watchers a user has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WatcherCounts {
    /// On the workers asked.
    pub(crate) here: u64,
    /// On all hosts, as last counted; 0 if not counted.
    pub(crate) total: u64,
}

impl WatcherCounts {
    /// The sum over two workers.
    fn and(self, other: Self) -> Self {
        Self { here: self.here + other.here, total: self.total.max(other.total) }
    }
}

/// The hubs of all workers of a host.
#[derive(Debug, Clone)]
pub(crate) struct Hubs(Arc<[mpsc::UnboundedSender<HubQuery>]>);

impl Hubs {
    /// The sending side for this many workers, and the receiving end of each.
    pub(crate) fn of(workers: usize) -> (Self, Vec<mpsc::UnboundedReceiver<HubQuery>>) {
        let (asked, asking): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        (Self(asked.into()), asking)
    }

    /// The most watched users, ordered by watchers and then by id. The counts are exact. A user is missing only if their
    /// watchers are spread so evenly that no worker names them.
    pub(crate) async fn most_watched(&self, limit: usize) -> Vec<(UserId, u64)> {
        let named = self.ask(|answer| HubQuery::MostWatched(CANDIDATES.max(limit), answer)).await;
        let users: BTreeSet<UserId> = named.into_iter().flatten().collect();
        let mut most_watched: Vec<(UserId, u64)> =
            self.watcher_counts(users).await.into_iter().map(|(user, watched)| (user, watched.here)).collect();
        // A user may have lost the last watcher between the two queries.
        most_watched.retain(|(_, watchers)| *watchers > 0);
        most_watched.sort_unstable_by(|(one, many), (other, more)| more.cmp(many).then_with(|| one.cmp(other)));
        most_watched.truncate(limit);
        most_watched
    }

    /// How many watchers each of these users has on this host.
    pub(crate) async fn watcher_counts(
        &self,
        users: impl IntoIterator<Item = UserId>,
    ) -> HashMap<UserId, WatcherCounts> {
        let users: Arc<[UserId]> = users.into_iter().collect();
        let answers = self.ask(|answer| HubQuery::WatcherCounts(Arc::clone(&users), answer)).await;
        let mut all = HashMap::with_capacity(users.len());
        for (user, watched) in answers.iter().flat_map(|answer| users.iter().zip(answer)) {
            let sum = all.entry(user.clone()).or_insert_with(WatcherCounts::default);
            *sum = sum.and(*watched);
        }
        all
    }

    /// Asks every worker at once.
    async fn ask<T>(&self, query: impl Fn(oneshot::Sender<T>) -> HubQuery) -> Vec<T> {
        let answers = self.0.iter().filter_map(|worker| {
            let (answer, answered) = oneshot::channel();
            worker.send(query(answer)).is_ok().then_some(answered)
        });
        let answers = join_all(answers.map(|answered| timeout(ANSWER_TIMEOUT, answered))).await;
        answers.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// A worker on which these users have this many watchers.
    async fn worker(mut asked: mpsc::UnboundedReceiver<HubQuery>, watched: Vec<(&'static str, u64)>) {
        while let Some(query) = asked.recv().await {
            match query {
                HubQuery::MostWatched(limit, answer) => {
                    let mut watched = watched.clone();
                    watched.sort_by_key(|(_, watchers)| std::cmp::Reverse(*watchers));
                    let users = watched.iter().take(limit).map(|(name, _)| UserId::parse(*name).unwrap());
                    answer.send(users.collect()).unwrap();
                }
                HubQuery::WatcherCounts(users, answer) => {
                    let count = |user: &UserId| watched.iter().find(|(name, _)| *name == user.as_str());
                    let counts = |user| WatcherCounts { here: count(user).map_or(0, |(_, here)| *here), total: 0 };
                    answer.send(users.iter().map(counts).collect()).unwrap();
                }
            }
        }
    }

    #[tokio::test]
    async fn watchers_of_all_workers_are_summed() {
        let (hubs, asked) = Hubs::of(2);
        let watched = [vec![("bob", 3), ("eve", 5), ("ann", 1)], vec![("bob", 4), ("ann", 4), ("zoe", 5)]];
        asked.into_iter().zip(watched).for_each(|(asked, watched)| drop(tokio::spawn(worker(asked, watched))));
        let most_watched = hubs.most_watched(3).await;
        let named: Vec<_> = most_watched.iter().map(|(user, watchers)| (user.as_str(), *watchers)).collect();
        assert_eq!(named, [("bob", 7), ("ann", 5), ("eve", 5)], "ordered by watchers, then by id");
    }

    #[tokio::test]
    async fn silent_worker_is_left_out() {
        let (hubs, mut asked) = Hubs::of(3);
        let (gone, mut mute) = (asked.remove(0), asked.remove(0));
        drop(gone);
        tokio::spawn(async move { while mute.recv().await.is_some() {} });
        tokio::spawn(worker(asked.remove(0), vec![("bob", 2)]));
        let most_watched = hubs.most_watched(10).await;
        assert_eq!(most_watched, [(UserId::parse("bob").unwrap(), 2)]);
    }
}
