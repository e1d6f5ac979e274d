//! Everything the host does without a request. One file per job; [`Supervisor`] runs them by name and restarts one that
//! panics or ends.
//!
//! | job | runs | does |
//! |---|---|---|
//! | `embedded-expiry` | per worker, embedded store | settles users whose deadline has passed, within milliseconds |
//! | `expiry-notifications` | once, Redis | hands Redis's expiry notifications to the workers |
//! | `notified-expiry` | per worker, Redis | settles users Redis notified about |
//! | `sweep` | per worker | settles every due user of the worker's shards on a schedule |
//! | `peer-sweep` | per worker, Redis | settles overdue users in other hosts' shards |
//! | `archive` | per worker | archives last seen and evicts sessions |
//! | `membership` | once, Redis | registers this host and computes which shards it sweeps |
//! | `policy-sync` | per `restriction-check` instance | keeps the policy cache up to date |
//! | `topic-dispatch` | per worker | passes topic messages to the hub |
//! | `loss-recheck`, `recheck`, `unpublished-recheck` | per worker | read watched users again |
//! | `visibility-recheck` | per worker | checks visibility again after an invalidation |
//! | `crowd-count` | per worker | counts the watchers of crowds on all hosts |
//! | `connection-heartbeats` | per worker | sends the beats of open connections |
//! | `hub-queries` | per worker | answers `/v1/stats` about watchers |
//! | `instance-NAME` | per worker and function | keeps the function's instance warm: `runtime/instance_queue.rs` |
//!
//! Expiry is noticed in two ways on purpose. The timer or notification is fast and may miss a user; the sweep is slower
//! and misses none. The compare-and-swap makes it harmless that both find the same user.

mod archive;
mod connection_heartbeats;
mod crowd_count;
mod embedded_expiry;
pub(crate) mod expiry_notifications;
mod hub_queries;
pub(crate) mod membership;
mod offline_sweep;
mod peer_sweep;
pub(crate) mod policy_sync;
mod recheck;
mod shards;
mod supervisor;
mod sweep;
mod topic_dispatch;
mod visibility_recheck;

use std::rc::Rc;
use std::sync::Arc;

use rollcall_core::UserId;
use rollcall_functions::capabilities::Shards;
use rollcall_redis::native::NativeRedis;
use rollcall_store::Memory;
use tokio::sync::{Mutex, mpsc, watch};

use crate::config::ExpiryDetection;
use crate::hub::{Hub, HubQuery};
use crate::runtime::Functions;
use offline_sweep::OfflineSweep;
use policy_sync::Invalidated;

pub(crate) use shards::{HostShards, Partition};
pub(crate) use supervisor::{Exit, Supervisor};

/// One worker's jobs over the sessions.
pub(crate) enum SessionJobs {
    /// The sessions are in this process.
    Embedded {
        memory: Arc<Memory>,
        /// The worker's shards.
        shards: Shards,
    },
    /// The sessions are in a Redis that other hosts share.
    Redis(RedisJobs),
}

/// What a worker's jobs over sessions in Redis need.
pub(crate) struct RedisJobs {
    pub(crate) store: Arc<NativeRedis>,
    /// The host's shards, which change with the membership.
    pub(crate) host_shards: watch::Receiver<HostShards>,
    /// Which of this host's workers.
    pub(crate) worker: Partition,
    pub(crate) expiry_detection: ExpiryDetection,
    /// Users of this worker's shards that Redis notified about.
    pub(crate) notified: mpsc::Receiver<UserId>,
}

impl SessionJobs {
    /// Starts them on the current thread's local task set.
    pub(crate) fn start(self, supervisor: &Supervisor, functions: &Functions) {
        let calls = OfflineSweep { functions: functions.clone() };
        match self {
            Self::Embedded { memory, shards } => {
                let (sweep, archive) = (calls.clone(), calls.clone());
                let expiring = Arc::clone(&memory);
                supervisor.spawn_local("embedded-expiry", move || {
                    embedded_expiry::run(calls.clone(), Arc::clone(&expiring), shards)
                });
                supervisor.spawn_local("sweep", move || sweep::embedded(sweep.clone(), Arc::clone(&memory), shards));
                supervisor.spawn_local("archive", move || archive::embedded(archive.clone(), shards));
            }
            Self::Redis(RedisJobs { store, host_shards, worker, expiry_detection, notified }) => {
                let own = sweep::RedisShards { store, host_shards, worker };
                let (notifying, archiving) = (calls.clone(), calls.clone());
                let notified = Rc::new(Mutex::new(notified));
                supervisor.spawn_local("notified-expiry", move || {
                    expiry_notifications::settle(notifying.clone(), Rc::clone(&notified))
                });
                if expiry_detection != ExpiryDetection::Notifications {
                    let (sweeping, swept) = (calls.clone(), own.clone());
                    supervisor
                        .spawn_local("sweep", move || sweep::redis(sweeping.clone(), swept.clone(), expiry_detection));
                    let shards = own.clone();
                    supervisor.spawn_local("peer-sweep", move || peer_sweep::run(calls.clone(), shards.clone()));
                }
                supervisor.spawn_local("archive", move || archive::redis(archiving.clone(), own.clone()));
            }
        }
    }
}

/// Starts one worker's jobs over its watchers, on the current thread's local task set.
pub(crate) fn start_hub_jobs(
    supervisor: &Supervisor,
    hub: &Rc<Hub>,
    invalidated: mpsc::UnboundedReceiver<Invalidated>,
    queries: mpsc::UnboundedReceiver<HubQuery>,
) {
    let spawn = |job, run: fn(Rc<Hub>) -> HubJob| {
        let hub = Rc::clone(hub);
        supervisor.spawn_local(job, move || run(Rc::clone(&hub)));
    };
    spawn("topic-dispatch", |hub| Box::pin(topic_dispatch::run(hub)));
    spawn("loss-recheck", |hub| Box::pin(recheck::after_loss(hub)));
    spawn("recheck", |hub| Box::pin(recheck::periodic(hub)));
    spawn("unpublished-recheck", |hub| Box::pin(recheck::unpublished(hub)));
    spawn("crowd-count", |hub| Box::pin(crowd_count::run(hub)));
    spawn("connection-heartbeats", |hub| Box::pin(connection_heartbeats::run(hub)));
    let (invalidated, queries) = (Rc::new(Mutex::new(invalidated)), Rc::new(Mutex::new(queries)));
    let (rechecking, answering) = (Rc::clone(hub), Rc::clone(hub));
    supervisor.spawn_local("visibility-recheck", move || {
        visibility_recheck::run(Rc::clone(&rechecking), Rc::clone(&invalidated))
    });
    supervisor.spawn_local("hub-queries", move || hub_queries::run(Rc::clone(&answering), Rc::clone(&queries)));
}

/// One run of a job over a hub.
type HubJob = std::pin::Pin<Box<dyn Future<Output = Exit>>>;
