//! The rounds over the embedded store, whose timer is its expiry notification.

use std::sync::Arc;
use std::time::Duration;

use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_store::Memory;
use tokio::time::{MissedTickBehavior, interval};

use super::{Cause, Settler, is_done};

/// How often the store is asked who expired. Asking costs one atomic read per shard, so this bounds the lag and nothing
/// else.
const EXPIRY_TICK: Duration = Duration::from_millis(20);

/// How often everybody who is due is swept, noticed or not: half of the second that an offline event may be late.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// One worker's rounds over its share of the shards.
pub(crate) struct Rounds {
    pub(super) settler: Settler,
    pub(super) memory: Arc<Memory>,
    pub(super) shards: Shards,
}

impl Rounds {
    /// Archiving is apart from the sweep, which must never wait for a disk.
    pub(super) async fn go(self) {
        tokio::join!(self.watch_expiry(), self.keep_sweeping(), self.keep_archiving());
    }

    /// Hands over expired people as they expire, for ever.
    async fn watch_expiry(&self) {
        let mut ticks = interval(EXPIRY_TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            loop {
                let expired = self.memory.expired(self.shards, MAX_BATCH as u32);
                if expired.is_empty() {
                    break;
                }
                match self.settler.settle(Cause::Expiry, expired).await {
                    Some(settled) if !is_done(&settled) => tokio::task::yield_now().await,
                    Some(_) | None => break,
                }
            }
        }
    }

    async fn keep_sweeping(&self) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.settler.sweep(self.shards).await;
            self.settler.functions.platform.metrics.occupied(self.memory.sessions(), self.memory.here());
        }
    }

    async fn keep_archiving(&self) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.settler.archive(self.shards).await;
        }
    }
}
