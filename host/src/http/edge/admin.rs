//! Calls for operators: this host's statistics, and everything known about one user.

use std::time::{Duration, Instant};

use rollcall_api::responses::{self, Person, Stats, StoreStats, UserStats};
use rollcall_api::{Reply, pages};
use rollcall_core::policy::Ruling;
use rollcall_core::{Error, State, UserId};

use super::{Edge, only};
use crate::stats::MetricsStats;

/// How long a look-up may take before the store counts as unavailable. Longer than the Redis timeout.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(2);

impl Edge {
    /// This host's statistics. An unavailable store is part of the answer, not an error.
    pub(super) async fn stats(&self) -> Result<Reply, Error> {
        let platform = &self.functions.platform;
        let (store, online, most_watched) =
            tokio::join!(self.probe_store(), self.shared_stats.online(), self.shared_stats.most_watched());
        let MetricsStats { mut connections, totals, times } = MetricsStats::read(&platform.metrics.text());
        connections.most_watched = most_watched;
        let info = &self.shared_stats.info;
        let (host, rules) = (info.host(platform.topics.now()), info.rules());
        Ok(responses::stats(&Stats { host, rules, store, users: UserStats { online }, connections, totals, times }))
    }

    /// Loads a user who does not exist, to measure the store.
    async fn probe_store(&self) -> StoreStats {
        let began = Instant::now();
        let look = async {
            let users = vec![UserId::parse("rollcall/canary")?];
            only(self.functions.platform.store.load_many(users).await?.sessions)
        };
        let answers = matches!(tokio::time::timeout(LOOK_UP_TIMEOUT, look).await, Ok(Ok(_)));
        StoreStats { answers, took_ms: began.elapsed().as_secs_f64() * 1000.0 }
    }

    /// Everything known about one user. The state is what the user would see of themselves. A policy without settings, or an
    /// unavailable archive, only leaves a gap in the answer.
    pub(super) async fn person(&self, user: UserId) -> Result<Reply, Error> {
        let (functions, platform) = (&self.functions, &self.functions.platform);
        let itself = || vec![user.clone()];
        let (views, archived, own, verdicts, loaded, watchers) = tokio::join!(
            functions.look_up(Some(user.clone()), itself()),
            platform.archive.get_many([user.clone()].into()),
            functions.settings_of(user.clone()),
            functions.check(None, [&user].into_iter().collect()),
            platform.store.load_many(itself()),
            self.shared_stats.watchers_of(&user),
        );
        let (loaded, own) = (loaded?, own.ok());
        let session = only(loaded.sessions)?;
        let hidden = || Error::Other("the user is hidden from themselves".to_owned());
        let state = match (only(views?), &archived) {
            // `query` fails if the archive is down; a user without devices is offline even then.
            (Err(_), Err(_)) if session.devices.is_empty() => State::Offline,
            (view, _) => view?.ok_or_else(hidden)?.published.state,
        };
        Ok(responses::person(&Person {
            user: &user,
            moment: &loaded.moment,
            session: &session,
            state,
            archived: archived.ok().and_then(|seen| seen.into_iter().next().flatten()),
            privacy: own.as_ref().map(|own| own.privacy),
            restricted: verdicts?.iter().any(|verdict| verdict.presence == Ruling::Restricted),
            contacts: own.as_ref().map(|own| own.contacts.len()),
            blocks: own.as_ref().map(|own| own.blocks.len()),
            watchers,
        }))
    }

    /// The metrics. How many users are online is counted for each scrape: on Redis no job counts it.
    pub(super) async fn metrics(&self) -> Reply {
        let metrics = &self.functions.platform.metrics;
        metrics.users_online(self.shared_stats.online().await);
        pages::metrics(&metrics.text())
    }
}
