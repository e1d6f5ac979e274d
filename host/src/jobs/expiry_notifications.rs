//! Redis's expiry notifications: received once per host, routed to the worker that has the user's shard, settled there.
//!
//! Notifications are a hint. One that is lost, or does not fit into a worker's queue, is left to the sweep.

use std::rc::Rc;
use std::sync::Arc;

use rollcall_core::UserId;
use rollcall_functions::capabilities::MAX_BATCH;
use rollcall_redis::native::NativeRedis;
use rollcall_store::shard_of;
use tokio::sync::{Mutex, mpsc, watch};

use super::offline_sweep::{Cause, OfflineSweep};
use super::{Exit, HostShards, Partition};

/// Notifications queued for one worker.
const MAX_QUEUED: usize = 64 * MAX_BATCH;

/// Routes notified users to the workers of this host.
#[derive(Clone)]
pub(crate) struct Router {
    host_shards: watch::Receiver<HostShards>,
    shards: u32,
    /// One queue per worker.
    queues: Arc<[mpsc::Sender<UserId>]>,
}

impl Router {
    /// A router for this many workers, and the receiving end of each worker's queue.
    pub(crate) fn new(
        host_shards: watch::Receiver<HostShards>,
        shards: u32,
        workers: u32,
    ) -> (Self, Vec<mpsc::Receiver<UserId>>) {
        let (queues, notified): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel(MAX_QUEUED)).unzip();
        (Self { host_shards, shards, queues: queues.into() }, notified)
    }

    /// Queues a user for the worker that has their shard. Users in other hosts' shards are skipped.
    fn route(&self, user: UserId) {
        let own = self.host_shards.borrow().shards;
        let shard = shard_of(user.as_str(), self.shards);
        let count = self.queues.len() as u32;
        let holds = |index: u32| {
            let part = Partition { index, count }.of(own);
            (part.first..part.end).contains(&shard)
        };
        if let Some((_, queue)) = (0..count).zip(self.queues.iter()).find(|(index, _)| holds(*index)) {
            let _ = queue.try_send(user);
        }
    }
}

/// Receives the host's notifications.
pub(crate) async fn receive(store: Arc<NativeRedis>, router: Router) -> Exit {
    let mut expiries = store.expiries();
    while let Some(users) = expiries.next().await {
        users.into_iter().for_each(|user| router.route(user));
    }
    Exit::Unexpected("the subscription to expiry notifications ended")
}

/// Settles the users a worker was notified about, in batches of whatever has arrived.
pub(super) async fn settle(calls: OfflineSweep, notified: Rc<Mutex<mpsc::Receiver<UserId>>>) -> Exit {
    let mut notified = notified.lock().await;
    let mut users = Vec::new();
    while notified.recv_many(&mut users, MAX_BATCH).await > 0 {
        calls.settle(Cause::Notification, std::mem::take(&mut users)).await;
    }
    // The host does not listen to notifications: `expiry_detection = "sweep"`.
    Exit::Closed
}
