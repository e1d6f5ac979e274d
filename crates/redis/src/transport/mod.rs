//! Transports: what carries the commands of the capabilities to Redis.
//!
//! A [`Transport`] takes a whole [`Batch`]. It knows which server has which shard, loads scripts a server lacks, and is the
//! source of the store's time. There are two: the native one, with background tasks, for one server, TLS or a Cluster; and
//! [`Probing`], for platforms where nothing runs between two calls, over any [`Connection`].

#![allow(async_fn_in_trait, reason = "users of a transport are generic over it and name no auto traits of futures")]

mod batch;
mod error_class;
mod probed_time;
mod probing;

use rollcall_core::{Error, Moment, Time};

use crate::keyspace::{Commands, Keyspace, Piece, Publishing};

pub use batch::{Batch, Now, RETRY_MS, Replies, Reply};
pub(crate) use batch::{IN_ORDER, piece, pieces};
pub use probing::Probing;

/// Carries batches of commands to Redis and the replies back.
pub trait Transport {
    /// A reply as the client library gives it.
    type Reply: Reply;

    /// The names of the keys.
    fn keys(&self) -> &Keyspace;
    /// Which command publishes.
    fn publishing(&self) -> Publishing;
    /// The store's time. It takes a round trip only if the time is not known.
    async fn now(&self) -> Result<Now, Error>;
    /// Prepares an empty batch for reads whose caller needs [`Replies::moment`].
    fn begin_read(&self, batch: &mut Batch<'_>);
    /// Sends a batch and waits for the replies.
    async fn run(&self, batch: Batch<'_>) -> Replies<Self::Reply>;
    /// This instant with the outage grace in force, as far as it is known without asking.
    fn moment_at(&self, now: Time) -> Moment;
    /// A number nobody can guess.
    fn random(&self) -> u64;
    /// Waits; where a platform cannot wait, not at all.
    async fn sleep(&self, ms: u64);
    /// Logs a problem, once until there is another.
    fn warn(&self, problem: &str);

    /// Whether this process set the user's deadline a moment ago, so that a beat can skip its `ZADD`.
    fn knows_deadline(&self, _user: &str, _now: Time) -> bool {
        false
    }
    /// A beat begun at this instant left the user due.
    fn note_deadline(&self, _user: &str, _begun: Time) {}
    /// Deadlines known so far cannot be trusted: the server lost data.
    fn forget_deadlines(&self) {}
}

/// What a platform brings to [`Probing`]: a connection to one Redis, a clock and random numbers.
pub trait Connection {
    /// Sends these in this order, in one go, and waits for one reply each.
    async fn send(&self, commands: &Commands) -> Result<Vec<ReplyLine>, ConnectionError>;
    /// Microseconds on a clock that only rises.
    fn ticks_us(&self) -> u64;
    /// A number nobody can guess.
    fn random(&self) -> u64;
    /// Waits; on a platform that cannot wait, not at all.
    async fn sleep(&self, _ms: u64) {}
    /// Logs a problem; by default to the standard error.
    fn warn(&self, problem: &str) {
        eprintln!("{problem}");
    }
}

/// What Redis answered to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyLine {
    /// A reply, flat: a nested array is its pieces one after the other, a status is its bytes.
    Pieces(Vec<OwnedPiece>),
    /// The server's error line, such as `NOSCRIPT No matching script`.
    Error(String),
}

/// One piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedPiece {
    /// Nothing there.
    Nil,
    /// An integer.
    Int(i64),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Redis was not reached, or the connection was lost before the replies came: what took effect is not known. The text says why,
/// for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError(pub String);

impl OwnedPiece {
    /// The same, borrowed.
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
