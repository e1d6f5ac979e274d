//! Everything about Redis: what is kept ([`keyspace`]), the capabilities of the contract over a connection
//! ([`capabilities`]), and the ways to a server: natively to one server or a Cluster (`native`, feature `native`), a client of
//! the protocol over any byte stream ([`resp`]) and WASI sockets (`wasi`, feature `wasi-tcp`).

pub mod capabilities;
pub mod keyspace;
#[cfg(feature = "native")]
pub mod native;
pub mod resp;
#[cfg(feature = "wasi-tcp")]
pub mod wasi;

pub use capabilities::{Away, Options, OwnedPiece, Platform, Reply, Wire, options, rules};
pub use keyspace::*;
