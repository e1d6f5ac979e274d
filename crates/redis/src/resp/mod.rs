//! One Redis server over bytes: its protocol, a connection that many calls share, and one that is listened to.
//!
//! Where the bytes come from and go to is for the adapter to say ([`Dial`]). Tasks that outlive their calls would keep an
//! instance alive that nobody needs; so nothing runs in the background here, and whoever waits for something from a
//! connection reads it for all others too.

mod address;
mod ear;
mod inbox;
mod line;
mod link;
mod pipe;
mod resp;
mod spoken;

pub use address::Address;
pub use ear::{Ear, Listening};
pub use inbox::Inbox;
pub use link::Link;
pub use pipe::{Dial, Sink, Source};
pub use spoken::server_line;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
