//! Adapter: the contract's `topics` on one Redis, over WASI 0.3 sockets.
//!
//! An instance has one connection for commands, and a second one, in subscribe mode, while users are watched. Both are
//! opened on first use.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_contract::guest::adapter::{Adapter, Exports, Ready, Watch, Watching, setting};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_redis::resp::{Address, Subscriber, Subscription};
use rollcall_redis::wasi::{Socket, Tcp};
use rollcall_redis::{Probing, RedisStore};

type RedisReady = Ready<RedisStore<Probing<Socket>>>;

/// Redis over a socket, and one more for the subscriptions.
struct RedisTopics;

impl Adapter for RedisTopics {
    type Platform = RedisStore<Probing<Socket>>;

    fn ready() -> Result<Rc<RedisReady>, String> {
        thread_local! {
            static READY: OnceCell<Result<Rc<RedisReady>, String>> = const { OnceCell::new() };
        }
        READY.with(|ready| ready.get_or_init(|| make().map(Rc::new)).clone())
    }
}

/// Nothing is connected before the first call.
fn make() -> Result<RedisReady, String> {
    let rules = rollcall_redis::rules(setting)?;
    let options = rollcall_redis::options(&setting, &rules)?;
    Ok(Ready { rules, platform: Rc::new(RedisStore::over(Socket::new(&address()?), options)) })
}

fn address() -> Result<Address, String> {
    Address::parse(setting("redis_url").as_deref())
}

/// Users watched over the instance's subscriber.
struct Subscribed(Subscription<Tcp>);

impl Watch for Subscribed {
    const TWO_MINUTES: u32 = Subscription::<Tcp>::TWO_MINUTES;

    async fn next(&mut self) -> Result<Option<Change>, Error> {
        self.0.next().await
    }

    async fn lost(&mut self) -> Error {
        self.0.lost().await
    }
}

impl Watching for RedisTopics {
    type Watch = Subscribed;

    async fn watch(users: Vec<UserId>) -> Result<Subscribed, Error> {
        let (ready, subscriber) = (Self::ready().map_err(Error::Other)?, subscriber().map_err(Error::Other)?);
        subscriber.watch(ready.platform.keys(), &users).await.map(Subscribed)
    }

    fn spawn(task: impl Future<Output = ()> + 'static) {
        wit_bindgen::spawn_local(task);
    }
}

/// The subscriber of this instance.
fn subscriber() -> Result<Rc<Subscriber<Tcp>>, String> {
    thread_local! {
        static SUBSCRIBER: OnceCell<Result<Rc<Subscriber<Tcp>>, String>> = const { OnceCell::new() };
    }
    let make = || address().map(|address| Rc::new(Subscriber::new(Tcp::new(&address), &address)));
    SUBSCRIBER.with(|subscriber| subscriber.get_or_init(make).clone())
}

type Component = Exports<RedisTopics>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_contract::guest::exports::topics::export_topics!(Component);
}
