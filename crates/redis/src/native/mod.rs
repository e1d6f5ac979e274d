//! The native store: sessions in one Redis server or a Redis Cluster, shared by many hosts.
//!
//! `docs/KEYSPACE.md` has what is stored, and `docs/adr/0008-redis.md` why. This module adds the network. The store is
//! *up* or *down*. While down, it fails every call at once and reconnects. Before it is up again it has recorded an
//! outage grace for all devices that were alive when it last answered, so that no user goes offline because the *store*
//! could not be reached. On a Cluster each master is up or down separately.
//!
//! Deliberately absent: reads from replicas (an old revision would make every commit stale), retries of calls that may
//! have taken effect (that is the caller's decision), and a queue for outages (the next beat carries everything).

mod address;
mod batch;
mod deadline_cache;
mod down_reason;
mod expiries;
mod policy_hints;
mod replica_ack;
mod sampled_time;
mod server;
mod stats;
mod supervisor;
mod topics;
mod topology;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{Error, Ids, Moment, OutageGrace, Rules, Span, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, ChangesSince, Commit, Cursor, Eviction, LastSeenEntry, Loaded, OwnSettings, Policy, PolicyPage, Records,
    Sessions, Shards, Touched, Touches,
};
use rollcall_store::{ArchiveStore, Clock, Outcomes, PolicyStore, SessionStore, StoreFuture};
use thiserror::Error as ThisError;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::capabilities::RedisStore;
use crate::keyspace::{BadPrefix, DEFAULT_SHARDS, Keyspace, Publishing};
use crate::transport::{Batch, Now, Replies, Transport};

use address::{Address, Kind};
use deadline_cache::DeadlineCache;
use policy_hints::PolicyHints;
use replica_ack::ReplicaAcks;
use sampled_time::SampledTime;
use server::Shared;
use supervisor::SupervisorState;
use topics::TopicTasks;
use topology::Servers;

pub use address::BadAddress;
pub use expiries::{Expiries, NotificationState};
pub use stats::{Count, Stats};

/// Options of the store.
#[derive(Debug, Clone)]
pub struct Options {
    /// What all keys begin with. Default: `rc`.
    pub prefix: String,
    /// How many shards there are; at least one. Must not change while there are data. Default: 256.
    pub shards: u32,
    /// How long devices have to beat again after the store was unreachable: one full `d + ε`. Default: 45 s.
    pub outage_grace: Span,
    /// How long a session is kept after it went offline: the rules' `evict_after`, the same on every host. The longer,
    /// the more beats skip their `ZADD`: see `docs/adr/0011-deadline-cache.md`. Default: 1 min.
    pub evict_after: Span,
    /// How many policy changes each log keeps; at least one. A reader that falls behind by more reads a new snapshot.
    /// The same on every host. Default: 50,000.
    pub policy_log: u32,
    /// How long connecting may take. Default: 1 s.
    pub connect_timeout: Duration,
    /// How long a reply may take before the server counts as down. Default: 1.5 s.
    pub response_timeout: Duration,
    /// A certificate authority in PEM to trust instead of the system's, for `rediss`. Default: none.
    pub ca: Option<Vec<u8>>,
    /// A clock to use instead of Redis's, for tests. Default: none.
    pub clock: Option<Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "rc".to_owned(),
            shards: DEFAULT_SHARDS,
            outage_grace: Span::seconds(45),
            evict_after: Rules::STANDARD.evict_after,
            policy_log: 50_000,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(1500),
            ca: None,
            clock: None,
        }
    }
}

/// Why the store could not be opened.
#[derive(Debug, ThisError)]
pub enum OpenError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The prefix is invalid.
    #[error(transparent)]
    Prefix(#[from] BadPrefix),
    /// The server, or one of them, cannot be used.
    #[error("cannot use Redis at {server}: {reason}")]
    Unusable {
        /// Which server.
        server: String,
        /// What is wrong, and what to do about it.
        reason: String,
    },
}

/// Whether the store answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Every server answers.
    Up,
    /// Some masters of a Cluster do not answer: calls for their users fail, others succeed.
    Partly {
        /// What is wrong with the first of them.
        reason: String,
    },
    /// No server answers.
    Down {
        /// What is wrong.
        reason: String,
    },
}

/// The store in Redis. Dropping it closes its connections.
pub struct NativeRedis {
    native: Arc<NativeTransport>,
    store: Arc<RedisStore<Arc<NativeTransport>>>,
    topic_tasks: TopicTasks,
    policy_hints: PolicyHints,
    _supervisor: Task,
}

/// A task that ends with this value.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The native transport: connections to all servers, and what the background tasks learned about them.
struct NativeTransport {
    keys: Keyspace,
    servers: Servers,
    shared: Arc<Shared>,
    /// How long an outage grace lasts.
    grace_span: Span,
    /// The outage grace as it was last read or recorded.
    outage_grace: Mutex<Option<OutageGrace>>,
    supervised: tokio::sync::Mutex<SupervisorState>,
    replica_acks: ReplicaAcks,
    /// The last problem that was logged, so that not every call repeats it.
    warned: Mutex<String>,
}

impl fmt::Debug for NativeRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeRedis").field("servers", &self.native.servers).finish_non_exhaustive()
    }
}

/// Checks the URL of a Redis without connecting.
pub fn check_url(url: &str) -> Result<(), BadAddress> {
    Address::parse(url, None).map(drop)
}

impl NativeRedis {
    /// Connects. The background tasks run on the runtime that this is called on.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        let address = Address::parse(url, options.ca.as_deref())?;
        let keys = Keyspace::new(&options.prefix, options.shards)?;
        let shared = Arc::new(Shared {
            time: SampledTime::new(options.clock),
            stats: Stats::default(),
            deadlines: DeadlineCache::new(options.evict_after, options.response_timeout),
            wake: Notify::new(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
        });
        let native = Arc::new(NativeTransport {
            servers: Servers::new(address, Arc::clone(&shared), &keys),
            keys,
            shared,
            grace_span: options.outage_grace,
            outage_grace: Mutex::new(None),
            supervised: tokio::sync::Mutex::default(),
            replica_acks: ReplicaAcks::default(),
            warned: Mutex::default(),
        });
        native.begin().await?;
        let supervisor = Task(tokio::spawn(Arc::clone(&native).supervise()));
        let store = Arc::new(RedisStore::new(Arc::clone(&native), options.policy_log));
        Ok(Self {
            native,
            store,
            topic_tasks: TopicTasks::new(),
            policy_hints: PolicyHints::new(),
            _supervisor: supervisor,
        })
    }

    /// The store's time.
    pub fn now(&self) -> Time {
        self.native.shared.time.now()
    }

    /// Whether the store answers.
    pub fn health(&self) -> Health {
        self.native.health()
    }

    /// The outage grace in force.
    pub fn outage_grace(&self) -> Option<OutageGrace> {
        self.native.moment().outage_grace
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.native.shared.stats
    }

    /// Subscribes to expiry notifications: see [`Expiries`].
    pub fn expiries(&self) -> Expiries {
        Expiries::begin(Arc::clone(&self.native))
    }

    /// As [`SessionStore::due`], but only users whose instant passed at least `at_least` ago and who should have been settled by
    /// now.
    pub async fn due_for(&self, shards: Shards, limit: u32, at_least: Span) -> Result<Vec<UserId>, Error> {
        self.store.due_for(shards, limit, at_least).await
    }

    /// Makes Redis expire these users' `alive` keys at once if they are past their time.
    pub async fn trigger_expiry(&self, users: &[UserId]) -> Result<(), Error> {
        self.store.trigger_expiry(users).await
    }

    /// How many users have a deadline: see [`RedisStore::online_count`].
    pub async fn online_count(&self) -> Result<u64, Error> {
        self.store.online_count().await
    }

    /// Writes this host into the membership list and returns the names of all hosts on it, in order.
    pub async fn renew_membership(&self, host: &str) -> Result<Vec<String>, Error> {
        self.store.renew_membership(host).await
    }

    /// Removes this host from the membership list.
    pub async fn leave_membership(&self, host: &str) -> Result<(), Error> {
        self.store.leave_membership(host).await
    }
}

impl NativeTransport {
    fn health(&self) -> Health {
        let topology = self.servers.topology();
        let down: Vec<String> = topology
            .servers
            .iter()
            .filter_map(|server| Some(format!("{}: {}", server.endpoint, server.down()?.reason)))
            .collect();
        match down.into_iter().next() {
            None if topology.servers.is_empty() => Health::Down { reason: "no master is known".to_owned() },
            None => Health::Up,
            Some(reason) if topology.servers.iter().all(|server| server.down().is_some()) => Health::Down { reason },
            Some(reason) => Health::Partly { reason },
        }
    }

    fn moment(&self) -> Moment {
        self.moment_at(self.shared.time.now())
    }

    fn moment_at(&self, now: Time) -> Moment {
        Moment { now, outage_grace: self.outage_grace.lock().filter(|outage_grace| now < outage_grace.until) }
    }

    /// Logs a problem, once until a different one occurs.
    fn warn(&self, problem: &str) {
        let mut last = self.warned.lock();
        if *last != problem {
            problem.clone_into(&mut last);
            drop(last);
            tracing::error!(problem, "Redis sent an error or an unexpected reply");
        }
    }
}

impl Transport for Arc<NativeTransport> {
    type Reply = Value;

    fn keys(&self) -> &Keyspace {
        &self.keys
    }

    fn publishing(&self) -> Publishing {
        match self.servers.kind() {
            Kind::Single => Publishing::Plain,
            Kind::Cluster => Publishing::Sharded,
        }
    }

    async fn now(&self) -> Result<Now, Error> {
        Ok(Now { us: self.shared.time.now_us(), ticks_us: 0 })
    }

    fn begin_read(&self, batch: &mut Batch<'_>) {
        batch.wants_moment = true;
    }

    async fn run(&self, batch: Batch<'_>) -> Replies<Value> {
        self.send(batch).await
    }

    fn moment_at(&self, now: Time) -> Moment {
        NativeTransport::moment_at(self, now)
    }

    fn random(&self) -> u64 {
        random()
    }

    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn warn(&self, problem: &str) {
        NativeTransport::warn(self, problem);
    }

    fn knows_deadline(&self, user: &str, now: Time) -> bool {
        self.shared.deadlines.holds(user, now)
    }

    fn note_deadline(&self, user: &str, begun: Time) {
        self.shared.deadlines.note(user, begun);
    }

    fn forget_deadlines(&self) {
        self.shared.deadlines.forget(self.shared.time.now());
    }
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl SessionStore for NativeRedis {
    fn touch_many(&self, touches: Touches) -> StoreFuture<'_, Touched> {
        Box::pin(self.store.touch_many(touches))
    }
    fn read_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Records> {
        Box::pin(self.store.read_many(users))
    }
    fn load_many(&self, users: Vec<UserId>) -> StoreFuture<'_, Loaded> {
        Box::pin(self.store.load_many(users))
    }
    fn commit_many(&self, commits: Vec<Commit>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.store.commit_many(commits))
    }
    fn due(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(self.store.due(shards, limit))
    }
    fn evictable(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(self.store.evictable(shards, limit))
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> StoreFuture<'_, Outcomes> {
        Box::pin(self.store.evict_many(evictions))
    }
    fn shards(&self) -> u32 {
        self.native.keys.shards()
    }
}

impl ArchiveStore for NativeRedis {
    fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> StoreFuture<'_, ()> {
        Box::pin(self.store.put_many(last_seen_entries))
    }
    fn get_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Vec<Option<Time>>> {
        Box::pin(self.store.get_many(users))
    }
}

impl PolicyStore for NativeRedis {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        Box::pin(self.store.relations(viewer, subjects))
    }
    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        Box::pin(self.store.settings_of(user))
    }
    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        Box::pin(self.store.snapshot(page))
    }
    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        Box::pin(self.store.since(cursor, limit))
    }
    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(async move {
            let outcomes = self.store.apply_many(changes).await?;
            self.policy_hints.notify();
            Ok(outcomes)
        })
    }
    fn invalidated(&self) -> watch::Receiver<u64> {
        self.policy_hints.subscribe(&self.native)
    }
}
