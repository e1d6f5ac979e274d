//! Transports: what carries the commands of the capabilities to Redis.
//!
//! A [`Transport`] takes a whole [`Batch`]. It knows which server has which shard, loads scripts that a server lacks,
//! and provides the store's time. There are two: the native one, with background tasks, for one server, TLS or a
//! Cluster; and [`ProbingTransport`], for platforms where nothing runs between two calls, over any [`Connection`].

#![allow(async_fn_in_trait, reason = "users of a transport are generic over it and name no auto traits of futures")]

mod batch;
mod error_class;
mod probed_time;
mod probing;
mod redis_time;

use rollcall_core::{Error, Moment, Time};

use crate::keyspace::{Commands, Keyspace, Piece, Publishing};

pub use batch::{Batch, Now, RETRY_MS, Replies, Reply};
pub(crate) use batch::{IN_ORDER, piece, pieces};
pub use probing::ProbingTransport;
#[cfg(feature = "native")]
pub(crate) use {
    error_class::ErrorClass,
    redis_time::{RedisTime, RoundTrip},
};

/// Carries batches of commands to Redis and the replies back.
pub trait Transport {
    /// A reply as the client library provides it.
    type Reply: Reply;

    /// The names of the keys.
    fn keys(&self) -> &Keyspace;
    /// Which command publishes.
    fn publishing(&self) -> Publishing;
    /// The store's time. A round trip only if the time is not known.
    async fn now(&self) -> Result<Now, Error>;
    /// Prepares an empty batch for reads whose caller needs [`Replies::moment`].
    fn begin_read(&self, batch: &mut Batch<'_>);
    /// Sends a batch and waits for the replies.
    async fn run(&self, batch: Batch<'_>) -> Replies<Self::Reply>;
    /// This instant with the outage grace in force, as far as it is known without a round trip.
    fn moment_at(&self, now: Time) -> Moment;
    /// An unguessable number.
    fn random(&self) -> u64;
    /// Waits; on a platform that cannot wait, returns at once.
    async fn sleep(&self, ms: u64);
    /// Logs a problem, once until a different one occurs.
    fn warn(&self, problem: &str);

    /// Whether this process set the user's deadline recently, so that a beat can skip its `ZADD`.
    fn knows_deadline(&self, _user: &str, _now: Time) -> bool {
        false
    }
    /// A beat begun at this instant set the user's deadline.
    fn note_deadline(&self, _user: &str, _begun: Time) {}
    /// Invalidates the deadline cache: the server lost data.
    fn forget_deadlines(&self) {}
}

/// What a platform provides to [`ProbingTransport`]: a connection to one Redis, a clock and random numbers.
pub trait Connection {
    /// Sends these commands together, in order, and waits for one reply each.
    async fn send(&self, commands: &Commands) -> Result<Vec<CommandReply>, ConnectionError>;
    /// Microseconds on a monotonic clock.
    fn ticks_us(&self) -> u64;
    /// An unguessable number.
    fn random(&self) -> u64;
    /// Waits; on a platform that cannot wait, returns at once.
    async fn sleep(&self, _ms: u64) {}
    /// Logs a problem; by default to standard error.
    fn warn(&self, problem: &str) {
        eprintln!("{problem}");
    }
}

/// A reply to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandReply {
    /// A flat reply: a nested array is its pieces in order, a status is its bytes.
    Pieces(Vec<OwnedPiece>),
    /// The server's error line, such as `NOSCRIPT No matching script`.
    Error(String),
}

/// One piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedPiece {
    /// Null.
    Nil,
    /// An integer.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Redis was not reached, or the connection was lost before the replies came: it is unknown what took effect. The text
/// says why, for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError(pub String);

impl OwnedPiece {
    /// A borrowed copy.
    pub fn as_piece(&self) -> Piece<'_> {
        match self {
            Self::Nil => Piece::Nil,
            Self::Int(number) => Piece::Int(*number),
            Self::Bytes(bytes) => Piece::Bytes(bytes),
        }
    }
}

impl Reply for Vec<OwnedPiece> {
    fn nil() -> Self {
        Self::new()
    }
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.iter().map(OwnedPiece::as_piece)
    }
    fn piece(&self) -> Piece<'_> {
        self.first().map_or(Piece::Nil, OwnedPiece::as_piece)
    }
}
