//! The contract's `topics` on one Redis, over sockets of WASI 0.3: for any host that has those.
//!
//! An instance has one connection for questions, and another one that it listens to while somebody watches. Both are made
//! when they are needed.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_adapter::{Adapter, Exports, Ready, Watching, ready, setting};
use rollcall_core::{Error, UserId};
use rollcall_redis::resp::{Address, Ear, Listening};
use rollcall_redis::wasi::{Socket, Tcp};
use rollcall_redis::{Probing, RedisStore};

type Prepared = Ready<RedisStore<Probing<Socket>>>;

/// Redis by a socket, and one more to listen to.
struct RedisTopics;

impl Adapter for RedisTopics {
    type Platform = RedisStore<Probing<Socket>>;

    fn ready() -> Result<Rc<Prepared>, String> {
        thread_local! {
            static READY: OnceCell<Result<Rc<Prepared>, String>> = const { OnceCell::new() };
        }
        READY.with(|known| known.get_or_init(|| prepare().map(Rc::new)).clone())
    }
}

fn prepare() -> Result<Prepared, String> {
    let address = address()?;
    ready(|options| Ok(RedisStore::over(Socket::new(&address), options)))
}

fn address() -> Result<Address, String> {
    Address::parse(setting("redis_url").as_deref())
}

impl Watching for RedisTopics {
    type Watch = Listening<Tcp>;

    async fn watch(users: Vec<UserId>) -> Result<Listening<Tcp>, Error> {
        let (ready, ear) = (Self::ready().map_err(Error::Other)?, ear().map_err(Error::Other)?);
        ear.watch(ready.platform.keys(), &users).await
    }

    fn spawn(task: impl Future<Output = ()> + 'static) {
        wit_bindgen::spawn_local(task);
    }
}

/// This instance's.
fn ear() -> Result<Rc<Ear<Tcp>>, String> {
    thread_local! {
        static EAR: OnceCell<Result<Rc<Ear<Tcp>>, String>> = const { OnceCell::new() };
    }
    let make = || address().map(|address| Rc::new(Ear::new(Tcp::new(&address), &address)));
    EAR.with(|known| known.get_or_init(make).clone())
}

type Component = Exports<RedisTopics>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_adapter::topic_bindings::export_topics!(Component);
}
