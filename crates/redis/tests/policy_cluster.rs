//! Policy on a Redis Cluster: the whole suite, and that no change is lost with a master.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../store/tests/policy_suite/mod.rs"]
mod policy_suite;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::ChangesSince;
use rollcall_redis::native::{Health, NativeRedis, Options};
use rollcall_redis::{ChangeKey, Keyspace, slot_of};
use rollcall_servers::redis::Cluster;
use rollcall_store::PolicyStore;

use policy_suite::model::Model;
use policy_suite::{Subject, apply, block, load, numbers, relations, restrict, unblock, user};

/// A master counts as lost after 1.5 s; then its replica is elected and the store has to notice.
const FAILOVER: Duration = Duration::from_secs(30);

/// One Cluster for all tests that do not break it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().unwrap())
}

fn fresh() -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Options { prefix: format!("p{}", NEXT.fetch_add(1, Ordering::SeqCst)), ..Options::default() }
}

/// Two hosts on the same data.
async fn subject() -> Subject {
    let options = fresh();
    let policies = Arc::new(NativeRedis::open(&cluster().url(), options.clone()).await.unwrap());
    let elsewhere: Arc<dyn PolicyStore> = Arc::new(NativeRedis::open(&cluster().url(), options).await.unwrap());
    Subject { policies, elsewhere: Some(elsewhere) }
}

policy_suite!(subject().await);

/// The node that has a group.
fn owner(cluster: &Cluster, keys: &Keyspace, group: u32) -> usize {
    cluster.owner_of(slot_of(keys.log(group).to_string().as_bytes())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn groups_use_every_master_once_per_read() {
    let options = fresh();
    let keys = Keyspace::new(&options.prefix, options.shards).unwrap();
    let owners: BTreeSet<usize> = (0..keys.groups()).map(|group| owner(cluster(), &keys, group)).collect();
    assert_eq!(owners.len(), 3);
    let store = NativeRedis::open(&cluster().url(), options).await.unwrap();
    let users: Vec<UserId> = (0..1000).map(|index| user(&index.to_string())).collect();
    let before = store.stats().round_trips.get();
    store.relations(Some(user("ann")), users.iter().collect::<Ids<UserId>>()).await.unwrap();
    let trips = store.stats().round_trips.get() - before;
    // Once a second the time and the outage grace are read, perhaps in between.
    assert!((3..=6).contains(&trips), "{trips} round trips");
}

async fn until_up(store: &NativeRedis) {
    let deadline = Instant::now() + FAILOVER;
    while store.health() != Health::Up {
        assert!(Instant::now() < deadline, "{:?}", store.health());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a change is hinted at once to the other store, five times in a row: a restored subscription also causes
/// a hint, but only one.
async fn until_invalidated(store: &NativeRedis, elsewhere: &NativeRedis, name: &str) {
    let mut invalidated = elsewhere.invalidated();
    let (deadline, mut in_a_row) = (Instant::now() + FAILOVER, 0);
    for round in 0.. {
        assert!(Instant::now() < deadline, "no hints from the new master");
        invalidated.mark_unchanged();
        apply(store, &[if round % 2 == 0 { block(name, "zoe") } else { unblock(name, "zoe") }]).await;
        let moved = tokio::time::timeout(Duration::from_millis(500), invalidated.changed()).await;
        in_a_row = if moved.is_ok() { in_a_row + 1 } else { 0 };
        if in_a_row == 5 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn policy_changes_survive_a_lost_master() {
    let mut cluster = Cluster::start().unwrap();
    let options = fresh();
    let keys = Keyspace::new(&options.prefix, options.shards).unwrap();
    let store = NativeRedis::open(&cluster.url(), options.clone()).await.unwrap();
    let elsewhere = NativeRedis::open(&cluster.url(), options).await.unwrap();
    let group_of = |name: &str| keys.group_of(ChangeKey::User(name));
    let victim = owner(&cluster, &keys, group_of("bob"));
    let lost: Vec<String> =
        (0..2000).map(|index| format!("user-{index}")).filter(|name| owner_is(&cluster, &keys, name, victim)).collect();
    let kept =
        (0..2000).map(|index| format!("other-{index}")).find(|name| !owner_is(&cluster, &keys, name, victim)).unwrap();
    let mut changes: Vec<PolicyChange> = lost.iter().map(|name| block(name, "ann")).collect();
    changes.extend([
        restrict("bob"),
        block(&kept, "ann"),
        PolicyChange::RestrictMany(numbers(group_of("bob"), &[1, 2])),
    ]);
    apply(&store, &changes).await;
    until_invalidated(&store, &elsewhere, "bob").await;
    apply(&store, &[unblock("bob", "zoe")]).await;
    let (_, cursor) = load(&store).await;
    // The last change before the kill, without any pause after it.
    apply(&store, &[block("bob", "ann")]).await;
    cluster.kill(victim).unwrap();
    changes.push(block("bob", "ann"));
    let model = Model::of(&changes);
    let unavailable =
        store.relations(Some(user("ann")), [&user("bob"), &user(&kept)].into_iter().collect::<Ids<UserId>>()).await;
    assert!(matches!(unavailable, Err(Error::Unavailable(ms)) if ms > 0), "{unavailable:?}");
    let of_others = relations(&store, Some(&kept), &[&kept]).await;
    assert_eq!(of_others, [Relation::default()], "users on other masters can be read");
    let outcomes = store.apply_many(vec![restrict("bob"), restrict(&kept)]).await.unwrap();
    assert!(outcomes[0].is_err() && outcomes[1].is_ok(), "{outcomes:?}");
    until_up(&store).await;
    until_up(&elsewhere).await;
    let mut expected = model.clone();
    expected.apply(&restrict(&kept));
    assert_eq!(load(&store).await.0, expected);
    assert_eq!(load(&elsewhere).await.0, expected);
    let ChangesSince::Changes(since, _) = store.since(cursor, 1000).await.unwrap() else { panic!("nothing was lost") };
    assert_eq!(since.len(), 2, "{since:?}");
    until_invalidated(&store, &elsewhere, "bob").await;
}

fn owner_is(cluster: &Cluster, keys: &Keyspace, name: &str, node: usize) -> bool {
    static OWNERS: OnceLock<Vec<usize>> = OnceLock::new();
    let owners = OWNERS.get_or_init(|| (0..keys.groups()).map(|group| owner(cluster, keys, group)).collect());
    owners[keys.group_of(ChangeKey::User(name)) as usize] == node
}

/// Without replicas changes still succeed, and not slowly.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_succeed_without_replicas() {
    let mut cluster = Cluster::start().unwrap();
    (3..6).for_each(|replica| cluster.kill(replica).unwrap());
    let store = NativeRedis::open(&cluster.url(), fresh()).await.unwrap();
    let started = Instant::now();
    for index in 0..50 {
        apply(&store, &[block("bob", &format!("user-{index}"))]).await;
    }
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(store.settings_of(user("bob")).await.unwrap().blocks.len(), 50);
}

/// A change is answered when a replica has it, or after 100 ms; the wait is what protects it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn change_waits_for_a_replica() {
    let cluster = Cluster::start().unwrap();
    let options = fresh();
    let keys = Keyspace::new(&options.prefix, options.shards).unwrap();
    let store = NativeRedis::open(&cluster.url(), options).await.unwrap();
    apply(&store, &[block("bob", "ann")]).await;
    let master = owner(&cluster, &keys, keys.group_of(ChangeKey::User("bob")));
    // Replicas come after the masters, in the same order.
    let replica = &cluster.nodes()[master + 3];
    replica.pause().unwrap();
    let started = Instant::now();
    apply(&store, &[unblock("bob", "ann")]).await;
    assert!(started.elapsed() >= Duration::from_millis(100), "the call did not wait: {:?}", started.elapsed());
    replica.resume().unwrap();
    assert_eq!(store.settings_of(user("bob")).await.unwrap().blocks, []);
}
