//! What a worker does although nobody calls: hands expired people to `offline-sweep`, sweeps its share of the shards on
//! a schedule, and moves cold people to the archive.
//!
//! The two ways of noticing are deliberate. The first is quick and may miss; the second is slower and misses nobody.
//! The compare-and-swap makes it harmless that both find the same person.

use std::sync::Arc;
use std::time::Duration;

use rollcall_core::Error;
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_functions::sweep::Settled;
use rollcall_store::Memory;
use tokio::time::{MissedTickBehavior, interval};

use crate::engine::Crew;

/// How often the embedded store is asked who expired. Asking costs one atomic read per shard, so this bounds the lag and
/// nothing else.
const EXPIRY_TICK: Duration = Duration::from_millis(20);

/// How often everybody who is due is swept, noticed or not: half of the second that an offline event may be late.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// One worker's rounds over its share of the shards.
pub struct Rounds {
    /// The functions to call.
    pub crew: Crew,
    /// The embedded store, whose expiries are its notifications.
    pub memory: Arc<Memory>,
    /// This worker's share.
    pub shards: Shards,
}

impl Rounds {
    /// Hands over expired people as they expire, for ever.
    pub async fn watch_expiry(&self) {
        let mut ticks = interval(EXPIRY_TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.until_done("expiry", || async {
                let expired = self.memory.expired(self.shards, MAX_BATCH as u32);
                if expired.is_empty() { Ok(Settled::default()) } else { self.crew.settle(expired).await }
            })
            .await;
        }
    }

    /// Sweeps on a schedule, for ever.
    pub async fn keep_sweeping(&self) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.until_done("sweep", || self.crew.sweep(self.shards, MAX_BATCH as u32)).await;
            self.crew.platform.metrics.occupied(self.memory.sessions(), self.memory.here());
        }
    }

    /// Archives on the same schedule, for ever. Apart from the sweep, which must never wait for a disk.
    pub async fn keep_archiving(&self) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.archive().await;
        }
    }

    /// Settles batch after batch until one is not full, or nothing comes of it.
    async fn until_done<A>(&self, cause: &'static str, settle: impl Fn() -> A)
    where
        A: Future<Output = Result<Settled, Error>>,
    {
        loop {
            match settle().await {
                Ok(settled) => {
                    self.crew.platform.metrics.settled(cause, &settled.lags);
                    let full = settled.examined as usize >= MAX_BATCH;
                    if !full || settled.published + settled.rescheduled == 0 {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(cause, "settling failed, and will be tried again: {error}");
                    return;
                }
            }
            // Other calls on this thread get their turn between two batches.
            tokio::task::yield_now().await;
        }
    }

    /// Moves everybody who is cold to the archive.
    async fn archive(&self) {
        loop {
            match self.crew.archive(self.shards, MAX_BATCH as u32).await {
                Ok(archived) => {
                    self.crew.platform.metrics.archived(archived.kept);
                    if archived.dropped < MAX_BATCH as u32 {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!("archiving failed, and will be tried again: {error}");
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
    }
}
