//! The capabilities of the contract on one Redis, over whatever carries commands to it: for platforms that bring a way to
//! Redis and nothing of ours.
//!
//! What is kept, and how, is in `crates/redis`, so that these and the host share one Redis. Nothing runs between two
//! calls. So there is no task that samples the time and notices an outage; instead whoever comes says so, in the same
//! go as what they came for: see `time.rs` and the script `reach`.
//!
//! Deliberately absent: a Redis Cluster, connections, and retries of what may have taken effect. The first is the host's;
//! the second the platform's; the caller knows better about the third.

mod agenda;
pub(crate) mod archive;
mod batch;
mod following;
mod policy;
mod sessions;
mod settings;
mod time;
mod touch;
mod trouble;
mod typing;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::keyspace::{Garbled, Keyspace, Stamped};
use rollcall_core::{Error, Span};
use rollcall_functions::capabilities::MAX_BATCH;

use time::RedisTime;

pub use batch::RETRY_MS;
pub use settings::{Options, options, rules};
pub use wire::{Away, OwnedPiece, Reply, Wire};

/// The capabilities on one Redis. One serves as many calls at once as come.
#[derive(Debug)]
pub struct Platform<W> {
    wire: W,
    keys: Keyspace,
    time: RedisTime,
    outage_grace: Span,
    /// How many changes each log of policy keeps.
    policy_log: u32,
    /// The next touch's stamp: a count that begins at a random place, so that no two instances ever use the same.
    stamp: AtomicU64,
    /// What readers of policy seed their hashes with.
    salt: u64,
    /// What was complained about last, lest every call repeat it.
    complaint: Mutex<String>,
}

impl<W: Wire> Platform<W> {
    /// The capabilities over this wire. Nothing is sent before something is asked.
    pub fn new(wire: W, options: Options) -> Self {
        Self {
            keys: Keyspace::of_hosts(options.shards),
            time: RedisTime::default(),
            outage_grace: options.outage_grace,
            policy_log: options.policy_log.max(1),
            stamp: AtomicU64::new(wire.random()),
            salt: wire.random(),
            complaint: Mutex::default(),
            wire,
        }
    }

    /// What carries the commands.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// What everything is called in Redis.
    pub fn keys(&self) -> &Keyspace {
        &self.keys
    }

    fn stamped(&self, now_us: u64) -> Stamped {
        // Sixty-three bits, and never 0, which is the revision of nobody.
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed) & (u64::MAX >> 1);
        Stamped { now_us, stamp: stamp.max(1) }
    }

    /// Tells that something is wrong, once until something else is.
    fn complain(&self, complaint: &str) {
        let mut last = self.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != complaint {
            complaint.clone_into(&mut last);
            drop(last);
            self.wire.complain(complaint);
        }
    }

    /// Redis can be reached again: if it cannot once more, that is worth telling.
    fn forget_complaint(&self) {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn garbled(&self, garbled: &Garbled) -> Error {
        self.complain(&garbled.to_string());
        Error::Other(garbled.to_string())
    }

    fn read<T>(&self, decoded: Result<T, Garbled>) -> Result<T, Error> {
        decoded.map_err(|error| self.garbled(&error))
    }
}

fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_BATCH { Err(Error::TooMany(MAX_BATCH as u32)) } else { Ok(()) }
}
