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
    Watched(Arc<[UserId]>, oneshot::Sender<Vec<Watched>>),
}

/// How many watchers a user has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// On the workers asked.
    pub(crate) here: u64,
    /// On all hosts, as last counted; 0 if not counted.
    pub(crate) total: u64,
}

impl Watched {
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
    pub(crate) async fn hottest(&self, limit: usize) -> Vec<(UserId, u64)> {
        let named = self.ask(|answer| HubQuery::MostWatched(CANDIDATES.max(limit), answer)).await;
        let users: BTreeSet<UserId> = named.into_iter().flatten().collect();
        let mut hottest: Vec<(UserId, u64)> =
            self.watched(users).await.into_iter().map(|(user, watched)| (user, watched.here)).collect();
        // A user may have lost the last watcher between the two queries.
        hottest.retain(|(_, watchers)| *watchers > 0);
        hottest.sort_unstable_by(|(one, many), (other, more)| more.cmp(many).then_with(|| one.cmp(other)));
        hottest.truncate(limit);
        hottest
    }

    /// How many watchers each of these users has on this host.
    pub(crate) async fn watched(&self, users: impl IntoIterator<Item = UserId>) -> HashMap<UserId, Watched> {
        let users: Arc<[UserId]> = users.into_iter().collect();
        let answers = self.ask(|answer| HubQuery::Watched(Arc::clone(&users), answer)).await;
        let mut all = HashMap::with_capacity(users.len());
        for (user, watched) in answers.iter().flat_map(|answer| users.iter().zip(answer)) {
            let sum = all.entry(user.clone()).or_insert_with(Watched::default);
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
    async fn worker(mut asked: mpsc::UnboundedReceiver<HubQuery>, people: Vec<(&'static str, u64)>) {
        while let Some(query) = asked.recv().await {
            match query {
                HubQuery::MostWatched(limit, answer) => {
                    let mut people = people.clone();
                    people.sort_by_key(|(_, watchers)| std::cmp::Reverse(*watchers));
                    let users = people.iter().take(limit).map(|(name, _)| UserId::parse(*name).unwrap());
                    answer.send(users.collect()).unwrap();
                }
                HubQuery::Watched(users, answer) => {
                    let count = |user: &UserId| people.iter().find(|(name, _)| *name == user.as_str());
                    let watched = |user| Watched { here: count(user).map_or(0, |(_, here)| *here), total: 0 };
                    answer.send(users.iter().map(watched).collect()).unwrap();
                }
            }
        }
    }

    #[tokio::test]
    async fn watchers_of_all_workers_are_summed() {
        let (hubs, asked) = Hubs::of(2);
        let people = [vec![("bob", 3), ("eve", 5), ("ann", 1)], vec![("bob", 4), ("ann", 4), ("zoe", 5)]];
        asked.into_iter().zip(people).for_each(|(asked, people)| drop(tokio::spawn(worker(asked, people))));
        let hottest = hubs.hottest(3).await;
        let named: Vec<_> = hottest.iter().map(|(user, watchers)| (user.as_str(), *watchers)).collect();
        assert_eq!(named, [("bob", 7), ("ann", 5), ("eve", 5)], "ordered by watchers, then by id");
    }

    #[tokio::test]
    async fn silent_worker_is_left_out() {
        let (hubs, mut asked) = Hubs::of(3);
        let (gone, mut mute) = (asked.remove(0), asked.remove(0));
        drop(gone);
        tokio::spawn(async move { while mute.recv().await.is_some() {} });
        tokio::spawn(worker(asked.remove(0), vec![("bob", 2)]));
        let hottest = hubs.hottest(10).await;
        assert_eq!(hottest, [(UserId::parse("bob").unwrap(), 2)]);
    }
}
