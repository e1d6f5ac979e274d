//! Sessions in Redis, or in a Redis Cluster: many nodes of ours, one store.
//!
//! What is kept, and how, is in `crates/redis` and `docs/KEYSPACE.md`; why, in `docs/adr/0008-redis.md`. Here is
//! what a network adds. The store is *up* or *down*. Down, it refuses every call at once and tries to come back; before
//! it is up again it has recorded an outage grace for everybody who was alive when it was last known to answer, so that nobody
//! is declared offline because *we* could not be reached. On a Cluster each master is up or down by itself.
//!
//! Deliberately absent: reads from replicas (a stale revision would make every commit stale), retries of what may have
//! taken effect (the caller knows better), and a queue for the time of an outage (the next beat says all that there is
//! to say).

mod address;
mod agenda;
mod batch;
mod dues;
mod expiries;
mod fleet;
mod here;
mod link;
mod policy;
mod roll;
mod seen;
mod stats;
mod tending;
mod time;
mod topics;
mod touch;
mod trouble;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::keyspace::{
    Agenda, BadPrefix, DEFAULT_SHARDS, Garbled, Keyspace, Publishing, Stamped, decode_outcome, decode_session,
};
use parking_lot::Mutex;
use redis::Value;
use rollcall_core::{Error, Moment, OutageGrace, Rules, Span, Time, UserId};
use rollcall_functions::capabilities::{Commit, Eviction, Loaded, MAX_BATCH, Shards, Touched, Touches};
use thiserror::Error as ThisError;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use rollcall_store::Clock;
use rollcall_store::{Answer, Outcomes, Store};

use address::{Address, Kind};
use batch::{Batch, piece, pieces};
use dues::Dues;
use fleet::Fleet;
use link::Surroundings;
use policy::{Stirring, Witnesses};
use tending::Tended;
use time::RedisTime;
use topics::Switchboard;

pub use address::BadAddress;
pub use expiries::{Expiries, Listening};
pub use stats::{Count, Stats};

/// How the store is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// What all keys begin with. Default: `rc`.
    pub prefix: String,
    /// How many shards there are; at least one. Never change it under data. Default: 256.
    pub shards: u32,
    /// How long people have to beat again after the store was away: one full `d + ε`. Default: 45 s.
    pub outage_grace: Span,
    /// How long a session is kept after it went offline: the rules' `evict_after`, on every host the same. The longer,
    /// the more beats need not say when they end: see `docs/adr/0011-a-deadline-known-to-stand.md`. Default: 1 min.
    pub evict_after: Span,
    /// How many changes of who may see whom each of the logs keeps, at least one: whoever follows them and falls behind by
    /// more reads everything anew. On every host the same. Default: 50,000.
    pub policy_log: u32,
    /// How long a connection may take to be made. Default: 1 s.
    pub connect_timeout: Duration,
    /// How long an answer may take before the server counts as away. Default: 1.5 s.
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
    /// The address is none.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The prefix is none.
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
    /// Some masters of a Cluster do not: the people there cannot be reached, the others can.
    Partly {
        /// What is wrong with the first of them.
        reason: String,
    },
    /// Nobody can be reached.
    Down {
        /// What is wrong.
        reason: String,
    },
}

/// The store in Redis. Dropping it closes its connections.
pub struct Redis {
    inner: Arc<Inner>,
    switchboard: Switchboard,
    stirring: Stirring,
    _tending: Task,
}

/// A task that ends with this value.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Inner {
    keys: Keyspace,
    fleet: Fleet,
    around: Arc<Surroundings>,
    /// How long an outage grace lasts.
    grace_span: Span,
    /// The next touch's stamp: a count that begins at a random place, so that no two processes ever use the same.
    stamp: AtomicU64,
    /// The outage grace as it was last read or recorded.
    outage_grace: Mutex<Option<OutageGrace>>,
    tended: tokio::sync::Mutex<Tended>,
    /// How many changes each log of policy keeps.
    policy_log: u32,
    /// What readers of policy seed their hashes with.
    salt: u64,
    witnesses: Witnesses,
    /// What was complained about last, lest every call repeat it.
    complaint: Mutex<String>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("fleet", &self.inner.fleet).finish_non_exhaustive()
    }
}

/// Whether this is the address of a Redis, before anybody connects.
pub fn check_url(url: &str) -> Result<(), BadAddress> {
    Address::parse(url, None).map(drop)
}

impl Redis {
    /// Connects. The tasks that keep the connections alive run on the runtime that this is called on.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        let address = Address::parse(url, options.ca.as_deref())?;
        let keys = Keyspace::new(&options.prefix, options.shards)?;
        let around = Arc::new(Surroundings {
            time: RedisTime::new(options.clock),
            stats: Stats::default(),
            dues: Dues::new(options.evict_after, options.response_timeout),
            wake: Notify::new(),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
        });
        let inner = Arc::new(Inner {
            fleet: Fleet::new(address, Arc::clone(&around), &keys),
            keys,
            around,
            grace_span: options.outage_grace,
            stamp: AtomicU64::new(RandomState::new().build_hasher().finish()),
            outage_grace: Mutex::new(None),
            tended: tokio::sync::Mutex::default(),
            policy_log: options.policy_log.max(1),
            salt: RandomState::new().build_hasher().finish(),
            witnesses: Witnesses::default(),
            complaint: Mutex::default(),
        });
        inner.begin().await?;
        let tending = Task(tokio::spawn(Arc::clone(&inner).tend()));
        Ok(Self { inner, switchboard: Switchboard::new(), stirring: Stirring::new(), _tending: tending })
    }

    /// The store's time.
    pub fn now(&self) -> Time {
        self.inner.around.time.now()
    }

    /// Whether the store answers.
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// The outage grace in force.
    pub fn outage_grace(&self) -> Option<OutageGrace> {
        self.inner.moment().outage_grace
    }

    /// What was counted so far.
    pub fn stats(&self) -> &Stats {
        &self.inner.around.stats
    }

    /// Begins to listen for expiries: see [`Expiries`].
    pub fn expiries(&self) -> Expiries {
        Expiries::begin(Arc::clone(&self.inner))
    }

    /// As [`Store::due`], but only those whose time came at least so long ago: whom somebody should have settled by now.
    pub async fn late(&self, shards: Shards, limit: u32, by: Span) -> Result<Vec<UserId>, Error> {
        self.inner.overdue(Agenda::Settle, shards, limit, by).await
    }

    /// Makes Redis look at these people's deadlines: whose has passed, their expiry is notified on the spot, to
    /// everybody who listens. Left to itself Redis may take minutes.
    pub async fn nudge(&self, users: &[UserId]) -> Result<(), Error> {
        let inner = &self.inner;
        let mut batch = Batch::with_capacity(users.len(), users.len());
        for user in users.iter().map(UserId::as_str) {
            batch.add(user, inner.keys.shard_of(user), |to| inner.keys.nudge(to, user));
        }
        let replies = inner.run(&batch).await;
        replies.items().try_for_each(|item| item.map(|_| ()))
    }
}

impl Inner {
    fn health(&self) -> Health {
        let topology = self.fleet.topology();
        let down: Vec<String> = topology
            .links
            .iter()
            .filter_map(|link| Some(format!("{}: {}", link.endpoint, link.down()?.trouble)))
            .collect();
        match down.into_iter().next() {
            None if topology.links.is_empty() => Health::Down { reason: "no master is known".to_owned() },
            None => Health::Up,
            Some(reason) if topology.links.iter().all(|link| link.down().is_some()) => Health::Down { reason },
            Some(reason) => Health::Partly { reason },
        }
    }

    fn moment(&self) -> Moment {
        self.moment_at(self.around.time.now())
    }

    fn moment_at(&self, now: Time) -> Moment {
        Moment { now, outage_grace: self.outage_grace.lock().filter(|outage_grace| now < outage_grace.until) }
    }

    fn stamped(&self, now_us: u64) -> Stamped {
        // Sixty-three bits, and never 0, which is the revision of nobody.
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed) & (u64::MAX >> 1);
        Stamped { now_us, stamp: stamp.max(1) }
    }

    fn publishing(&self) -> Publishing {
        match self.fleet.kind() {
            Kind::Single => Publishing::Plain,
            Kind::Cluster => Publishing::Sharded,
        }
    }

    /// Logs something that is wrong, once until something else is.
    fn complain(&self, complaint: &str) {
        let mut last = self.complaint.lock();
        if *last != complaint {
            complaint.clone_into(&mut last);
            drop(last);
            tracing::error!("{complaint}");
        }
    }

    fn garbled(&self, garbled: &Garbled) -> Error {
        self.complain(&garbled.to_string());
        Error::Other(garbled.to_string())
    }

    async fn load(&self, users: &[UserId]) -> Result<Loaded, Error> {
        bounded(users)?;
        // The time is taken first, so that nobody is judged by a time at which their newest beat was not yet read; the outage grace
        // last, because a server that was away may have come back in between, and then it had been recorded before.
        let now = self.around.time.now();
        let mut batch = Batch::with_capacity(users.len(), users.len() * Keyspace::LOAD_COMMANDS);
        for user in users.iter().map(UserId::as_str) {
            batch.add("", self.keys.shard_of(user), |to| self.keys.load(to, user));
        }
        let replies = self.run(&batch).await;
        let session = |values: &[Value]| match values {
            [hash, due, cold] => decode_session(pieces(hash), piece(due), piece(cold)),
            _ => Err(Garbled("a reply")),
        };
        let sessions = replies.items().map(|item| session(item?).map_err(|error| self.garbled(&error))).collect();
        Ok(Loaded { moment: self.moment_at(now), sessions })
    }

    async fn commit(&self, commits: &[Commit]) -> Result<Outcomes, Error> {
        bounded(commits)?;
        let now_us = self.around.time.now_us();
        let mut batch = Batch::with_capacity(commits.len(), commits.len());
        for commit in commits {
            let (user, at) = (commit.user.as_str(), self.stamped(now_us));
            batch.add(user, self.keys.shard_of(user), |to| self.keys.commit(to, commit, at, self.publishing()));
        }
        Ok(self.outcomes(&batch).await)
    }

    async fn evict(&self, evictions: &[Eviction]) -> Result<Outcomes, Error> {
        bounded(evictions)?;
        let now_us = self.around.time.now_us();
        let mut batch = Batch::with_capacity(evictions.len(), evictions.len());
        for eviction in evictions {
            let user = eviction.user.as_str();
            batch.add(user, self.keys.shard_of(user), |to| self.keys.evict(to, eviction, now_us));
        }
        Ok(self.outcomes(&batch).await)
    }

    async fn outcomes(&self, batch: &Batch<'_>) -> Outcomes {
        let replies = self.run(batch).await;
        let outcome = |values: &[Value]| values.first().map_or(Err(Garbled("a reply")), |v| decode_outcome(piece(v)));
        replies.items().map(|item| outcome(item?).map_err(|error| self.garbled(&error))).collect()
    }
}

impl Store for Redis {
    fn touch_many(&self, touches: Touches) -> Answer<'_, Touched> {
        Box::pin(async move { self.inner.touch(&touches).await })
    }
    fn load_many(&self, users: Vec<UserId>) -> Answer<'_, Loaded> {
        Box::pin(async move { self.inner.load(&users).await })
    }
    fn commit_many(&self, commits: Vec<Commit>) -> Answer<'_, Outcomes> {
        Box::pin(async move { self.inner.commit(&commits).await })
    }
    fn due(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(self.inner.overdue(Agenda::Settle, shards, limit, Span(0)))
    }
    fn evictable(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(self.inner.overdue(Agenda::Evict, shards, limit, Span(0)))
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> Answer<'_, Outcomes> {
        Box::pin(async move { self.inner.evict(&evictions).await })
    }
    fn shards(&self) -> u32 {
        self.inner.keys.shards()
    }
}

fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_BATCH { Err(Error::TooMany(MAX_BATCH as u32)) } else { Ok(()) }
}
