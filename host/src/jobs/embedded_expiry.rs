//! Settles users of the embedded store as their deadlines pass. Its timer is the expiry notification of that store.

use std::sync::Arc;
use std::time::Duration;

use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_store::Memory;
use tokio::time::{MissedTickBehavior, interval};

use super::Exit;
use super::offline_sweep::{Cause, OfflineSweep, is_done};

/// How often the store is polled for expired users; bounds the lag. A poll is one atomic read per shard.
const EXPIRY_TICK: Duration = Duration::from_millis(20);

pub(super) async fn run(calls: OfflineSweep, memory: Arc<Memory>, shards: Shards) -> Exit {
    let mut ticks = interval(EXPIRY_TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        loop {
            let expired = memory.expired(shards, MAX_BATCH as u32);
            if expired.is_empty() {
                break;
            }
            match calls.settle(Cause::Expiry, expired).await {
                Some(settled) if !is_done(&settled) => tokio::task::yield_now().await,
                Some(_) | None => break,
            }
        }
    }
}
