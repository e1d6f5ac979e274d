//! The capabilities that the host provides to an instance, over the store chosen at start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rollcall_contract::host::convert::{all, each, replies};
use rollcall_contract::host::wit;
use rollcall_core::{Error, Ids, Invalid, Rules, UserId};
use rollcall_functions::capabilities::{Commit, Shards};
use rollcall_store::{ArchiveStore, PolicyStore, SessionStore, TopicStore};
use wasmtime::component::{Accessor, HasData};
use wasmtime::{StoreLimits, StoreLimitsBuilder};

use super::restriction_check::Checker;
use crate::metrics::Metrics;

/// Everything the functions need, shared by all instances of a worker.
#[derive(Clone)]
pub struct Platform {
    /// The hot store.
    pub store: Arc<dyn SessionStore>,
    /// The archive of last seen.
    pub archive: Arc<dyn ArchiveStore>,
    /// Topics of changes, and typing signals.
    pub topics: Arc<dyn TopicStore>,
    /// Restrictions, blocks, contacts and privacy.
    pub policies: Arc<dyn PolicyStore>,
    /// The instance of `restriction-check` that this worker calls.
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
    Ok(answer?)
}

/// Checks ids. One that is invalid fails the call: a component that sends it is broken.
pub(crate) fn parsed(users: Vec<String>) -> Result<Vec<UserId>, Invalid> {
    users.into_iter().map(UserId::parse).collect()
}

impl wit::types::Host for StoreData {}
impl wit::session_types::Host for StoreData {}
impl wit::policy_types::Host for StoreData {}
impl wit::sessions::Host for StoreData {}
impl wit::archive::Host for StoreData {}
impl wit::restriction_check::Host for StoreData {}

impl wit::settings::Host for StoreData {
    fn current(&mut self) -> wit::types::Rules {
        (&self.platform.rules).into()
    }
}

impl<T> wit::sessions::HostWithStore<T> for Capabilities {
    async fn touch_many(
        accessor: &Access<T>,
        touches: wit::session_types::Touches,
    ) -> Result<wit::session_types::Touched, wit::types::Error> {
        let platform = platform(accessor);
        let touched = timed(&platform, "touch", platform.store.touch_many(touches.try_into()?)).await?;
        Ok(touched.into())
    }

    async fn read_many(
        accessor: &Access<T>,
        users: wit::types::Ids,
    ) -> Result<wit::session_types::Records, wit::types::Error> {
        let platform = platform(accessor);
        let records = timed(&platform, "read", platform.store.read_many(users.try_into()?)).await?;
        Ok(records.into())
    }

    async fn load_many(
        accessor: &Access<T>,
        users: Vec<String>,
    ) -> Result<wit::session_types::Loaded, wit::types::Error> {
        let platform = platform(accessor);
        let loaded = timed(&platform, "load", platform.store.load_many(parsed(users)?)).await?;
        Ok(loaded.into())
    }

    async fn commit_many(
        accessor: &Access<T>,
        commits: Vec<wit::session_types::Commit>,
    ) -> Result<Vec<Result<wit::session_types::Committed, wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        let commits: Vec<Commit> = all(commits)?;
        let published: Vec<_> = commits.iter().map(|c| c.decision.publish.as_ref().map(|p| p.state)).collect();
        let outcomes = timed(&platform, "commit", platform.store.commit_many(commits)).await?;
        platform.metrics.committed(&published, &outcomes);
        Ok(replies(outcomes))
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
        evictions: Vec<wit::session_types::Eviction>,
    ) -> Result<Vec<Result<wit::session_types::Committed, wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        let outcomes = timed(&platform, "evict", platform.store.evict_many(all(evictions)?)).await?;
        Ok(replies(outcomes))
    }
}

impl<T> wit::archive::HostWithStore<T> for Capabilities {
    async fn put_many(accessor: &Access<T>, entries: Vec<wit::types::LastSeenEntry>) -> Result<(), wit::types::Error> {
        let platform = platform(accessor);
        timed(&platform, "archive_put", platform.archive.put_many(all(entries)?)).await
    }

    async fn get_many(accessor: &Access<T>, users: wit::types::Ids) -> Result<Vec<Option<u64>>, wit::types::Error> {
        let platform = platform(accessor);
        let times = timed(&platform, "archive_get", platform.archive.get_many(users.try_into()?)).await?;
        Ok(times.into_iter().map(|time| time.map(|time| time.0)).collect())
    }
}

impl<T> wit::restriction_check::HostWithStore<T> for Capabilities {
    async fn check(
        accessor: &Access<T>,
        viewer: Option<String>,
        subjects: wit::types::Ids,
    ) -> Result<Vec<wit::policy_types::Verdict>, wit::types::Error> {
        let platform = platform(accessor);
        let viewer = viewer.map(UserId::parse).transpose()?;
        let subjects: Ids<UserId> = subjects.try_into()?;
        platform.metrics.policy.checked(subjects.len());
        Ok(each(platform.checker.check(viewer, subjects).await?))
    }
}
