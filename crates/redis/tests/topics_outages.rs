//! Topics in Redis during failures: losses are reported, and every subscription is restored.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
#![allow(dead_code, unused_macros, reason = "the suite is for all stores; this file tests the outages of this one")]

#[path = "../../store/tests/topics_suite/mod.rs"]
mod topics_suite;

use std::time::{Duration, Instant};

use futures::FutureExt;
use redis::Value;
use rollcall_core::typing::{TypingAction, TypingRecord};
use rollcall_core::{Error, Span};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_redis::{
    Commands, DEFAULT_SHARDS, Keyspace, Piece, Publishing, Script, TypingWrite, decode_wait, slot_of,
};
use rollcall_servers::redis as servers;
use rollcall_servers::wait_until;
use rollcall_store::{TopicStore, TopicSubscription};

use topics_suite::{PATIENCE, Received, START, conversation, person, publish, signal, until};

async fn open(url: &str) -> NativeRedis {
    NativeRedis::open(url, Options::default()).await.unwrap()
}

/// Watches a user as soon as that is possible.
async fn watch(subscription: &TopicSubscription, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = subscription.watch(&[person(name)]).await {
        assert!(matches!(error, Error::Unavailable(ms) if ms > 0), "{error:?}");
        assert!(Instant::now() < deadline, "the subscription is never restored");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the subscription reports a loss.
async fn missed(subscription: &TopicSubscription) {
    Received::default().until(subscription, |received| received.missed).await;
}

async fn receives(store: &NativeRedis, subscription: &TopicSubscription, name: &str, version: u64) {
    publish(store, name, version).await;
    Received::default().until(subscription, |received| received.versions.get(name) == Some(&version)).await;
}

async fn advances(subscription: &TopicSubscription) {
    let before = subscription.received_until();
    until("the received time to advance", || subscription.received_until() > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_subscription_is_reported_and_restored() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server.url()).await;
    let (subscription, idle) = (store.subscription(), store.subscription());
    subscription.watch(&[person("bob"), conversation("c")]).await.unwrap();
    for version in 1..=3 {
        receives(&store, &subscription, "bob", version * 10).await;
        server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        missed(&subscription).await;
        receives(&store, &subscription, "bob", version * 10 + 1).await;
        store.set_typing(vec![signal("c", &format!("user-{version}"), 5000)]).await.unwrap();
        Received::default().until(&subscription, |received| !received.typing.is_empty()).await;
    }
    assert!(idle.next().now_or_never().is_none(), "a subscription without topics misses nothing");
    advances(&subscription).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_server_is_subscribed_again() {
    let mut server = servers::Redis::start().unwrap();
    let store = open(&server.url()).await;
    let subscription = store.subscription();
    subscription.watch(&[person("bob")]).await.unwrap();
    receives(&store, &subscription, "bob", 1).await;
    server.kill();
    // While the server is down, a new watch fails at once and leaves nothing behind.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let started = Instant::now();
        match subscription.watch(&[person("eve")]).await {
            Ok(()) => subscription.unwatch(&[person("eve")]),
            Err(error) => {
                assert!(matches!(error, Error::Unavailable(ms) if ms > 0), "{error:?}");
                let again = Instant::now();
                assert!(subscription.watch(&[person("eve")]).await.is_err());
                assert!(
                    again.elapsed() < Duration::from_millis(500),
                    "{:?} after {:?}",
                    again.elapsed(),
                    started.elapsed()
                );
                break;
            }
        }
        assert!(Instant::now() < deadline, "the outage was never noticed");
    }
    let received_until = subscription.received_until();
    assert!(subscription.next().now_or_never().is_none(), "a loss is reported when the subscription is restored");
    server.restart().unwrap();
    missed(&subscription).await;
    receives(&store, &subscription, "bob", 2).await;
    until("the received time to advance", || subscription.received_until() > received_until).await;
    let channel = Keyspace::new("rc", DEFAULT_SHARDS).unwrap().topic("eve").to_string();
    let subscribed = server.ask(&["PUBSUB", "NUMSUB", &channel]).unwrap();
    assert_eq!(subscribed.lines().nth(1), Some("0"), "a failed watch leaves no subscription");
    watch(&subscription, "eve").await;
    receives(&store, &subscription, "eve", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn received_time_stops_while_the_server_hangs() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server.url()).await;
    let subscription = store.subscription();
    subscription.watch(&[person("bob")]).await.unwrap();
    advances(&subscription).await;
    advances(&subscription).await;
    assert!(subscription.received_until() <= store.now());
    server.pause().unwrap();
    let stopped = store.now();
    until("the outage to be noticed", || {
        subscription.watch(&[person("eve")]).now_or_never().is_some_and(|ended| ended.is_err())
    })
    .await;
    assert!(subscription.received_until() <= stopped, "nothing was received since");
    server.resume().unwrap();
    missed(&subscription).await;
    receives(&store, &subscription, "bob", 1).await;
    until("the time to catch up", || subscription.received_until() > stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_and_closed_stores_hold_no_subscriber() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server.url()).await;
    let clients = || server.ask(&["CLIENT", "LIST"]).unwrap().lines().filter(|line| line.contains("resp=3")).count();
    assert_eq!(clients(), 0);
    let subscription = store.subscription();
    subscription.watch(&[person("bob")]).await.unwrap();
    assert_eq!(clients(), 1);
    drop(store);
    wait_until("the connection to be closed", PATIENCE, || Ok(clients() == 0)).unwrap();
    assert!(subscription.watch(&[person("eve")]).await.is_err());
}

/// On a Cluster: slots move, and a master is lost.
#[tokio::test(flavor = "multi_thread")]
async fn moved_slots_and_new_masters_are_followed() {
    let mut cluster = servers::Cluster::start().unwrap();
    let store = open(&cluster.url()).await;
    let keys = Keyspace::new("rc", DEFAULT_SHARDS).unwrap();
    let subscription = store.subscription();
    let names: Vec<String> = (0..60).map(|index| format!("user-{index}")).collect();
    subscription.watch(&names.iter().map(|name| person(name)).collect::<Vec<_>>()).await.unwrap();
    let slot = slot_of(keys.topic("user-0").to_string().as_bytes());
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    let ids = [from, to].map(|node| cluster.nodes()[node].ask(&["CLUSTER", "MYID"]).unwrap());
    let slot_text = slot.to_string();
    receives(&store, &subscription, "user-0", 1).await;
    // The slot has keys of ours by now: they move with it.
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    target.ask(&["CLUSTER", "SETSLOT", &slot_text, "IMPORTING", &ids[0]]).unwrap();
    source.ask(&["CLUSTER", "SETSLOT", &slot_text, "MIGRATING", &ids[1]]).unwrap();
    for key in source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "1000"]).unwrap().lines() {
        let moved = source.ask(&["MIGRATE", "127.0.0.1", &target.port().to_string(), key, "0", "5000"]).unwrap();
        assert_eq!(moved, "OK", "{key}");
    }
    for node in [target, source] {
        assert_eq!(node.ask(&["CLUSTER", "SETSLOT", &slot_text, "NODE", &ids[1]]).unwrap(), "OK");
    }
    missed(&subscription).await;
    receives(&store, &subscription, "user-0", 2).await;
    advances(&subscription).await;
    cluster.kill(to).unwrap();
    missed(&subscription).await;
    for name in &names {
        receives(&store, &subscription, name, 3).await;
    }
    advances(&subscription).await;
    watch(&subscription, "bob").await;
    receives(&store, &subscription, "bob", 4).await;
}

/// Xorshift: a history that its seed reproduces.
fn below(random: &mut u64, bound: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    (*random >> 11) % bound
}

#[tokio::test]
async fn script_matches_the_core_typing_rule() {
    let server = servers::Redis::start().unwrap();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let keys = Keyspace::new("rc", DEFAULT_SHARDS).unwrap();
    redis::cmd("SCRIPT").arg("LOAD").arg(Script::Typing.source()).exec_async(&mut connection).await.unwrap();
    let (mut random, mut record, mut now) = (7_u64, None::<TypingRecord>, START);
    for step in 0..3000 {
        now = now + Span([0, 30, 400, 1000, 6000][below(&mut random, 5) as usize]);
        let write = match below(&mut random, 4) {
            0 => TypingWrite::Recheck,
            1 => TypingWrite::Lasts(Span(0)),
            2 => TypingWrite::Lasts(Span(1 + below(&mut random, 900))),
            _ => TypingWrite::Lasts(Span(5000)),
        };
        let expected = match (write, &mut record) {
            (TypingWrite::Recheck | TypingWrite::Lasts(Span(0)), None) => TypingAction::Nothing,
            (TypingWrite::Recheck, Some(record)) => record.flush(now),
            (TypingWrite::Lasts(lasts), record) => record.get_or_insert_default().signal(now, lasts),
        };
        let mut commands = Commands::default();
        keys.write_typing(&mut commands, ("c", "bob"), write, now, Publishing::Plain);
        let mut command = redis::Cmd::new();
        commands.get(0).unwrap().args().for_each(|arg| {
            command.arg(arg);
        });
        let Value::Int(reply) = command.query_async(&mut connection).await.unwrap() else { panic!("no number") };
        let wait = decode_wait(Piece::Int(reply)).unwrap();
        assert_eq!(wait, if let TypingAction::Flush(after) = expected { Some(after) } else { None }, "step {step}");
        if record.is_some_and(|record| record.forget_at() <= now) {
            // The signal has ended, and its record expires within a millisecond.
            redis::cmd("DEL").arg(keys.typing("c").to_string()).exec_async(&mut connection).await.unwrap();
            record = None;
            continue;
        }
        let kept: Option<String> =
            redis::cmd("HGET").arg(keys.typing("c").to_string()).arg("bob").query_async(&mut connection).await.unwrap();
        let same =
            record.map(|record| format!("{} {} {}", record.until.0, record.published_at.0, record.published_until.0));
        assert_eq!(kept, same, "step {step}: {write:?} at {now:?}");
        let left: i64 =
            redis::cmd("PTTL").arg(keys.typing("c").to_string()).query_async(&mut connection).await.unwrap();
        assert!(record.is_none() || (1..=5000).contains(&left), "the key expires: {left}");
        // The key expires by the server's clock, not the test's: no signal may end that way.
        redis::cmd("PERSIST").arg(keys.typing("c").to_string()).exec_async(&mut connection).await.unwrap();
    }
}
