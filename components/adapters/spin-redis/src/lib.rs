//! Adapter: the contract's capabilities on one Redis, through Spin's Redis connection.
//!
//! Spin keeps the connection and sends the commands of all calls on it. It has no subscriptions, so changes are found by
//! polling.

mod wire;

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_contract::guest::adapter::{Adapter, Exports, Ready, Watch, Watching, setting};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_redis::capabilities::polling::Polling;
use rollcall_redis::{Probing, RedisStore};

use wire::SpinRedis;

/// The default of `redis_url`.
const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

type SpinReady = Ready<RedisStore<Probing<SpinRedis>>>;

/// Redis through Spin.
struct Spin;

impl Adapter for Spin {
    type Platform = RedisStore<Probing<SpinRedis>>;

    fn ready() -> Result<Rc<SpinReady>, String> {
        thread_local! {
            static READY: OnceCell<Result<Rc<SpinReady>, String>> = const { OnceCell::new() };
        }
        READY.with(|ready| ready.get_or_init(|| make().map(Rc::new)).clone())
    }
}

/// Nothing is connected before the first call.
fn make() -> Result<SpinReady, String> {
    let url = setting("redis_url").unwrap_or_else(|| DEFAULT_URL.to_owned());
    let rules = rollcall_redis::rules(setting)?;
    let options = rollcall_redis::options(&setting, &rules)?;
    Ok(Ready { rules, platform: Rc::new(RedisStore::over(SpinRedis::new(url), options)) })
}

/// Users watched by polling.
struct Polled(Polling<SpinRedis>);

impl Watch for Polled {
    const TWO_MINUTES: u32 = Polling::<SpinRedis>::TWO_MINUTES;

    async fn next(&mut self) -> Result<Option<Change>, Error> {
        self.0.next().await
    }

    async fn lost(&mut self) -> Error {
        self.0.lost().await
    }
}

impl Watching for Spin {
    type Watch = Polled;

    async fn watch(users: Vec<UserId>) -> Result<Polled, Error> {
        let ready = Self::ready().map_err(Error::Other)?;
        Polling::begin(Rc::clone(&ready.platform), users).await.map(Polled)
    }

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
