//! Everything about Redis: keys, scripts and replies ([`keyspace`]), the capabilities of the contract over a connection
//! ([`capabilities`]), and the transports: native to one server or a Cluster (`native`, feature `native`), a protocol
//! client over any byte stream ([`resp`]) and WASI sockets (`wasi`, feature `wasi`).

pub mod capabilities;
pub mod keyspace;
#[cfg(feature = "native")]
pub mod native;
pub mod resp;
pub mod transport;
#[cfg(feature = "wasi")]
pub mod wasi;

pub use capabilities::{Options, RedisStore, options, rules};
pub use keyspace::*;
pub use transport::{CommandReply, Connection, ConnectionError, OwnedPiece, ProbingTransport, Transport};
