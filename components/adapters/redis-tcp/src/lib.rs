//! The contract's capabilities on one Redis, over sockets of WASI 0.3: for any host that has those.
//!
//! An instance has one connection for all questions, and another one that it listens to while somebody watches. Both are
//! made when they are needed.

mod tcp;

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_adapter::redis::{Address, Ear, Link, Listening};
use rollcall_adapter::{Adapter, Exports, Ready, ready, setting};
use rollcall_core::{Error, UserId};
use rollcall_keyspace::Commands;
use rollcall_platform::{Away, Platform, Reply, Wire};
use wasip3::clocks::monotonic_clock;
use wasip3::random::random::get_random_u64;

use tcp::Tcp;

thread_local! {
    static READY: OnceCell<Result<Rc<Ready<Platform<Sockets>>>, String>> = const { OnceCell::new() };
}

/// Redis by sockets.
struct RedisTcp;

impl Adapter for RedisTcp {
    type Platform = Platform<Sockets>;
    type Watch = Listening<Tcp>;

    fn ready() -> Result<Rc<Ready<Platform<Sockets>>>, String> {
        READY.with(|known| known.get_or_init(|| make().map(Rc::new)).clone())
    }

    async fn watch(users: Vec<UserId>) -> Result<Listening<Tcp>, Error> {
        let ready = Self::ready().map_err(Error::Other)?;
        let platform = &ready.platform;
        platform.wire().ear.watch(platform.keys(), &users).await
    }
}

fn make() -> Result<Ready<Platform<Sockets>>, String> {
    let address = Address::parse(setting("redis_url").as_deref())?;
    ready(|options| Ok(Platform::new(Sockets::new(&address), options)))
}

/// The two connections of an instance.
struct Sockets {
    link: Link<Tcp>,
    ear: Rc<Ear<Tcp>>,
}

impl Sockets {
    fn new(address: &Address) -> Self {
        let tcp = || Tcp::new(address.host(), address.port());
        Self { link: Link::new(tcp(), address), ear: Rc::new(Ear::new(tcp(), address)) }
    }
}

impl Wire for Sockets {
    async fn send(&self, commands: &Commands) -> Result<Vec<Reply>, Away> {
        self.link.send(commands).await
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

type Component = Exports<RedisTcp>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_adapter::bindings::export_platform!(Component);
}
