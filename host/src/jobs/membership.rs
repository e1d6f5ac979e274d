//! Keeps this host in the list of hosts in Redis, and computes which shards it sweeps.
//!
//! The list avoids duplicate work; correctness does not depend on it. The store also derives the age of a restored
//! Redis's data from it.

use std::sync::Arc;
use std::time::Duration;

use rollcall_redis::native::NativeRedis;
use rollcall_store::SessionStore;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{Exit, HostShards};

/// How often a host renews its entry.
const RENEW_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn run(store: Arc<NativeRedis>, name: String, host_shards: watch::Sender<HostShards>) -> Exit {
    let mut ticks = interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // While Redis is unreachable no host can sweep, so the division does not matter.
        let Ok(hosts) = store.renew_membership(&name).await else { continue };
        let index = hosts.iter().position(|host| *host == name).unwrap_or_default();
        let now = HostShards::new(index as u32, hosts.len() as u32, store.shards());
        let changed = host_shards.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            let HostShards { hosts, shards, .. } = now;
            tracing::info!(hosts, first = shards.first, end = shards.end, "Membership changed; sweeping these shards");
        }
    }
}
