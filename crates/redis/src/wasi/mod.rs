//! One Redis over WASI 0.3 sockets, shared by the adapters that use them.

mod tcp;

use wasip3::clocks::monotonic_clock;
use wasip3::random::random::get_random_u64;

use crate::keyspace::Commands;
use crate::resp::{Address, Client};
use crate::transport::{CommandReply, Connection, ConnectionError};

pub use tcp::TcpConnector;

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
        monotonic_clock::now() / 1000
    }

    fn random(&self) -> u64 {
        get_random_u64()
    }

    async fn sleep(&self, ms: u64) {
        monotonic_clock::wait_for(ms.saturating_mul(1_000_000)).await;
    }
}
