//! Questions about who watches whom, put to every worker of this host, each of which knows only its own connections.
//!
//! Nobody is asked unless somebody looks. A worker that does not answer in time is left out: it is busy, and a figure is
//! not worth waiting for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rollcall_core::UserId;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Hub;

/// How many of its most watched each worker names: more than are shown, because whoever is watched much on every worker may
/// be the most watched on none.
const NAMED: usize = 40;

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a worker is asked.
#[derive(Debug)]
pub(crate) enum HubQuery {
    /// Whom do most watch? So many at most.
    MostWatched(usize, oneshot::Sender<Vec<UserId>>),
    /// How many watch each of these?
    Watched(Arc<[UserId]>, oneshot::Sender<Vec<Watched>>),
}

/// How many connections watch a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Of those who were asked.
    pub(crate) here: u64,
    /// On all hosts, as last counted; 0 where nobody counts.
    pub(crate) total: u64,
}

impl Watched {
    /// The same, as two workers know it.
    fn and(self, other: Self) -> Self {
        Self { here: self.here + other.here, total: self.total.max(other.total) }
    }
}

/// All workers of a host, as those who know who watches whom.
#[derive(Debug, Clone)]
pub(crate) struct Hubs(Arc<[mpsc::UnboundedSender<HubQuery>]>);

impl Hubs {
    /// For so many workers, and where each of them is asked.
    pub(crate) fn of(workers: usize) -> (Self, Vec<mpsc::UnboundedReceiver<HubQuery>>) {
        let (asked, asking): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        (Self(asked.into()), asking)
    }

    /// The people whom most watch, most first and then by name. The counts are exact; that nobody is missing is, for all
    /// but the most contrived spreads of watchers over workers.
    pub(crate) async fn hottest(&self, limit: usize) -> Vec<(UserId, u64)> {
        let named = self.ask(|answer| HubQuery::MostWatched(NAMED.max(limit), answer)).await;
        let users: BTreeSet<UserId> = named.into_iter().flatten().collect();
        let mut hottest: Vec<(UserId, u64)> =
            self.watched(users).await.into_iter().map(|(user, watched)| (user, watched.here)).collect();
        // Whoever was forsaken between the two queries is watched no more.
        hottest.retain(|(_, watchers)| *watchers > 0);
        hottest.sort_unstable_by(|(one, many), (other, more)| more.cmp(many).then_with(|| one.cmp(other)));
        hottest.truncate(limit);
        hottest
    }

    /// How many watch each of these, on all of this host.
    pub(crate) async fn watched(&self, users: impl IntoIterator<Item = UserId>) -> HashMap<UserId, Watched> {
        let users: Arc<[UserId]> = users.into_iter().collect();
        let answers = self.ask(|answer| HubQuery::Watched(Arc::clone(&users), answer)).await;
        let mut all = HashMap::with_capacity(users.len());
        for (user, watched) in answers.iter().flat_map(|answer| users.iter().zip(answer)) {
            let known = all.entry(user.clone()).or_insert_with(Watched::default);
            *known = known.and(*watched);
        }
        all
    }

    /// Asks every worker at once.
    async fn ask<T>(&self, query: impl Fn(oneshot::Sender<T>) -> HubQuery) -> Vec<T> {
        let answers = self.0.iter().filter_map(|worker| {
            let (answer, answered) = oneshot::channel();
            worker.send(query(answer)).is_ok().then_some(answered)
        });
        let answers = join_all(answers.map(|answered| timeout(PATIENCE, answered))).await;
        answers.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
    }
}

impl Hub {
    /// Answers what is asked of this worker.
    pub(super) async fn answer(&self, mut queries: mpsc::UnboundedReceiver<HubQuery>) {
        while let Some(query) = queries.recv().await {
            let registry = self.registry.borrow();
            // Whoever asked may have given up.
            match query {
                HubQuery::MostWatched(limit, answer) => drop(answer.send(registry.most_watched(limit))),
                HubQuery::Watched(users, answer) => {
                    drop(answer.send(users.iter().map(|user| registry.watched(user)).collect()));
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// A worker on which these are watched by so many.
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
    async fn watchers_of_all_workers_are_added_up() {
        let (hubs, asked) = Hubs::of(2);
        let people = [vec![("bob", 3), ("eve", 5), ("ann", 1)], vec![("bob", 4), ("ann", 4), ("zoe", 5)]];
        asked.into_iter().zip(people).for_each(|(asked, people)| drop(tokio::spawn(worker(asked, people))));
        let hottest = hubs.hottest(3).await;
        let named: Vec<_> = hottest.iter().map(|(user, watchers)| (user.as_str(), *watchers)).collect();
        assert_eq!(named, [("bob", 7), ("ann", 5), ("eve", 5)], "most first, and then by name");
    }

    #[tokio::test]
    async fn a_worker_that_does_not_answer_is_left_out() {
        let (hubs, mut asked) = Hubs::of(3);
        let (gone, mut mute) = (asked.remove(0), asked.remove(0));
        drop(gone);
        tokio::spawn(async move { while mute.recv().await.is_some() {} });
        tokio::spawn(worker(asked.remove(0), vec![("bob", 2)]));
        let hottest = hubs.hottest(10).await;
        assert_eq!(hottest, [(UserId::parse("bob").unwrap(), 2)]);
    }
}
