//! Calls of whoever runs the service: what this host counted, and everything that is known about one person.

use std::time::{Duration, Instant};

use rollcall_api::responses::{self, PeopleStats, Person, Stats, StoreStats};
use rollcall_api::{Reply, pages};
use rollcall_core::policy::Ruling;
use rollcall_core::{Error, State, UserId};

use super::{Edge, only};
use crate::stats::Figures;

/// How long a look-up may take before the store counts as away: longer than Redis is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

impl Edge {
    /// What this host counted. A store that is away is part of the answer, not a reason to give none.
    pub(super) async fn stats(&self) -> Result<Reply, Error> {
        let platform = &self.functions.platform;
        let (store, here, hot) = tokio::join!(self.look(), self.shared_stats.here(), self.shared_stats.hottest());
        let Figures { mut gateway, totals, times } = Figures::read(&platform.metrics.text());
        gateway.hot = hot;
        let about = &self.shared_stats.about;
        let (host, rules) = (about.host(platform.topics.now()), about.rules());
        Ok(responses::stats(&Stats { host, rules, store, people: PeopleStats { here }, gateway, totals, times }))
    }

    /// Looks up in the store somebody who was never there.
    async fn look(&self) -> StoreStats {
        let began = Instant::now();
        let look = async {
            let users = vec![UserId::parse("rollcall/canary")?];
            only(self.functions.platform.store.load_many(users).await?.sessions)
        };
        let answers = matches!(tokio::time::timeout(PATIENCE, look).await, Ok(Ok(_)));
        StoreStats { answers, took_ms: began.elapsed().as_secs_f64() * 1000.0 }
    }

    /// Everything that is known about one person, which is read here and decided nowhere: the state is what the person would
    /// be told. A policy that keeps no settings and an archive that is away leave a gap in the answer, and no more.
    pub(super) async fn person(&self, user: UserId) -> Result<Reply, Error> {
        let (functions, platform) = (&self.functions, &self.functions.platform);
        let itself = || vec![user.clone()];
        let (views, archived, own, verdicts, loaded, watchers) = tokio::join!(
            functions.look_up(Some(user.clone()), itself()),
            platform.archive.get_many(itself()),
            functions.settings_of(user.clone()),
            functions.check(None, [&user].into_iter().collect()),
            platform.store.load_many(itself()),
            self.shared_stats.watchers_of(&user),
        );
        let (loaded, own) = (loaded?, own.ok());
        let session = only(loaded.sessions)?;
        let hidden = || Error::Other("a person is hidden from themselves".to_owned());
        let state = match (only(views?), &archived) {
            // Of whom no device is kept, and `query` cannot tell for want of the archive, is gone.
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

    /// The metrics, with how many people are here as of now: in Redis nobody counts them otherwise.
    pub(super) async fn metrics(&self) -> Reply {
        let metrics = &self.functions.platform.metrics;
        metrics.here(self.shared_stats.here().await);
        pages::metrics(&metrics.text())
    }
}
