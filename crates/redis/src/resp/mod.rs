//! One Redis server over byte streams: the protocol, a connection that many calls share, and a subscriber.
//!
//! The platform provides the byte streams ([`Connector`]). Tasks that outlive their calls would keep an idle instance
//! alive. So nothing runs in the background here: a call that waits for a connection also reads for all others.

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
