//! Sessions in a Redis that any number of hosts share.

use std::sync::Arc;

use anyhow::{Context, Result};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_store::SessionStore;
use tokio::sync::watch;

use crate::config::{Config, ExpiryDetection, Url};
use crate::jobs::expiry_notifications::{self, Router};
use crate::jobs::{HostShards, Partition, RedisJobs, SessionJobs, Supervisor, membership};

/// The store, and this host's entry among the others.
pub(super) struct RedisStorage {
    pub(super) store: Arc<NativeRedis>,
    host: String,
    expiry_detection: ExpiryDetection,
}

impl RedisStorage {
    pub(super) async fn open(config: &Config, url: &Url) -> Result<Self> {
        Ok(Self { store: open(config, url).await?, host: host_name(), expiry_detection: config.expiry_detection })
    }

    /// Starts the host's own jobs on the current runtime. Returns the jobs of each worker.
    pub(super) fn start_jobs(&self, supervisor: &Supervisor, workers: u32) -> Vec<SessionJobs> {
        let alone = HostShards::new(0, 1, self.store.shards());
        let (sender, host_shards) = watch::channel(alone);
        let (store, host) = (Arc::clone(&self.store), self.host.clone());
        supervisor.spawn("membership", move || membership::run(Arc::clone(&store), host.clone(), sender.clone()));
        let (router, notified) = Router::new(host_shards.clone(), self.store.shards(), workers);
        if self.expiry_detection != ExpiryDetection::Sweep {
            let store = Arc::clone(&self.store);
            supervisor.spawn("expiry-notifications", move || {
                expiry_notifications::receive(Arc::clone(&store), router.clone())
            });
        }
        let jobs = |(index, notified)| {
            SessionJobs::Redis(RedisJobs {
                store: Arc::clone(&self.store),
                host_shards: host_shards.clone(),
                worker: Partition { index, count: workers },
                expiry_detection: self.expiry_detection,
                notified,
            })
        };
        (0..workers).zip(notified).map(jobs).collect()
    }

    /// Removes this host from the membership, so that the others take over its shards at once.
    pub(super) async fn leave(&self) {
        if let Err(error) = self.store.leave_membership(&self.host).await {
            tracing::warn!(%error, "Cannot leave the membership; other hosts take over when the entry expires");
        }
    }
}

/// Opens the store.
pub(super) async fn open(config: &Config, url: &Url) -> Result<Arc<NativeRedis>> {
    let ca = match &config.store_ca {
        Some(path) => Some(std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?),
        None => None,
    };
    let rules = config.rules();
    let (outage_grace, evict_after) = (rules.alive_for(), rules.evict_after);
    let options = Options { shards: config.shards, outage_grace, evict_after, ca, ..Options::default() };
    Ok(Arc::new(NativeRedis::open(url.reveal(), options).await?))
}

/// A name that is unique among all hosts and starts with the process id, for operators who look into Redis.
fn host_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{random:016x}", std::process::id())
}
