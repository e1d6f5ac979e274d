//! Adapter: the contract's capabilities on one Redis, over the sockets of WASI.
//!
//! All except `topics`, which is in `redis-topics`: with WASI 0.3, a component that continues to run after it has answered needs
//! one more turn of the host's event loop for every wait.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_contract::guest::adapter::{Adapter, Configured, Exports, setting};
use rollcall_redis::resp::Address;
use rollcall_redis::wasi::TcpConnection;
use rollcall_redis::{ProbingTransport, RedisStore};

type ConfiguredRedis = Configured<RedisStore<ProbingTransport<TcpConnection>>>;

/// Redis over a socket.
struct RedisTcp;

impl Adapter for RedisTcp {
    type Platform = RedisStore<ProbingTransport<TcpConnection>>;

    fn configured() -> Result<Rc<ConfiguredRedis>, String> {
        thread_local! {
            static CONFIGURED: OnceCell<Result<Rc<ConfiguredRedis>, String>> = const { OnceCell::new() };
        }
        CONFIGURED.with(|configured| configured.get_or_init(|| make().map(Rc::new)).clone())
    }
}

/// Nothing is connected before the first call.
fn make() -> Result<ConfiguredRedis, String> {
    let address = Address::parse(setting("redis_url").as_deref())?;
    let rules = rollcall_redis::rules(setting)?;
    let options = rollcall_redis::options(&setting, &rules)?;
    Ok(Configured { rules, platform: Rc::new(RedisStore::over(TcpConnection::new(&address), options)) })
}

type Component = Exports<RedisTcp>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_contract::guest::exports::archive::export_archive!(Component);
    rollcall_contract::guest::exports::platform::export_platform!(Component);
}
