//! One Redis over sockets of WASI 0.3: what the adapters on it share.

mod tcp;

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_adapter::redis::{Address, Link};
use rollcall_adapter::{Ready, ready, setting};
use rollcall_platform::{Away, Platform, Reply, Wire};
use rollcall_redis::Commands;
use wasip3::clocks::monotonic_clock;
use wasip3::random::random::get_random_u64;

pub use tcp::Tcp;

/// What is made of the settings: the capabilities of the contract on one Redis.
pub type Prepared = Ready<Platform<Socket>>;

/// This instance's, with one connection, which is made when it is needed. An error names the setting that is wrong.
pub fn prepared() -> Result<Rc<Prepared>, String> {
    thread_local! {
        static PREPARED: OnceCell<Result<Rc<Prepared>, String>> = const { OnceCell::new() };
    }
    PREPARED.with(|known| known.get_or_init(|| prepare().map(Rc::new)).clone())
}

fn prepare() -> Result<Prepared, String> {
    let address = address()?;
    ready(|options| Ok(Platform::new(Socket(Link::new(tcp(&address), &address)), options)))
}

/// Where Redis is.
pub fn address() -> Result<Address, String> {
    Address::parse(setting("redis_url").as_deref())
}

/// Connects to it.
pub fn tcp(address: &Address) -> Tcp {
    Tcp::new(address.host(), address.port())
}

/// The connection on which an instance asks.
pub struct Socket(Link<Tcp>);

impl Wire for Socket {
    async fn send(&self, commands: &Commands) -> Result<Vec<Reply>, Away> {
        self.0.send(commands).await
    }

    fn ticks_us(&self) -> u64 {
        monotonic_clock::now() / 1000
    }

    fn random(&self) -> u64 {
        get_random_u64()
    }

    async fn pause(&self, ms: u64) {
        monotonic_clock::wait_for(ms.saturating_mul(1_000_000)).await;
    }
}
