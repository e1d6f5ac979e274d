//! One Redis server over bytes: its protocol, a connection that many calls share, and one that is listened to.
//!
//! Where the bytes come from and go to is for the adapter to say ([`Connector`]). Tasks that outlive their calls would keep an
//! instance alive that nobody needs; so nothing runs in the background here, and whoever waits for something from a
//! connection reads it for all others too.

mod address;
mod byte_stream;
mod client;
mod error_text;
mod mailbox;
mod multiplexed;
mod protocol;
mod subscriber;

pub use address::Address;
pub use byte_stream::{Connector, Sink, Source};
pub use client::Client;
pub use error_text::server_line;
pub use mailbox::Mailbox;
pub use subscriber::{Subscriber, Subscription};

#[cfg(test)]
mod fake_server;
#[cfg(test)]
mod tests;
