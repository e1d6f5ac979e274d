//! What a platform provides to reach a server: byte streams and time.

#![allow(async_fn_in_trait, reason = "an adapter runs on one thread")]

/// Opens connections, and has the time.
pub trait Connector: 'static {
    /// The incoming bytes.
    type Source: Source;
    /// The outgoing bytes.
    type Sink: Sink;
    /// Wakes a waiting call when dropped.
    type Signal: 'static;

    /// Connects to the server; an error says why that failed.
    async fn connect(&self) -> Result<(Self::Source, Self::Sink), String>;

    /// Milliseconds on a monotonic clock.
    fn now_ms(&self) -> u64;

    /// Waits for this many milliseconds.
    async fn sleep(&self, ms: u64);

    /// A signal and a future that resolves when the signal is dropped. One call wakes another with it; otherwise only
    /// the host can.
    fn signal(&self) -> (Self::Signal, impl Future<Output = ()>);

    /// Logs a line for the operator.
    fn log(&self, text: &str);
}

/// Incoming bytes.
pub trait Source: 'static {
    /// Waits for some bytes; `None` if the stream ended. Cancel safe.
    async fn read(&mut self) -> Option<Vec<u8>>;
}

/// Outgoing bytes.
pub trait Sink: 'static {
    /// Sends all of these; returns false if the other side closed. If it is cancelled, it is unknown how many bytes
    /// were sent.
    async fn write(&mut self, bytes: Vec<u8>) -> bool;
}
