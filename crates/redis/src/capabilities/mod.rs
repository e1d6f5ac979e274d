//! The capabilities of the contract on Redis, over any [`Transport`].
//!
//! Each is implemented once: the native host, WASI sockets and Spin run the same code, so they can share one Redis.
//!
//! Deliberately absent: reads from replicas (an old revision would make every commit stale), retries of calls that may
//! have taken effect (that is the caller's decision), a queue for outages (the next beat carries everything) and a
//! policy cache, which belongs to the reader.

mod archive;
mod due;
mod hosts;
mod options;
mod policy;
mod policy_log;
pub mod polling;
mod records;
mod sessions;
mod touch;
mod typing;

use std::sync::atomic::{AtomicU64, Ordering};

use rollcall_core::Error;

use crate::keyspace::{BadReply, Keyspace, Stamped};
use crate::transport::{Connection, ProbingTransport, Transport};

pub use options::{Options, options, rules};
pub(crate) use rollcall_functions::capabilities::{MAX_BATCH, bounded};
#[cfg(feature = "native")]
pub(crate) use typing::typing_key;

/// The capabilities on Redis. It serves many calls at once.
#[derive(Debug)]
pub struct RedisStore<T> {
    transport: T,
    /// How many changes each policy log keeps.
    policy_log: u32,
    /// The next touch's stamp: a counter that starts at a random number, so that no two instances use the same stamps.
    stamp: AtomicU64,
    /// Seeds the hashes of policy readers.
    salt: u64,
}

impl<C: Connection> RedisStore<ProbingTransport<C>> {
    /// The capabilities over a connection, on a platform without background tasks. Nothing is sent before the first
    /// call.
    pub fn over(connection: C, options: Options) -> Self {
        let keys = Keyspace::of_hosts(options.shards);
        Self::new(ProbingTransport::new(connection, keys, options.outage_grace), options.policy_log)
    }

    /// The connection that sends the commands.
    pub fn connection(&self) -> &C {
        self.transport.connection()
    }
}

impl<T: Transport> RedisStore<T> {
    /// The capabilities over a transport. Each policy log keeps this many changes, at least one.
    pub fn new(transport: T, policy_log: u32) -> Self {
        let (stamp, salt) = (AtomicU64::new(transport.random()), transport.random());
        Self { transport, policy_log: policy_log.max(1), stamp, salt }
    }

    /// The names of the keys.
    pub fn keys(&self) -> &Keyspace {
        self.transport.keys()
    }

    fn stamped(&self, now_us: u64) -> Stamped {
        // 63 bits, and never 0: that is the revision of a user without a session.
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed) & (u64::MAX >> 1);
        Stamped { now_us, stamp: stamp.max(1) }
    }

    /// A decoded reply; logs one that cannot be decoded.
    fn read<R>(&self, decoded: Result<R, BadReply>) -> Result<R, Error> {
        decoded.map_err(|error| {
            self.transport.warn(&error.to_string());
            Error::Other(error.to_string())
        })
    }
}
