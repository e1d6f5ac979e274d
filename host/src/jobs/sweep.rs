//! Settles every due user of a worker's shards on a schedule. This is the guarantee that no expiry is missed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rollcall_core::UserId;
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_redis::native::NativeRedis;
use rollcall_store::{Memory, SessionStore};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::offline_sweep::{Cause, OfflineSweep};
use super::shards::per_call;
use super::{Exit, HostShards, Partition};
use crate::config::ExpiryDetection;

/// How often the embedded store is swept: half of the second that an offline event may be late.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// The pause before the next sweep of Redis after a user was due.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two sweeps of Redis. Together with the time of a pass it stays well below the second that an
/// offline event may be late.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A worker's part of the host's shards in Redis.
#[derive(Clone)]
pub(super) struct RedisShards {
    pub(super) store: Arc<NativeRedis>,
    pub(super) host_shards: watch::Receiver<HostShards>,
    pub(super) worker: Partition,
}

impl RedisShards {
    /// The worker's shards at present.
    pub(super) fn current(&self) -> Shards {
        self.worker.of(self.host_shards.borrow().shards)
    }
}

/// Sweeps the embedded store.
pub(super) async fn embedded(calls: OfflineSweep, memory: Arc<Memory>, shards: Shards) -> Exit {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        calls.sweep(shards).await;
        calls.functions.platform.metrics.set_embedded_counts(memory.sessions(), memory.online_count());
    }
}

/// Sweeps Redis. The pause doubles while no user is due.
pub(super) async fn redis(calls: OfflineSweep, own: RedisShards, expiry_detection: ExpiryDetection) -> Exit {
    let mut pause = SHORTEST_PAUSE;
    let mut triggered = HashSet::new();
    // This may be the first host after all were killed: the first pass covers every shard.
    let mut everything = Some(own.worker.of(Shards { first: 0, end: own.store.shards() }));
    loop {
        tokio::time::sleep(pause).await;
        let shards = everything.take().unwrap_or_else(|| own.current());
        let triggered_before = std::mem::take(&mut triggered);
        let mut due = 0;
        for shards in per_call(shards) {
            due += match expiry_detection {
                ExpiryDetection::Both => {
                    trigger_expiry_or_settle(&calls, &own.store, shards, &triggered_before, &mut triggered).await
                }
                ExpiryDetection::Sweep | ExpiryDetection::Notifications => calls.sweep(shards).await,
            };
        }
        pause = if due > 0 { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
    }
}

/// Reads the `alive` keys of due users, which makes Redis expire them and notify at once; on its own it may take far too
/// long when it holds many keys. A user who is still due one pass later was not notified, and is settled here. Returns how
/// many were due.
async fn trigger_expiry_or_settle(
    calls: &OfflineSweep,
    store: &NativeRedis,
    shards: Shards,
    triggered_before: &HashSet<UserId>,
    triggered: &mut HashSet<UserId>,
) -> u32 {
    let Ok(due) = store.due(shards, MAX_BATCH as u32).await else { return 0 };
    let count = due.len() as u32;
    let (still_due, new): (Vec<UserId>, Vec<UserId>) =
        due.into_iter().partition(|user| triggered_before.contains(user));
    if !new.is_empty() && store.trigger_expiry(&new).await.is_ok() {
        triggered.extend(new);
    }
    if !still_due.is_empty() {
        calls.settle(Cause::Sweep, still_due).await;
    }
    count
}
