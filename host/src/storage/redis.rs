//! Sessions in a Redis that any number of hosts share.
//!
//! The hosts know of each other by a list in Redis on which each writes itself every second. It spares them doing the same
//! work, and nothing goes wrong if it is not right; the store also tells by it how old a restored Redis's data are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rollcall_redis::native::{Options, Redis};
use rollcall_store::Store;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Config, Notice, Url};
use crate::jobs::{Notices, Plan, RedisPlan, Share, Turn};

/// How often a host says that it is there.
const ROLL_EVERY: Duration = Duration::from_secs(1);

/// The store, and this host's place among the others.
pub(super) struct Shared {
    pub(super) store: Arc<Redis>,
    name: String,
    share: watch::Receiver<Share>,
    notice: Notice,
}

impl Shared {
    pub(super) async fn open(config: &Config, url: &Url) -> Result<Self> {
        let store = open(config, url).await?;
        let name = name();
        let alone = Share::of(0, 1, store.shards());
        let (shares, share) = watch::channel(alone);
        tokio::spawn(answer_the_roll(Arc::clone(&store), name.clone(), shares));
        Ok(Self { store, name, share, notice: config.notice })
    }

    pub(super) fn plans(&self, workers: u32) -> Vec<Plan> {
        let (notices, expired) = Notices::new(self.share.clone(), self.store.shards(), workers);
        if self.notice != Notice::Sweep {
            tokio::spawn(hand_out(Arc::clone(&self.store), notices));
        }
        let plan = |(index, expired)| {
            Plan::Redis(RedisPlan {
                store: Arc::clone(&self.store),
                share: self.share.clone(),
                turn: Turn { index, of: workers },
                notice: self.notice,
                expired,
            })
        };
        (0..workers).zip(expired).map(plan).collect()
    }

    /// Strikes this host off the list, so that the others take over at once.
    pub(super) async fn leave(&self) {
        if let Err(error) = self.store.leave_roll(&self.name).await {
            tracing::warn!("could not tell the other hosts of the end: {error}");
        }
    }
}

/// The store itself.
pub(super) async fn open(config: &Config, url: &Url) -> Result<Arc<Redis>> {
    let ca = match &config.store_ca {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => None,
    };
    let rules = config.rules();
    let (outage_grace, evict_after) = (rules.alive_for(), rules.evict_after);
    let options = Options { shards: config.shards, outage_grace, evict_after, ca, ..Options::default() };
    Ok(Arc::new(Redis::open(url.reveal(), options).await?))
}

/// Distinct among all hosts, and telling for whoever looks into Redis.
fn name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{random:016x}", std::process::id())
}

/// Keeps this host on the list, and its share in step with who else is there.
async fn answer_the_roll(store: Arc<Redis>, name: String, shares: watch::Sender<Share>) {
    let mut ticks = interval(ROLL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // While Redis is away nobody can do anything, so nobody's share matters.
        let Ok(hosts) = store.answer_roll(&name).await else { continue };
        let place = hosts.iter().position(|host| *host == name).unwrap_or_default();
        let share = Share::of(place as u32, hosts.len() as u32, store.shards());
        let changed = shares.send_if_modified(|current| std::mem::replace(current, share) != share);
        if changed {
            tracing::info!(hosts = share.hosts, first = share.shards.first, end = share.shards.end, "takes its share");
        }
    }
}

/// Hands expiry notifications to the workers.
async fn hand_out(store: Arc<Redis>, notices: Notices) {
    let mut expiries = store.expiries();
    while let Some(users) = expiries.next().await {
        users.into_iter().for_each(|user| notices.take(user));
    }
}
