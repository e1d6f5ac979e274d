//! One instance of `restriction-check` in this process, on any policy store.

use std::sync::Arc;

use anyhow::{Result, ensure};
use rollcall_core::Rules;
use rollcall_core::policy::PolicyChange;
use rollcall_functions::capabilities::MAX_BATCH;
use rollcall_functions::restrictions::{CacheState, Freshness};
use rollcall_host::metrics::Metrics;
use rollcall_host::runtime::{Catalog, Checker, Platform, Source, engine, tick};
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{Clock, Memory, PolicyStore, SqliteArchive};

/// Memory limit of the instance.
const MEMORY_BYTES: u64 = 1 << 30;

/// Changes per refresh, as in the host.
const LOG_READ_LIMIT: u32 = 1024;

/// A cold instance on the current thread's local task set. It was called once without memory, so that instantiation does not count
/// as loading.
pub(super) async fn cold(policies: Arc<dyn PolicyStore>) -> Result<Checker> {
    let engine = engine().map_err(anyhow::Error::msg)?;
    tick(&engine)?;
    let catalog = Catalog::load(&engine, |name| Source::File(rollcall_tests::component(name)))?;
    let clock = Clock::system();
    let topics = LocalTopics::new(clock.clone());
    let options = Options { clock, on_publish: Some(topics.publish_hook()), ..Options::default() };
    let (checker, instance) = Checker::open();
    let platform = Platform {
        store: Arc::new(Memory::new(options)),
        archive: Arc::new(SqliteArchive::in_memory()?),
        topics: Arc::new(topics),
        policies,
        checker: checker.clone(),
        policy_memory: MEMORY_BYTES,
        rules: Rules::default(),
        metrics: Arc::new(Metrics::default()),
    };
    instance.start(&engine, &catalog, &platform);
    checker.refresh(LOG_READ_LIMIT, 0).await?;
    Ok(checker)
}

/// Loads everything.
pub(super) async fn load(checker: &Checker) -> Result<Freshness> {
    loop {
        let freshness = checker.refresh(LOG_READ_LIMIT, MEMORY_BYTES).await?;
        if !freshness.more {
            ensure!(freshness.state == CacheState::Warm, "the instance is {:?}", freshness.state);
            return Ok(freshness);
        }
    }
}

/// Makes changes, in the largest batches the store accepts.
pub(super) async fn apply(
    policies: &dyn PolicyStore,
    changes: impl Iterator<Item = Result<PolicyChange>>,
) -> Result<()> {
    let mut changes = changes.peekable();
    while changes.peek().is_some() {
        let batch = changes.by_ref().take(MAX_BATCH).collect::<Result<_>>()?;
        for outcome in policies.apply_many(batch).await? {
            outcome?;
        }
    }
    Ok(())
}
