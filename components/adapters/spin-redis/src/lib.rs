//! Adapter: the contract's capabilities on one Redis, through Spin's Redis connection.
//!
//! Spin keeps the connection and sends the commands of all calls on it. It has no subscriptions, so changes are found by
//! polling.

#[cfg(feature = "wasi-rc")]
extern crate spin_sdk_rc as spin_sdk;

mod connection;
#[cfg_attr(feature = "wasi-0.2", path = "spin_sync.rs")]
mod spin;

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_contract::guest::adapter::{Adapter, ChangeSource, Configured, Exports, TopicsAdapter, setting};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::PresenceChange;
use rollcall_redis::capabilities::polling::Polling;
use rollcall_redis::{ProbingTransport, RedisStore};

use connection::SpinRedis;

/// The default of `redis_url`.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

type ConfiguredSpin = Configured<RedisStore<ProbingTransport<SpinRedis>>>;

/// Redis through Spin.
struct Spin;

impl Adapter for Spin {
    type Platform = RedisStore<ProbingTransport<SpinRedis>>;

    fn configured() -> Result<Rc<ConfiguredSpin>, String> {
        thread_local! {
            static CONFIGURED: OnceCell<Result<Rc<ConfiguredSpin>, String>> = const { OnceCell::new() };
        }
        CONFIGURED.with(|configured| configured.get_or_init(|| make().map(Rc::new)).clone())
    }
}

/// Nothing is connected before the first call.
fn make() -> Result<ConfiguredSpin, String> {
    let url = setting("redis_url").unwrap_or_else(|| DEFAULT_URL.to_owned());
    let rules = rollcall_redis::rules(setting)?;
    let options = rollcall_redis::options(&setting, &rules)?;
    Ok(Configured { rules, platform: Rc::new(RedisStore::over(SpinRedis::new(url), options)) })
}

/// Users watched by polling.
struct Polled(Polling<SpinRedis>);

impl ChangeSource for Polled {
    const MAX_QUIET_POLLS: u32 = Polling::<SpinRedis>::MAX_QUIET_POLLS;

    async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
        self.0.next().await
    }

    async fn lost(&mut self) -> Error {
        self.0.lost().await
    }
}

impl TopicsAdapter for Spin {
    type Source = Polled;

    async fn watch(users: Vec<UserId>) -> Result<Polled, Error> {
        let configured = Self::configured().map_err(Error::Other)?;
        Polling::begin(Rc::clone(&configured.platform), users).await.map(Polled)
    }

    #[cfg(not(feature = "wasi-0.2"))]
    fn spawn(task: impl Future<Output = ()> + 'static) {
        wit_bindgen::spawn_local(task);
    }
}

type Component = Exports<Spin>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_contract::guest::exports::archive::export_archive!(Component);
    rollcall_contract::guest::exports::platform::export_platform!(Component);
    rollcall_contract::guest::exports::topics::export_topics!(Component);
}
