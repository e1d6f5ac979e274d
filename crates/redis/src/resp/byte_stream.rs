//! What an adapter brings to speak to a server: bytes there and back, and time.

#![allow(async_fn_in_trait, reason = "an adapter runs on one thread")]

/// Makes connections, and knows the time.
pub trait Connector: 'static {
    /// Where bytes come from.
    type Source: Source;
    /// Where bytes go.
    type Sink: Sink;
    /// What rings a bell.
    type Ringer: 'static;

    /// Connects to the server; an error says why that failed.
    async fn dial(&self) -> Result<(Self::Source, Self::Sink), String>;

    /// Milliseconds on a clock that only rises.
    fn now_ms(&self) -> u64;

    /// Waits for so many milliseconds.
    async fn sleep(&self, ms: u64);

    /// A bell: whoever drops the one rings it, and whoever waits for the other goes on then. One call wakes another by it,
    /// which without it only the host can.
    fn bell(&self) -> (Self::Ringer, impl Future<Output = ()>);

    /// Says something to whoever operates this.
    fn log(&self, text: &str);
}

/// Where bytes come from.
pub trait Source: 'static {
    /// Waits for some bytes; none: there will be no more. It may be given up while it waits, and nothing is lost.
    async fn read(&mut self) -> Option<Vec<u8>>;
}

/// Where bytes go.
pub trait Sink: 'static {
    /// Sends all of these; false: the other side takes no more. If it is given up while it waits, nobody knows how many
    /// were sent.
    async fn write(&mut self, bytes: Vec<u8>) -> bool;
}
