//! The capabilities that the host provides to an instance, over the store chosen at start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rollcall_core::{Error, Rules};
use rollcall_functions::capabilities::Shards;
use rollcall_store::{LastSeen, Policies, Store, Topics};
use wasmtime::component::{Accessor, HasData};
use wasmtime::{StoreLimits, StoreLimitsBuilder};

use super::bindings::platform::rollcall::presence as wit;
use super::codec;
use super::restriction_check::{Checker, verdict_out};
use crate::metrics::Metrics;

/// Everything the functions need, shared by all instances of a worker.
#[derive(Clone)]
pub struct Platform {
    /// The hot store.
    pub store: Arc<dyn Store>,
    /// The archive of last seen.
    pub archive: Arc<dyn LastSeen>,
    /// Topics of changes, and typing signals.
    pub topics: Arc<dyn Topics>,
    /// Restrictions, blocks, contacts and privacy.
    pub policies: Arc<dyn Policies>,
    /// The instance of `restriction-check` that this worker asks.
    pub checker: Checker,
    /// How many bytes of policy one instance of `restriction-check` may hold.
    pub policy_memory: u64,
    /// The rules in force.
    pub rules: Rules,
    /// The host's metrics.
    pub metrics: Arc<Metrics>,
}

/// A composed component has a memory for each of its parts.
const MAX_MEMORIES: usize = 4;

/// The data of one instance's wasmtime store.
pub(crate) struct StoreData {
    platform: Platform,
    pub(crate) limits: StoreLimits,
    /// Epoch ticks since the instance last yielded: see [`super::instance_queue`].
    pub(crate) ticks: Arc<AtomicU32>,
}

impl StoreData {
    pub(crate) fn new(platform: Platform, memory_limit: usize) -> Self {
        let limits =
            StoreLimitsBuilder::new().memory_size(memory_limit).memories(MAX_MEMORIES).instances(16).tables(16).build();
        Self { platform, limits, ticks: Arc::default() }
    }

    /// Counts a tick. Returns how many there were since the instance last yielded.
    pub(crate) fn count_tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Gives the generated bindings access to a [`StoreData`].
pub(crate) struct Capabilities;

impl HasData for Capabilities {
    type Data<'a> = &'a mut StoreData;
}

pub(crate) type Access<T> = Accessor<T, Capabilities>;

pub(crate) fn platform<T>(accessor: &Access<T>) -> Platform {
    accessor.with(|mut access| access.get().platform.clone())
}

/// Measures one call of the store, whether it succeeds or fails.
pub(crate) async fn timed<T>(
    platform: &Platform,
    operation: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, wit::types::Error> {
    let began = Instant::now();
    let answer = answer.await;
    platform.metrics.store_call(operation, began.elapsed(), answer.is_ok());
    answer.map_err(codec::error_out)
}

impl wit::types::Host for StoreData {}
impl wit::sessions::Host for StoreData {}
impl wit::archive::Host for StoreData {}
impl wit::restriction_check::Host for StoreData {}

impl wit::settings::Host for StoreData {
    fn current(&mut self) -> wit::settings::Rules {
        codec::rules_out(&self.platform.rules)
    }
}

impl<T> wit::sessions::HostWithStore<T> for Capabilities {
    async fn touch_many(
        accessor: &Access<T>,
        touches: wit::sessions::Touches,
    ) -> Result<wit::sessions::Touched, wit::types::Error> {
        let platform = platform(accessor);
        let touches = codec::touches_in(touches).map_err(|invalid| codec::error_out(invalid.into()))?;
        let touched = timed(&platform, "touch", platform.store.touch_many(touches)).await?;
        Ok(codec::touched_out(touched))
    }

    async fn load_many(accessor: &Access<T>, users: Vec<String>) -> Result<wit::sessions::Loaded, wit::types::Error> {
        let platform = platform(accessor);
        let users = codec::all(users, codec::user_in)?;
        let loaded = timed(&platform, "load", platform.store.load_many(users)).await?;
        Ok(codec::loaded_out(loaded))
    }

    async fn commit_many(
        accessor: &Access<T>,
        commits: Vec<wit::sessions::Commit>,
    ) -> Result<Vec<Result<wit::sessions::Committed, wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        let commits = codec::all(commits, codec::commit_in)?;
        let published: Vec<_> = commits.iter().map(|c| c.decision.publish.as_ref().map(|p| p.state)).collect();
        let outcomes = timed(&platform, "commit", platform.store.commit_many(commits)).await?;
        platform.metrics.committed(&published, &outcomes);
        Ok(codec::outcomes_out(outcomes))
    }

    async fn due(accessor: &Access<T>, first: u32, end: u32, limit: u32) -> Result<Vec<String>, wit::types::Error> {
        let platform = platform(accessor);
        let due = timed(&platform, "due", platform.store.due(Shards { first, end }, limit)).await?;
        Ok(due.into_iter().map(|user| user.into_string()).collect())
    }

    async fn evictable(
        accessor: &Access<T>,
        first: u32,
        end: u32,
        limit: u32,
    ) -> Result<Vec<String>, wit::types::Error> {
        let platform = platform(accessor);
        let cold = timed(&platform, "evictable", platform.store.evictable(Shards { first, end }, limit)).await?;
        Ok(cold.into_iter().map(|user| user.into_string()).collect())
    }

    async fn evict_many(
        accessor: &Access<T>,
        evictions: Vec<wit::sessions::Eviction>,
    ) -> Result<Vec<Result<wit::sessions::Committed, wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        let evictions = codec::all(evictions, codec::eviction_in)?;
        let outcomes = timed(&platform, "evict", platform.store.evict_many(evictions)).await?;
        Ok(codec::outcomes_out(outcomes))
    }
}

impl<T> wit::archive::HostWithStore<T> for Capabilities {
    async fn put_many(
        accessor: &Access<T>,
        last_seen_entries: Vec<wit::archive::LastSeenEntry>,
    ) -> Result<(), wit::types::Error> {
        let platform = platform(accessor);
        let last_seen_entries = codec::all(last_seen_entries, codec::last_seen_entry_in)?;
        timed(&platform, "archive_put", platform.archive.put_many(last_seen_entries)).await
    }

    async fn get_many(accessor: &Access<T>, users: Vec<String>) -> Result<Vec<Option<u64>>, wit::types::Error> {
        let platform = platform(accessor);
        let users = codec::all(users, codec::user_in)?;
        let times = timed(&platform, "archive_get", platform.archive.get_many(users)).await?;
        Ok(times.into_iter().map(|time| time.map(|time| time.0)).collect())
    }
}

impl<T> wit::restriction_check::HostWithStore<T> for Capabilities {
    async fn check(
        accessor: &Access<T>,
        viewer: Option<String>,
        subjects: wit::types::Ids,
    ) -> Result<Vec<wit::restriction_check::Verdict>, wit::types::Error> {
        let platform = platform(accessor);
        let viewer = viewer.map(codec::user_in).transpose().map_err(|invalid| codec::error_out(invalid.into()))?;
        let subjects = codec::ids_in(subjects).map_err(|invalid| codec::error_out(invalid.into()))?;
        platform.metrics.policy.checked(subjects.len());
        let verdicts = platform.checker.check(viewer, subjects).await.map_err(codec::error_out)?;
        Ok(verdicts.into_iter().map(verdict_out).collect())
    }
}
