//! Adapter: the contract's `topics` on one Redis, over the sockets of WASI.
//!
//! An instance has one connection for commands, and a second one, in subscribe mode, while users are watched. Both are
//! opened on first use.

use std::cell::OnceCell;
use std::rc::Rc;

use rollcall_contract::guest::adapter::{Adapter, ChangeSource, Configured, Exports, TopicsAdapter, setting};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::PresenceChange;
use rollcall_redis::resp::{Address, Subscriber, Subscription};
use rollcall_redis::wasi::{TcpConnection, TcpConnector};
use rollcall_redis::{ProbingTransport, RedisStore};

type ConfiguredRedis = Configured<RedisStore<ProbingTransport<TcpConnection>>>;

/// Redis over a socket, and one more for the subscriptions.
struct RedisTopics;

impl Adapter for RedisTopics {
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
    let rules = rollcall_redis::rules(setting)?;
    let options = rollcall_redis::options(&setting, &rules)?;
    Ok(Configured { rules, platform: Rc::new(RedisStore::over(TcpConnection::new(&address()?), options)) })
}

fn address() -> Result<Address, String> {
    Address::parse(setting("redis_url").as_deref())
}

/// Users watched over the instance's subscriber.
struct Subscribed(Subscription<TcpConnector>);

impl ChangeSource for Subscribed {
    const MAX_QUIET_POLLS: u32 = Subscription::<TcpConnector>::MAX_QUIET_POLLS;

    async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
        self.0.next().await
    }

    async fn lost(&mut self) -> Error {
        self.0.lost().await
    }
}

impl TopicsAdapter for RedisTopics {
    type Source = Subscribed;

    async fn watch(users: Vec<UserId>) -> Result<Subscribed, Error> {
        let (configured, subscriber) = (Self::configured().map_err(Error::Other)?, subscriber().map_err(Error::Other)?);
        subscriber.watch(configured.platform.keys(), &users).await.map(Subscribed)
    }

    #[cfg(not(feature = "wasi-0.2"))]
    fn spawn(task: impl Future<Output = ()> + 'static) {
        wit_bindgen::spawn_local(task);
    }
}

/// The subscriber of this instance.
fn subscriber() -> Result<Rc<Subscriber<TcpConnector>>, String> {
    thread_local! {
        static SUBSCRIBER: OnceCell<Result<Rc<Subscriber<TcpConnector>>, String>> = const { OnceCell::new() };
    }
    let make = || address().map(|address| Rc::new(Subscriber::new(TcpConnector::new(&address), &address)));
    SUBSCRIBER.with(|subscriber| subscriber.get_or_init(make).clone())
}

type Component = Exports<RedisTopics>;

#[allow(unsafe_code, reason = "generated from wit/")]
mod export {
    use super::Component;
    rollcall_contract::guest::exports::topics::export_topics!(Component);
}
