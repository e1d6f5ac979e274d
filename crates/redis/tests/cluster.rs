//! The store on a Redis Cluster: the whole suite, and changes of the Cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod remote;
#[path = "../../store/tests/suite/mod.rs"]
mod suite;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rollcall_core::{Error, Next, Span, State, UserId};
use rollcall_functions::capabilities::{Committed, Shards};
use rollcall_redis::native::{Health, NativeRedis, Options};
use rollcall_redis::{DEFAULT_SHARDS, Keyspace, shard_of, slot_of};
use rollcall_servers::redis::Cluster;
use rollcall_servers::wait_until;
use rollcall_store::SessionStore;

use remote::{PATIENCE, Remote, Topics, fresh_prefix};
use suite::{all, beat, commit, load, publish, settle, touch, touch_one, user, wait_for};

/// A master counts as lost after 1.5 s; then its replica is elected and the store has to notice.
const FAILOVER: Duration = Duration::from_secs(30);

/// One Cluster for all tests that do not break it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().unwrap())
}

fn server_of(cluster: &Cluster, key: &str) -> String {
    let owner = cluster.owner_of(slot_of(key.as_bytes())).unwrap();
    cluster.nodes()[owner].url()
}

async fn subject() -> Remote {
    Remote::new(&cluster().url(), Topics::Sharded, |channel| server_of(cluster(), channel)).await
}

suite!(subject().await);

/// One user per master, by the node that has the user.
fn one_each(cluster: &Cluster, keys: &Keyspace) -> HashMap<usize, String> {
    (0..1000)
        .map(|index| format!("user-{index}"))
        .map(|name| (cluster.owner_of(slot_of(keys.user(&name).to_string().as_bytes())).unwrap(), name))
        .take(40)
        .collect()
}

fn commands(server: &rollcall_servers::redis::Redis) -> u64 {
    let info = server.ask(&["INFO", "stats"]).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batch_is_one_pipeline_per_master() {
    let options = Options { prefix: fresh_prefix(), ..Options::default() };
    let store = NativeRedis::open(&cluster().url(), options).await.unwrap();
    let users: Vec<UserId> = (0..300).map(|index| user(&format!("user-{index}"))).collect();
    // Not in the second in which time and outage grace are read, which takes round trips too.
    let before = store.stats().round_trips.get();
    store.load_many(users).await.unwrap();
    let trips = store.stats().round_trips.get() - before;
    assert!((3..=6).contains(&trips), "{trips} round trips");
    assert!(cluster().nodes().iter().take(3).all(|node| commands(node) > 100), "every master received commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn expiries_come_from_every_master() {
    let options = Options { prefix: fresh_prefix(), ..Options::default() };
    let keys = Keyspace::new(&options.prefix, DEFAULT_SHARDS).unwrap();
    let store = NativeRedis::open(&cluster().url(), options).await.unwrap();
    let mut expiries = store.expiries();
    let users = one_each(cluster(), &keys);
    assert_eq!(users.len(), 3);
    let names: Vec<&str> = users.values().map(String::as_str).collect();
    let mut missing: Vec<UserId> = names.iter().map(|name| user(name)).collect();
    let deadline = Instant::now() + PATIENCE;
    // A subscription may come after the first expiry: hints are repeated until all were received.
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "no expiry of {missing:?}");
        for name in &names {
            let at = touch_one(&store, beat(name, "web-1")).await;
            settle(&store, name, wait_for(Next::Settle(at))).await;
        }
        store.trigger_expiry(&names.iter().map(|name| user(name)).collect::<Vec<_>>()).await.unwrap();
        while let Ok(Some(batch)) = tokio::time::timeout(Duration::from_millis(50), expiries.next()).await {
            missing.retain(|user| !batch.contains(user));
        }
    }
}

/// Checks the basic operations of a store.
async fn works(store: &NativeRedis, name: &str) {
    let at = touch_one(store, beat(name, "web-1")).await;
    settle(store, name, publish(State::Online, at)).await;
    let prior = touch(store, vec![beat(name, "web-1")]).await.prior.remove(0).unwrap();
    assert_eq!(prior.state, State::Online);
    let revision = load(store, name).await.revision;
    assert_eq!(commit(store, name, revision, wait_for(Next::Settle(at))).await, Committed::Applied);
    assert_eq!(commit(store, name, revision, wait_for(Next::Nothing)).await, Committed::Stale);
    assert!(suite::due(store).await.contains(&user(name)));
}

async fn wait_for_health(store: &NativeRedis, wanted: impl Fn(&Health) -> bool) {
    let deadline = Instant::now() + FAILOVER;
    while !wanted(&store.health()) {
        assert!(Instant::now() < deadline, "{:?}", store.health());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_master_fails_alone_until_failover() {
    let mut cluster = Cluster::start().unwrap();
    let options = Options { prefix: fresh_prefix(), outage_grace: Span::seconds(45), ..Options::default() };
    let keys = Keyspace::new(&options.prefix, DEFAULT_SHARDS).unwrap();
    let store = NativeRedis::open(&cluster.url(), options).await.unwrap();
    let users = one_each(&cluster, &keys);
    for name in users.values() {
        works(&store, name).await;
    }
    // Not the master with the outage grace: the next test covers that.
    let grace_server = cluster.owner_of(slot_of(keys.outage_grace().to_string().as_bytes())).unwrap();
    let (&victim, lost) = users.iter().find(|(node, _)| **node != grace_server).unwrap();
    let kept: Vec<&String> = users.iter().filter(|(node, _)| **node != victim).map(|(_, name)| name).collect();
    cluster.kill(victim).unwrap();
    let started = Instant::now();
    let touched = touch(&store, vec![beat(lost, "web-1"), beat(kept[0], "web-1"), beat(kept[1], "web-1")]).await;
    assert!(matches!(touched.prior[0], Err(Error::Unavailable(ms)) if ms > 0), "{:?}", touched.prior);
    assert!(touched.prior[1].is_ok() && touched.prior[2].is_ok(), "{:?}", touched.prior);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(matches!(store.health(), Health::Partly { .. }), "{:?}", store.health());
    let seen = suite::due(&store).await;
    assert!(kept.iter().all(|name| seen.contains(&user(name))), "the sweep continues for the others");
    wait_for_health(&store, |health| *health == Health::Up).await;
    works(&store, lost).await;
    works(&store, kept[0]).await;
    let outage_grace = store.outage_grace().expect("an outage grace covers the lost beats");
    assert!(outage_grace.since <= outage_grace.until && store.now() < outage_grace.until);
    assert_eq!(store.load_many(vec![user(lost)]).await.unwrap().moment.outage_grace, Some(outage_grace));
    cluster.restart(victim).unwrap();
    works(&store, lost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn master_with_the_outage_grace_may_fail() {
    let mut cluster = Cluster::start().unwrap();
    let options = Options { prefix: fresh_prefix(), ..Options::default() };
    let keys = Keyspace::new(&options.prefix, DEFAULT_SHARDS).unwrap();
    let store = NativeRedis::open(&cluster.url(), options).await.unwrap();
    let mut expiries = store.expiries();
    let slot = slot_of(keys.outage_grace().to_string().as_bytes());
    let grace_server = cluster.owner_of(slot).unwrap();
    let lost = (0..1000).map(|index| format!("user-{index}")).find(|name| shard_of(name, DEFAULT_SHARDS) == 0).unwrap();
    works(&store, &lost).await;
    cluster.kill(grace_server).unwrap();
    assert!(touch(&store, vec![beat(&lost, "web-1")]).await.prior[0].is_err());
    wait_for_health(&store, |health| *health == Health::Up).await;
    // The store may learn of the new master before the node that is asked here.
    wait_until("another master", PATIENCE, || Ok(cluster.owner_of(slot).is_ok_and(|owner| owner != grace_server)))
        .unwrap();
    works(&store, &lost).await;
    assert!(store.outage_grace().is_some());
    assert!(store.stats().reconnects.get() >= 1);
    // The new master is subscribed too.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let at = touch_one(&store, beat(&lost, "web-1")).await;
        settle(&store, &lost, wait_for(Next::Settle(at))).await;
        store.trigger_expiry(&[user(&lost)]).await.unwrap();
        if let Ok(Some(batch)) = tokio::time::timeout(Duration::from_millis(100), expiries.next()).await {
            assert_eq!(batch, [user(&lost)]);
            return;
        }
        assert!(Instant::now() < deadline, "no expiry from the new master");
    }
}

/// Slots move from one master to another while beats continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn moved_slots_are_followed() {
    let cluster = Cluster::start().unwrap();
    let options = Options { prefix: fresh_prefix(), ..Options::default() };
    let keys = Keyspace::new(&options.prefix, DEFAULT_SHARDS).unwrap();
    let store = NativeRedis::open(&cluster.url(), options).await.unwrap();
    works(&store, "bob").await;
    let slot = slot_of(keys.user("bob").to_string().as_bytes());
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let ids = [source.ask(&["CLUSTER", "MYID"]).unwrap(), target.ask(&["CLUSTER", "MYID"]).unwrap()];
    let slot_text = slot.to_string();
    assert_eq!(target.ask(&["CLUSTER", "SETSLOT", &slot_text, "IMPORTING", &ids[0]]).unwrap(), "OK");
    assert_eq!(source.ask(&["CLUSTER", "SETSLOT", &slot_text, "MIGRATING", &ids[1]]).unwrap(), "OK");
    // Plain commands succeed throughout, wherever each key is: first none has moved, then some, then all.
    touch_one(&store, beat("bob", "web-1")).await;
    for part in [keys.due(keys.shard_of("bob")).to_string(), keys.user("bob").to_string()] {
        let port = target.port().to_string();
        let moved = source.ask(&["MIGRATE", "127.0.0.1", &port, &part, "0", "5000"]).unwrap();
        assert_eq!(moved, "OK", "{part}");
        assert!(touch(&store, vec![beat("bob", "web-1")]).await.prior[0].is_ok(), "after {part} moved");
        assert_eq!(load(&store, "bob").await.devices.len(), 1);
    }
    let rest = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "1000"]).unwrap();
    for key in rest.lines() {
        source.ask(&["MIGRATE", "127.0.0.1", &target.port().to_string(), key, "0", "5000"]).unwrap();
    }
    for node in [target, source] {
        assert_eq!(node.ask(&["CLUSTER", "SETSLOT", &slot_text, "NODE", &ids[1]]).unwrap(), "OK");
    }
    works(&store, "bob").await;
    assert_eq!(store.health(), Health::Up);
    assert!(store.stats().redirections.get() >= 1);
    assert_eq!(store.outage_grace(), None, "there was no outage");
    wait_until("all nodes to agree", PATIENCE, || Ok(cluster.owner_of(slot)? == to)).unwrap();
    let only = Shards { first: keys.shard_of("bob"), end: keys.shard_of("bob") + 1 };
    assert_eq!(store.due(only, 10).await.unwrap(), [user("bob")]);
    assert!(all(&store).end == DEFAULT_SHARDS);
}
