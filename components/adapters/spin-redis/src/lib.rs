//! The contract's capabilities on one Redis, through Spin.
//!
//! Spin keeps the connection and sends what many calls ask on it. It cannot be listened to, so whoever watches looks twice
//! a second instead.

mod wire;

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_adapter::polling::Looking;
use rollcall_adapter::{Adapter, Exports, Ready, Watching, ready, setting};
use rollcall_core::{Error, UserId};
use rollcall_redis::{Probing, RedisStore};

use wire::SpinRedis;

/// Where Redis is if nobody says otherwise.
const USUAL: &str = "redis://127.0.0.1:6379";

thread_local! {
    static READY: OnceCell<Result<Rc<Ready<RedisStore<Probing<SpinRedis>>>>, String>> = const { OnceCell::new() };
}

/// Redis through Spin.
struct Spin;

impl Adapter for Spin {
    type Platform = RedisStore<Probing<SpinRedis>>;

    fn ready() -> Result<Rc<Ready<RedisStore<Probing<SpinRedis>>>>, String> {
        READY.with(|known| known.get_or_init(|| make().map(Rc::new)).clone())
    }
}

impl Watching for Spin {
    type Watch = Looking<SpinRedis>;

    async fn watch(users: Vec<UserId>) -> Result<Looking<SpinRedis>, Error> {
        Looking::begin(Self::ready().map_err(Error::Other)?, users).await
    }

    fn spawn(task: impl Future<Output = ()> + 'static) {
        wit_bindgen::spawn_local(task);
    }
}

fn make() -> Result<Ready<RedisStore<Probing<SpinRedis>>>, String> {
    let url = setting("redis_url").unwrap_or_else(|| USUAL.to_owned());
    ready(|options| Ok(RedisStore::over(SpinRedis::new(url), options)))
}

type Component = Exports<Spin>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_adapter::bindings::export_platform!(Component);
    rollcall_adapter::topic_bindings::export_topics!(Component);
}
