//! Typing signals that come too fast, on platforms where nothing runs between two calls.

use std::time::{Duration, Instant};

use rollcall_functions::capabilities::Typing;
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_store::{TopicStore, TopicSubscription};

use crate::connection::platform;
use crate::time_probe::start;
use crate::topics_suite::{conversation, conversation_id, signal};

/// The next published signal: whether the user types.
async fn received(subscription: &TopicSubscription) -> bool {
    let update = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
    assert_eq!(update.typing.len(), 1, "{update:?}");
    update.typing[0].until.is_some()
}

async fn listening(server: &rollcall_servers::redis::Redis) -> (NativeRedis, TopicSubscription) {
    let host = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let subscription = host.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    (host, subscription)
}

#[tokio::test(flavor = "multi_thread")]
async fn early_stop_is_published_before_the_call_returns() {
    let server = start();
    let (_host, subscription) = listening(&server).await;
    let platform = platform(&server.url());
    platform.set_typing(vec![signal("c", "bob", 5000)]).await.unwrap();
    assert!(received(&subscription).await);
    let started = Instant::now();
    let stopping = platform.set_typing(vec![signal("d", "eve", 5000), signal("c", "bob", 0), signal("c", "eve", 0)]);
    let asking = async {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !platform.typists(vec![conversation_id("c")]).await.unwrap()[0].as_ref().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "a read sees the stop at once");
        }
        started.elapsed()
    };
    let (stopped, asked) = tokio::join!(stopping, asking);
    assert_eq!(stopped.unwrap(), [Ok(()), Ok(()), Ok(())]);
    let elapsed = started.elapsed();
    assert!(elapsed > asked && elapsed < Duration::from_secs(2), "{elapsed:?}");
    assert!(!received(&subscription).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn early_refresh_is_published_with_the_next() {
    let server = start();
    let (host, subscription) = listening(&server).await;
    let platform = platform(&server.url());
    platform.set_typing(vec![signal("c", "bob", 5000)]).await.unwrap();
    assert!(received(&subscription).await);
    let started = Instant::now();
    platform.set_typing(vec![signal("c", "bob", 60_000)]).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(900), "the call does not wait");
    let typists = platform.typists(vec![conversation_id("c")]).await.unwrap().remove(0).unwrap();
    assert!((typists[0].until - host.now()).0 > 50_000);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    platform.set_typing(vec![signal("c", "bob", 60_000)]).await.unwrap();
    let update = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
    assert!(update.typing[0].until.is_some_and(|until| (until - host.now()).0 > 50_000));
}
