//! Settles overdue users in other hosts' shards, so that the users of a host that was killed do not wait until it is
//! missed from the membership.
//!
//! The round follows from the store's time, which all hosts share, so the hosts take turns without asking each other.
//! However many hosts there are, each host's shards are checked by one other host per round; if that one is dead too, the
//! next round has another.

use std::time::Duration;

use rollcall_core::Span;
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_redis::native::NativeRedis;
use rollcall_store::SessionStore;

use super::offline_sweep::{Cause, OfflineSweep};
use super::shards::per_call;
use super::sweep::RedisShards;
use super::{Exit, HostShards};

/// The length of a round.
const ROUND: Duration = Duration::from_millis(300);

/// A user who is overdue by this long was not settled by their own host. With the time until the next round, still well
/// below a second.
const LATE: Span = Span(250);

pub(super) async fn run(calls: OfflineSweep, own: RedisShards) -> Exit {
    let store = &*own.store;
    let round_ms = ROUND.as_millis() as u64;
    loop {
        let round = store.now().0 / round_ms;
        let host = *own.host_shards.borrow();
        let checked: Vec<Shards> = match host.peer_in_round(round) {
            Some(peer) => per_call(own.worker.of(HostShards::new(peer, host.hosts, store.shards()).shards)).collect(),
            None => Vec::new(),
        };
        let count = checked.len() as u64;
        for (index, shards) in (0..).zip(checked) {
            sleep_until(store, round * round_ms + round_ms * index / count.max(1)).await;
            if let Ok(late) = store.due_for(shards, MAX_BATCH as u32, LATE).await
                && !late.is_empty()
            {
                calls.settle(Cause::Sweep, late).await;
            }
        }
        sleep_until(store, (round + 1) * round_ms).await;
    }
}

/// Sleeps until an instant of the store's clock, but never longer than a round: the clock may be stepped meanwhile.
async fn sleep_until(store: &NativeRedis, at_ms: u64) {
    let left = Duration::from_millis(at_ms.saturating_sub(store.now().0));
    tokio::time::sleep(left.min(ROUND)).await;
}
