//! What a platform has to bring: a way to one Redis and back, a clock, chance, and patience.

#![allow(async_fn_in_trait, reason = "whoever uses a wire is generic over it and names no future's auto traits")]

use crate::keyspace::{Commands, Piece};

/// Carries commands to one Redis and the replies back.
pub trait Wire {
    /// Sends these in this order, in one go, and waits for one reply each. `Away`: it is not known what took effect.
    async fn send(&self, commands: &Commands) -> Result<Vec<Reply>, Away>;
    /// Microseconds on a clock that only rises.
    fn ticks_us(&self) -> u64;
    /// A number that nobody can guess.
    fn random(&self) -> u64;
    /// Waits for so many milliseconds; on a platform that cannot wait, not at all.
    async fn pause(&self, _ms: u64) {}
    /// Tells whoever operates this that something is wrong; said once until something else is. By default to
    /// the standard error.
    fn complain(&self, complaint: &str) {
        eprintln!("{complaint}");
    }
}

/// What Redis answered to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An answer, flat: a nested array is its pieces one after the other, a status is its bytes.
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

/// Redis was not reached, or the way back was lost: why, for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away(pub String);

impl OwnedPiece {
    /// The same, borrowed, as the decoders take it.
    pub fn as_piece(&self) -> Piece<'_> {
        match self {
            Self::Nil => Piece::Nil,
            Self::Int(number) => Piece::Int(*number),
            Self::Bytes(bytes) => Piece::Bytes(bytes),
        }
    }
}
