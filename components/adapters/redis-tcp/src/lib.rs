//! The capabilities of the contract on one Redis, over the sockets of WASI 0.3.
//!
//! All of them but `topics`, which is in `redis-topics`: a component that goes on working after it has answered needs one more
//! turn of the host's event loop for every wait.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_adapter::{Adapter, Exports, Ready, ready, setting};
use rollcall_redis::resp::Address;
use rollcall_redis::wasi::Socket;
use rollcall_redis::{Probing, RedisStore};

type Prepared = Ready<RedisStore<Probing<Socket>>>;

/// Redis over a socket.
struct RedisTcp;

impl Adapter for RedisTcp {
    type Platform = RedisStore<Probing<Socket>>;

    fn ready() -> Result<Rc<Prepared>, String> {
        thread_local! {
            static READY: OnceCell<Result<Rc<Prepared>, String>> = const { OnceCell::new() };
        }
        READY.with(|known| known.get_or_init(|| prepare().map(Rc::new)).clone())
    }
}

fn prepare() -> Result<Prepared, String> {
    let address = Address::parse(setting("redis_url").as_deref())?;
    ready(|options| Ok(RedisStore::over(Socket::new(&address), options)))
}

type Component = Exports<RedisTcp>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_adapter::bindings::export_platform!(Component);
}
