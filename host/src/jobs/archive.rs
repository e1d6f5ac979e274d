//! Writes last seen to the archive and evicts sessions that were offline for long. Separate from the sweep, which must
//! not wait for a disk.

use std::time::Duration;

use rollcall_functions::capabilities::Shards;
use tokio::time::{MissedTickBehavior, interval};

use super::Exit;
use super::offline_sweep::OfflineSweep;
use super::sweep::RedisShards;

/// How often the embedded store is looked through.
const EMBEDDED_EVERY: Duration = Duration::from_millis(500);

/// How often Redis is looked through. Nothing waits for it.
const REDIS_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn embedded(calls: OfflineSweep, shards: Shards) -> Exit {
    run(&calls, EMBEDDED_EVERY, || shards).await
}

pub(super) async fn redis(calls: OfflineSweep, own: RedisShards) -> Exit {
    run(&calls, REDIS_EVERY, || own.current()).await
}

async fn run(calls: &OfflineSweep, every: Duration, shards: impl Fn() -> Shards) -> Exit {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        calls.archive(shards()).await;
    }
}
