//! Signs that come too fast, where nothing runs between two calls.

use std::time::{Duration, Instant};

use rollcall_functions::capabilities::Typing;
use rollcall_redis::native::{Options, Redis};
use rollcall_store::{TopicSubscription, Topics};

use crate::connection::platform;
use crate::time_probe::start;
use crate::topics_suite::{conversation, conversation_id, signal};

/// The next thing told about somebody's typing: whether they do.
async fn told(subscription: &TopicSubscription) -> bool {
    let news = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
    assert_eq!(news.typed.len(), 1, "{news:?}");
    news.typed[0].until.is_some()
}

async fn listening(server: &rollcall_servers::redis::Redis) -> (Redis, TopicSubscription) {
    let host = Redis::open(&server.url(), Options::default()).await.unwrap();
    let subscription = host.subscription();
    subscription.watch(&[conversation("c")]).await.unwrap();
    (host, subscription)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_comes_too_fast_is_told_before_it_is_answered() {
    let server = start();
    let (_host, subscription) = listening(&server).await;
    let platform = platform(&server.url());
    platform.set_typing(vec![signal("c", "bob", 5000)]).await.unwrap();
    assert!(told(&subscription).await);
    let started = Instant::now();
    let stopping = platform.set_typing(vec![signal("d", "eve", 5000), signal("c", "bob", 0), signal("c", "eve", 0)]);
    let asking = async {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !platform.typists(vec![conversation_id("c")]).await.unwrap()[0].as_ref().unwrap().is_empty() {
            assert!(Instant::now() < deadline, "whoever asks is told the truth at once");
        }
        started.elapsed()
    };
    let (stopped, asked) = tokio::join!(stopping, asking);
    assert_eq!(stopped.unwrap(), [Ok(()), Ok(()), Ok(())]);
    let elapsed = started.elapsed();
    assert!(elapsed > asked && elapsed < Duration::from_secs(2), "{elapsed:?}");
    assert!(!told(&subscription).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_comes_too_fast_counts_at_once_and_is_told_with_the_next() {
    let server = start();
    let (host, subscription) = listening(&server).await;
    let platform = platform(&server.url());
    platform.set_typing(vec![signal("c", "bob", 5000)]).await.unwrap();
    assert!(told(&subscription).await);
    let started = Instant::now();
    platform.set_typing(vec![signal("c", "bob", 60_000)]).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(900), "nobody waits for it");
    let typists = platform.typists(vec![conversation_id("c")]).await.unwrap().remove(0).unwrap();
    assert!((typists[0].until - host.now()).0 > 50_000);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    platform.set_typing(vec![signal("c", "bob", 60_000)]).await.unwrap();
    let news = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
    assert!(news.typed[0].until.is_some_and(|until| (until - host.now()).0 > 50_000));
}
