//! Background jobs: one that panics is restarted and counted, and every job of a host runs under the supervisor.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rollcall_api::call::Beat;
use rollcall_core::{DeviceId, DeviceKind, Error, Ids, Rules, Time, UserId};
use rollcall_functions::capabilities::{Commit, Eviction, Loaded, Records, Shards, Touched, Touches};
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{Clock, Memory, Outcomes, SessionStore, SqliteArchive, StoreFuture};
use rollcall_tests::{Host, component, functions};

/// A store that panics on the next touch if it was told to.
struct PanicsOnce {
    memory: Memory,
    panics: AtomicBool,
}

impl SessionStore for PanicsOnce {
    fn touch_many(&self, touches: Touches) -> StoreFuture<'_, Touched> {
        Box::pin(async move {
            assert!(!self.panics.swap(false, Ordering::Relaxed), "the store panics");
            self.memory.touch_many(touches).await
        })
    }
    fn read_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Records> {
        self.memory.read_many(users)
    }
    fn load_many(&self, users: Vec<UserId>) -> StoreFuture<'_, Loaded> {
        self.memory.load_many(users)
    }
    fn commit_many(&self, commits: Vec<Commit>) -> StoreFuture<'_, Outcomes> {
        self.memory.commit_many(commits)
    }
    fn due(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        self.memory.due(shards, limit)
    }
    fn evictable(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        self.memory.evictable(shards, limit)
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> StoreFuture<'_, Outcomes> {
        self.memory.evict_many(evictions)
    }
    fn shards(&self) -> u32 {
        self.memory.shards()
    }
}

fn beat() -> Beat {
    let (user, device) = (UserId::parse("bob").unwrap(), DeviceId::parse("web").unwrap());
    Beat { user, device, kind: DeviceKind::Web, active: true }
}

#[test]
fn panic_in_a_host_call_restarts_the_instance() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let clock = Clock::manual(Time(1_700_000_000_000));
        let topics = LocalTopics::new(clock.clone());
        let memory = Memory::new(Options { clock, on_publish: Some(topics.publish_hook()), ..Options::default() });
        let store = Arc::new(PanicsOnce { memory, panics: AtomicBool::new(false) });
        let archive = Arc::new(SqliteArchive::in_memory().unwrap());
        let functions = functions(
            Arc::clone(&store) as Arc<dyn SessionStore>,
            &archive,
            Arc::new(topics),
            Rules::default(),
            component,
        );
        functions.beat(beat()).await.expect("a beat before the panic");
        store.panics.store(true, Ordering::Relaxed);
        let failed = functions.beat(beat()).await.map(drop);
        assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
        let deadline = Instant::now() + Duration::from_secs(5);
        while functions.beat(beat()).await.is_err() {
            assert!(Instant::now() < deadline, "no beat succeeds after the restart");
        }
        let metrics = functions.platform.metrics.text();
        assert!(
            metrics.contains("rollcall_job_restarts_total{background_job=\"instance-heartbeat\"} 1\n"),
            "{metrics}"
        );
        assert!(metrics.contains("rollcall_job_restarts_total{background_job=\"instance-query\"} 0\n"), "{metrics}");
    });
}

#[test]
fn every_job_of_a_host_is_supervised() {
    let host = Host::brisk(&["--workers", "1"]);
    let text = host.client("alice").get("/metrics").text;
    for job in [
        "embedded-expiry",
        "sweep",
        "archive",
        "policy-sync",
        "topic-dispatch",
        "loss-recheck",
        "recheck",
        "unpublished-recheck",
        "visibility-recheck",
        "crowd-count",
        "connection-heartbeats",
        "hub-queries",
        "instance-heartbeat",
        "instance-offline-sweep",
        "instance-query",
        "instance-restriction-check",
        "instance-subscribe",
        "instance-typing",
    ] {
        assert!(
            text.contains(&format!("rollcall_job_restarts_total{{background_job=\"{job}\"}} 0\n")),
            "{job}: {text}"
        );
    }
    host.stop();
}
