//! Policy on a single Redis: the whole suite, and what can happen to a server.

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

use rollcall_core::policy::{Numbers, PolicyChange};
use rollcall_core::{Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_redis::{ChangeKey, Keyspace};
use rollcall_servers::redis as servers;
use rollcall_store::{Clock, PolicyStore};

use policy_suite::model::Model;
use policy_suite::{
    PATIENCE, Subject, add_contact, apply, block, changes_since, follow, load, numbers, relation, remove_contact,
    restrict, unblock, unrestrict, user,
};

/// One server for all tests that do not break it.
fn server() -> &'static servers::Redis {
    static SERVER: OnceLock<servers::Redis> = OnceLock::new();
    SERVER.get_or_init(|| servers::Redis::start().unwrap())
}

fn fresh() -> Options {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Options { prefix: format!("p{}", NEXT.fetch_add(1, Ordering::SeqCst)), ..Options::default() }
}

/// Two hosts on the same data.
async fn subject() -> Subject {
    let options = fresh();
    let policies = Arc::new(NativeRedis::open(&server().url(), options.clone()).await.unwrap());
    let elsewhere: Arc<dyn PolicyStore> = Arc::new(NativeRedis::open(&server().url(), options).await.unwrap());
    Subject { policies, elsewhere: Some(elsewhere) }
}

policy_suite!(subject().await);

fn keys(options: &Options) -> Keyspace {
    Keyspace::new(&options.prefix, options.shards).unwrap()
}

/// The log with bob's changes.
fn bobs_log(options: &Options) -> String {
    let keys = keys(options);
    keys.log(keys.group_of(ChangeKey::User("bob"))).to_string()
}

/// This many changes by bob.
fn bobs(count: usize) -> Vec<PolicyChange> {
    (0..count).map(|index| block("bob", &format!("user-{index}"))).collect()
}

async fn is_gap(policies: &dyn PolicyStore, cursor: &Cursor) -> bool {
    policies.since(cursor.clone(), 1000).await.unwrap() == ChangesSince::Gap
}

/// Reads a snapshot and follows the log from there.
async fn is_whole_again(policies: &dyn PolicyStore, expected: &Model) {
    let (mut model, cursor) = load(policies).await;
    assert_eq!(model, *expected);
    apply(policies, &[add_contact("bob", "ann")]).await;
    follow(policies, &mut model, &cursor).await;
    assert!(model.contacts.contains(&("bob".to_owned(), "ann".to_owned())));
}

#[tokio::test]
async fn falling_behind_the_log_is_a_gap() {
    let options = Options { policy_log: 100, ..fresh() };
    let store = NativeRedis::open(&server().url(), options.clone()).await.unwrap();
    let (_, start) = load(&store).await;
    let changes = bobs(250);
    apply(&store, &changes[..100]).await;
    let (read, at) = changes_since(&store, &start, 1000).await;
    assert_eq!(read, changes[..100], "the log has every entry");
    apply(&store, &changes[100..199]).await;
    assert_eq!(changes_since(&store, &at, 1000).await.0, changes[100..199], "the cursor's own entry is the oldest");
    assert!(is_gap(&store, &start).await);
    apply(&store, &changes[199..]).await;
    assert!(is_gap(&store, &at).await);
    assert_eq!(server().ask(&["ZCARD", &bobs_log(&options)]).unwrap(), "100");
    is_whole_again(&store, &Model::of(&changes)).await;
}

#[tokio::test]
async fn emptied_server_is_a_gap() {
    let server = servers::Redis::start().unwrap();
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    apply(&store, &bobs(5)).await;
    let (_, cursor) = load(&store).await;
    assert!(!is_gap(&store, &cursor).await);
    server.ask(&["FLUSHALL"]).unwrap();
    assert!(is_gap(&store, &cursor).await, "even without a later entry");
    apply(&store, &bobs(2)).await;
    assert!(is_gap(&store, &cursor).await);
    is_whole_again(&store, &Model::of(&bobs(2))).await;
}

/// A replica that takes over, or a restored backup, lacks the newest entries.
#[tokio::test]
async fn lost_entries_are_a_gap() {
    let options = fresh();
    let store = NativeRedis::open(&server().url(), options.clone()).await.unwrap();
    apply(&store, &bobs(5)).await;
    let (_, before) = load(&store).await;
    apply(&store, &[restrict("bob"), unrestrict("bob")]).await;
    let (_, cursor) = load(&store).await;
    server().ask(&["ZREMRANGEBYRANK", &bobs_log(&options), "-2", "-1"]).unwrap();
    assert!(is_gap(&store, &cursor).await);
    assert!(!is_gap(&store, &before).await, "a reader that never saw them misses nothing");
    apply(&store, &[unblock("bob", "user-0"), unblock("bob", "user-1"), unblock("bob", "user-2")]).await;
    assert!(is_gap(&store, &cursor).await, "also after the log has grown past the cursor");
    assert_eq!(changes_since(&store, &before, 100).await.0.len(), 3);
    let middle = server().ask(&["ZRANGE", &bobs_log(&options), "-2", "-2"]).unwrap();
    server().ask(&["ZREM", &bobs_log(&options), &middle]).unwrap();
    assert!(is_gap(&store, &before).await, "a missing entry in the middle is a gap");
}

#[tokio::test]
async fn log_grows_when_time_goes_backwards() {
    let (options, clock) = (fresh(), Clock::manual(Time(1_700_000_000_000)));
    let store = NativeRedis::open(&server().url(), Options { clock: Some(clock), ..options.clone() }).await.unwrap();
    let (_, start) = load(&store).await;
    apply(&store, &bobs(3)).await;
    let earlier = Some(Clock::manual(Time(1_600_000_000_000)));
    let other = NativeRedis::open(&server().url(), Options { clock: earlier, ..options }).await.unwrap();
    apply(&other, &[restrict("bob")]).await;
    let (read, end) = changes_since(&other, &start, 100).await;
    assert_eq!(read, [bobs(3), vec![restrict("bob")]].concat());
    assert_eq!(end.iter().max(), Some(&1_700_000_000_000_003));
}

/// How often a command was called.
fn calls(server: &servers::Redis, command: &str) -> u64 {
    let info = server.ask(&["INFO", "commandstats"]).unwrap();
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn check_is_one_round_trip() {
    let server = servers::Redis::start().unwrap();
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let users: Vec<UserId> = (0..1000).map(|index| user(&index.to_string())).collect();
    let subjects: Ids<UserId> = users.iter().collect();
    let before = store.stats().round_trips.get();
    store.relations(Some(user("ann")), subjects).await.unwrap();
    let trips = store.stats().round_trips.get() - before;
    // Once a second the time and the outage grace are read, perhaps in between.
    assert!((1..=3).contains(&trips), "{trips} round trips");
    assert_eq!((calls(&server, "hmget"), calls(&server, "getbit")), (1002, 1000));
}

#[tokio::test]
async fn undone_changes_leave_only_the_log() {
    let options = fresh();
    let store = NativeRedis::open(&server().url(), options.clone()).await.unwrap();
    let many = Numbers::new(7, vec![0xff; 8192]).unwrap();
    apply(&store, &[block("bob", "ann"), add_contact("bob", "ann"), restrict("bob"), restrict("7")]).await;
    apply(&store, &[PolicyChange::RestrictMany(many.clone()), PolicyChange::RestrictMany(numbers(8, &[1]))]).await;
    apply(&store, &[unblock("bob", "ann"), remove_contact("bob", "ann"), unrestrict("bob"), unrestrict("7")]).await;
    apply(&store, &[PolicyChange::UnrestrictMany(many), unrestrict("524289")]).await;
    let left = server().ask(&["KEYS", &format!("{}:*", options.prefix)]).unwrap();
    let left: BTreeSet<String> = left.lines().map(str::to_owned).collect();
    let keys = keys(&options);
    let logs = [ChangeKey::User("bob"), ChangeKey::Page(0), ChangeKey::Page(7), ChangeKey::Page(8)];
    let expected: BTreeSet<String> = logs.map(|key| keys.log(keys.group_of(key)).to_string()).into();
    let of_the_store = [keys.epoch().to_string(), keys.outage_grace().to_string(), keys.hosts().to_string()];
    assert_eq!(left.into_iter().filter(|key| !of_the_store.contains(key)).collect::<BTreeSet<_>>(), expected);
}

async fn until_answered(store: &NativeRedis) {
    let deadline = Instant::now() + PATIENCE;
    while store.settings_of(user("bob")).await.is_err() {
        assert!(Instant::now() < deadline, "the store never came back: {:?}", store.health());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outage_fails_calls_then_sends_a_hint() {
    let mut server = servers::Redis::with(servers::Options { durable: true, ..servers::Options::default() }).unwrap();
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let mut invalidated = store.invalidated();
    apply(&store, &bobs(3)).await;
    let (mut model, cursor) = load(&store).await;
    server.kill();
    let subjects = || -> Ids<UserId> { [&user("bob"), &user("7")].into_iter().collect() };
    let is_unavailable = |error: &Error| matches!(error, Error::Unavailable(ms) if *ms > 0);
    assert!(is_unavailable(&store.relations(Some(user("ann")), subjects()).await.unwrap_err()));
    assert!(is_unavailable(&store.relations(None, subjects()).await.unwrap_err()));
    assert!(is_unavailable(&store.settings_of(user("bob")).await.unwrap_err()));
    assert!(is_unavailable(&store.snapshot(0).await.unwrap_err()));
    assert!(is_unavailable(&store.snapshot(64).await.unwrap_err()));
    assert!(is_unavailable(&store.since(cursor.clone(), 100).await.unwrap_err()));
    let outcomes = store.apply_many(vec![restrict("bob"), restrict("7")]).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(is_unavailable)), "{outcomes:?}");
    invalidated.mark_unchanged();
    server.restart().unwrap();
    until_answered(&store).await;
    tokio::time::timeout(PATIENCE, invalidated.changed()).await.expect("the receiver gets a hint").unwrap();
    apply(&store, &[restrict("bob")]).await;
    follow(&store, &mut model, &cursor).await;
    let expected = [bobs(3), vec![restrict("bob")]].concat();
    assert_eq!(model, Model::of(&expected), "the server is durable, so nothing was missed");
    assert!(relation(&store, "ann", "bob").await.restricted);
}

/// Missing scripts are loaded again, and one user's changes keep their order.
#[tokio::test]
async fn missing_scripts_are_loaded_and_order_kept() {
    let server = servers::Redis::start().unwrap();
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let (_, cursor) = load(&store).await;
    for _ in 0..5 {
        server.ask(&["SCRIPT", "FLUSH"]).unwrap();
        apply(&store, &[block("bob", "ann"), unblock("bob", "ann"), restrict("7"), unrestrict("7")]).await;
    }
    let (read, _) = changes_since(&store, &cursor, 1000).await;
    let bobs: Vec<PolicyChange> = read
        .iter()
        .filter(|change| matches!(change, PolicyChange::Block(..) | PolicyChange::Unblock(..)))
        .cloned()
        .collect();
    assert_eq!(bobs, vec![[block("bob", "ann"), unblock("bob", "ann")]; 5].concat());
    assert_eq!(load(&store).await.0, Model::default());
}

/// A server without memory refuses a script as a whole: nothing is set that is not logged.
#[tokio::test]
async fn full_memory_keeps_log_and_settings_consistent() {
    let server = servers::Redis::start().unwrap();
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let before = [bobs(3), vec![restrict("7"), restrict("bob")]].concat();
    apply(&store, &before).await;
    let (mut followed, cursor) = load(&store).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "100kb"]).unwrap();
    let changes = vec![
        unblock("bob", "user-0"),
        block("bob", "ann"),
        unrestrict("bob"),
        unrestrict("7"),
        restrict("8"),
        PolicyChange::RestrictMany(numbers(0, &[9])),
    ];
    let outcomes = store.apply_many(changes.clone()).await.unwrap();
    assert!(outcomes.iter().any(Result::is_err), "{outcomes:?}");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    until_answered(&store).await;
    let mut expected = Model::of(&before);
    let applied = changes.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
    applied.for_each(|(change, _)| expected.apply(change));
    assert_eq!(load(&store).await.0, expected);
    follow(&store, &mut followed, &cursor).await;
    assert_eq!(followed, expected);
    apply(&store, &changes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documented_permissions_are_enough() {
    let server = servers::Redis::start().unwrap();
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let rights = manual.lines().find(|line| line.starts_with("ACL SETUSER rollcall on ")).unwrap();
    assert_eq!(server.ask(&rights.split(' ').collect::<Vec<_>>()).unwrap(), "OK");
    let url = server.url().replace("redis://", "redis://rollcall:password@");
    let store = NativeRedis::open(&url, Options::default()).await.unwrap();
    let mut invalidated = store.invalidated();
    tokio::time::timeout(PATIENCE, invalidated.changed()).await.expect("it subscribes").unwrap();
    let added = [block("bob", "ann"), restrict("bob"), restrict("7"), PolicyChange::RestrictMany(numbers(5, &[1, 2]))];
    apply(&store, &added).await;
    let (mut followed, cursor) = load(&store).await;
    assert_eq!(followed, Model::of(&added));
    let no_more =
        [unblock("bob", "ann"), unrestrict("bob"), unrestrict("7"), PolicyChange::UnrestrictMany(numbers(5, &[1, 2]))];
    apply(&store, &no_more).await;
    follow(&store, &mut followed, &cursor).await;
    assert_eq!(followed, Model::default());
    assert!(!relation(&store, "7", "bob").await.blocked && !relation(&store, "bob", "7").await.restricted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn large_bucket_is_read_in_slices() {
    const FIELDS: usize = 50_000;
    let server = servers::Redis::start().unwrap();
    let keys = keys(&Options::default());
    let bucket = keys.bucket_of("bob");
    let key = format!("rc:{{{}}}:policy:{bucket}", keys.group_of_bucket(bucket));
    let fields: Vec<String> = (0..FIELDS).map(|number| format!("bob\nbuser-{number}")).collect();
    for fields in fields.chunks(5000) {
        let command = ["HSET", &key].into_iter().chain(fields.iter().flat_map(|field| [field.as_str(), "1"]));
        server.ask(&command.collect::<Vec<_>>()).unwrap();
    }
    let store = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let (mut next, mut met) = (Some(0), BTreeSet::new());
    while let Some(number) = next {
        let page = store.snapshot(number).await.unwrap();
        assert!(page.changes.len() < FIELDS / 2, "{} at once", page.changes.len());
        for change in page.changes {
            assert!(met.insert(format!("{change:?}")), "read twice: {change:?}");
        }
        next = page.next;
    }
    assert_eq!(met.len(), FIELDS);
}
