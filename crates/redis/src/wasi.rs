//! One Redis over the sockets of WASI, shared by the adapters that use them.

use std::time::Duration;

use rollcall_wasi::{Incoming, Outgoing, Signal, monotonic_ns, random, signal, sleep};

use crate::keyspace::Commands;
use crate::resp::{Address, Client, Connector, Sink, Source};
use crate::transport::{CommandReply, Connection, ConnectionError};

/// The connection of an instance.
pub struct TcpConnection(Client<TcpConnector>);

impl TcpConnection {
    /// Connects with the first command.
    pub fn new(address: &Address) -> Self {
        Self(Client::new(TcpConnector::new(address), address))
    }
}

impl Connection for TcpConnection {
    async fn send(&self, commands: &Commands) -> Result<Vec<CommandReply>, ConnectionError> {
        self.0.send(commands).await
    }

    fn ticks_us(&self) -> u64 {
        monotonic_ns() / 1000
    }

    fn random(&self) -> u64 {
        random()
    }

    async fn sleep(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }
}

/// Connects to one host.
pub struct TcpConnector {
    host: String,
    port: u16,
}

impl TcpConnector {
    /// Connects to the server of this address.
    pub fn new(address: &Address) -> Self {
        Self { host: address.host().to_owned(), port: address.port() }
    }
}

impl Connector for TcpConnector {
    type Source = Incoming;
    type Sink = Outgoing;
    type Signal = Signal;

    async fn connect(&self) -> Result<(Incoming, Outgoing), String> {
        rollcall_wasi::connect(&self.host, self.port).await
    }

    fn now_ms(&self) -> u64 {
        monotonic_ns() / 1_000_000
    }

    async fn sleep(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }

    fn signal(&self) -> (Signal, impl Future<Output = ()>) {
        signal()
    }

    fn log(&self, text: &str) {
        eprintln!("rollcall: {text}");
    }
}

impl Source for Incoming {
    async fn read(&mut self) -> Option<Vec<u8>> {
        Incoming::read(self).await
    }
}

impl Sink for Outgoing {
    async fn write(&mut self, bytes: Vec<u8>) -> bool {
        Outgoing::write(self, bytes).await
    }
}
