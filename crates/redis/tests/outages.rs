//! The store when Redis fails: killed, empty, hung, full, or refusing. Calls fail at once, the store recovers without a
//! restart, and no user goes offline because of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]
// Each test file uses its own part of the suite.
#![allow(dead_code, unused_macros, reason = "the suite is for all stores; this file tests the outages of this one")]

mod log_capture;
mod remote;
#[path = "../../store/tests/suite/mod.rs"]
mod suite;

use std::time::{Duration, Instant};

use rollcall_core::{ConversationId, Error, Next, OutageGrace, Span, State, Time};
use rollcall_functions::capabilities::{Committed, DeviceEvent, LastSeenEntry, TypingSignal};
use rollcall_redis::native::{Health, NativeRedis, NotificationState, OpenError, Options};
use rollcall_redis::{Keyspace, Script};
use rollcall_servers::redis as servers;
use rollcall_store::{ArchiveStore, SessionStore, Topic, TopicStore};

use log_capture::LogCapture;
use remote::PATIENCE;
use suite::{beat, commit, due, evict, load, publish, settle, touch, touch_one, touch_with, user, wait_for};

/// The longest time until a call fails when the store is down.
const AT_MOST: Duration = Duration::from_secs(2);

const OUTAGE_GRACE: Span = Span::seconds(45);

fn options() -> Options {
    Options { outage_grace: OUTAGE_GRACE, ..Options::default() }
}

async fn open(server: &servers::Redis) -> NativeRedis {
    NativeRedis::open(&server.url(), options()).await.unwrap()
}

fn durable() -> servers::Redis {
    servers::Redis::with(servers::Options { durable: true, ..servers::Options::default() }).unwrap()
}

fn keys() -> Keyspace {
    Keyspace::new("rc", 256).unwrap()
}

/// Checks the basic operations of a store.
async fn works(store: &NativeRedis, name: &str) {
    let at = touch_one(store, beat(name, "web-1")).await;
    settle(store, name, publish(State::Online, at)).await;
    let prior = touch(store, vec![beat(name, "web-1")]).await.prior.remove(0).unwrap();
    assert_eq!(prior.state, State::Online);
    let revision = load(store, name).await.revision;
    assert_eq!(commit(store, name, revision, wait_for(Next::Settle(at))).await, Committed::Applied);
    assert!(due(store).await.contains(&user(name)));
}

/// Beats until the store notices that Redis is down; returns the longest time a beat took.
async fn until_refused(store: &NativeRedis) -> Duration {
    let deadline = Instant::now() + PATIENCE;
    let mut longest = Duration::ZERO;
    loop {
        let started = Instant::now();
        let prior = touch(store, vec![beat("bob", "web-1")]).await.prior.remove(0);
        longest = longest.max(started.elapsed());
        match prior {
            Ok(_) => assert!(Instant::now() < deadline, "the outage was never noticed"),
            Err(error) => {
                assert!(matches!(error, Error::Unavailable(ms) if ms > 0), "{error:?}");
                return longest;
            }
        }
    }
}

async fn until(store: &NativeRedis, what: &str, holds: impl Fn(&NativeRedis) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds(store) {
        assert!(Instant::now() < deadline, "timed out waiting for {what}: {:?}", store.health());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_up(store: &NativeRedis) -> bool {
    store.health() == Health::Up
}

/// The outage grace stored in Redis.
fn recorded(server: &servers::Redis) -> Option<OutageGrace> {
    let text = server.ask(&["GET", &keys().outage_grace().to_string()]).unwrap();
    let (since, until) = text.split_once(' ')?;
    Some(OutageGrace { since: Time(since.parse().unwrap()), until: Time(until.parse().unwrap()) })
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_is_noticed_and_grace_recorded() {
    let mut server = durable();
    let (store, other) = (open(&server).await, open(&server).await);
    works(&store, "bob").await;
    let last_beat = touch_one(&store, beat("bob", "web-1")).await;
    assert_eq!(store.outage_grace(), None);
    server.kill();
    assert!(until_refused(&store).await < AT_MOST);
    assert!(matches!(store.health(), Health::Down { .. }));
    let started = Instant::now();
    for _ in 0..100 {
        assert!(touch(&store, vec![beat("bob", "web-1")]).await.prior[0].is_err());
        assert!(store.load_many(vec![user("bob")]).await.unwrap().sessions[0].is_err());
        assert_eq!(store.due(suite::all(&store), 10).await, Err(Error::Unavailable(500)));
    }
    assert!(started.elapsed() < Duration::from_secs(1), "calls fail at once while it is down: {:?}", started.elapsed());
    server.restart().unwrap();
    for store in [&store, &other] {
        until(store, "it to come back", is_up).await;
        // Both may have recorded one; within a second each reads the merged one.
        until(store, "the outage grace", |store| store.outage_grace() == recorded(&server)).await;
        let loaded = store.load_many(vec![user("bob")]).await.unwrap();
        let outage_grace = loaded.moment.outage_grace.expect("an outage grace");
        // The earlier start counts, and the idle store asks only once a second.
        assert!(outage_grace.since.0 + 2000 >= last_beat.0, "{outage_grace:?} after {last_beat:?}");
        assert!(outage_grace.since <= loaded.moment.now);
        assert!(
            outage_grace.until <= loaded.moment.now + OUTAGE_GRACE
                && outage_grace.until.0 > loaded.moment.now.0 + 30_000
        );
        assert_eq!(loaded.sessions[0].as_ref().unwrap().devices.len(), 1, "nothing was lost");
    }
    assert_eq!((store.stats().reconnects.get(), store.stats().data_losses.get()), (1, 0));
    works(&store, "bob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_server_invalidates_the_deadline_cache() {
    let mut server = servers::Redis::start().unwrap();
    let store =
        NativeRedis::open(&server.url(), Options { evict_after: Span::seconds(60), ..options() }).await.unwrap();
    for _ in 0..2 {
        touch_one(&store, beat("bob", "web-1")).await;
    }
    server.kill();
    until_refused(&store).await;
    server.restart().unwrap();
    until(&store, "it to come back", is_up).await;
    let at = touch_one(&store, beat("bob", "web-1")).await;
    assert_eq!(load(&store, "bob").await.next, Next::Settle(at + suite::ALIVE_FOR));
    let calls = server.ask(&["INFO", "commandstats"]).unwrap();
    let at = |command: &str| calls.lines().any(|line| line.starts_with(&format!("cmdstat_{command}:calls=1,")));
    assert!(at("zadd") && at("hset"), "the deadline is set with the beat: {calls}");
}

#[tokio::test]
async fn data_loss_is_logged_once() {
    let log_capture = LogCapture::open();
    let mut server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    works(&store, "bob").await;
    server.restart().unwrap();
    until_refused(&store).await;
    until(&store, "it to come back", is_up).await;
    assert_eq!(load(&store, "bob").await.devices.len(), 0);
    assert_eq!(store.stats().data_losses.get(), 1);
    assert_eq!(log_capture.count("lost its data"), 1, "{log_capture:?}");
    assert!(store.outage_grace().is_some());
    works(&store, "bob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_server_times_out() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    works(&store, "bob").await;
    let port = server.port().to_string();
    let mut sleeper =
        std::process::Command::new("redis-cli").args(["-p", &port, "DEBUG", "SLEEP", "4"]).spawn().unwrap();
    assert!(until_refused(&store).await < AT_MOST);
    let started = Instant::now();
    assert!(touch(&store, vec![beat("bob", "web-1")]).await.prior[0].is_err());
    assert!(started.elapsed() < Duration::from_millis(200), "the next call does not wait");
    until(&store, "it to come back", is_up).await;
    assert!(sleeper.wait().unwrap().success());
    works(&store, "bob").await;
    assert!(store.outage_grace().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_server_is_noticed_without_calls() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    server.pause().unwrap();
    until(&store, "it to be noticed", |store| matches!(store.health(), Health::Down { .. })).await;
    server.resume().unwrap();
    until(&store, "it to come back", is_up).await;
    works(&store, "bob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_and_subscriptions_are_restored() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    let mut expiries = store.expiries();
    for round in 1..=3 {
        works(&store, "bob").await;
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
        server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        until_refused(&store).await;
        until(&store, "it to come back", is_up).await;
        assert!(store.stats().reconnects.get() >= round);
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let at = touch_one(&store, beat("eve", "web-1")).await;
        settle(&store, "eve", wait_for(Next::Settle(at))).await;
        store.trigger_expiry(&[user("eve")]).await.unwrap();
        match tokio::time::timeout(Duration::from_millis(100), expiries.next()).await {
            Ok(Some(batch)) if batch.contains(&user("eve")) => return,
            _ => assert!(Instant::now() < deadline, "no expiry after the reconnect"),
        }
    }
}

#[tokio::test]
async fn wrong_password_is_reported_once() {
    let options = servers::Options { password: Some("right".to_owned()), ..servers::Options::default() };
    let server = servers::Redis::with(options).unwrap();
    for url in [server.url().replace("right", "wrong"), server.url().replace(":right@", "")] {
        let error = NativeRedis::open(&url, self::options()).await.unwrap_err();
        let OpenError::Unusable { server: named, reason } = &error else { panic!("{error:?}") };
        assert!(named.contains("127.0.0.1") && reason.contains("permission refused"), "{error}");
        assert!(!error.to_string().contains("wrong"), "a password is never shown: {error}");
    }
    // The password changes while the store runs: logged once, and recovered without a restart.
    let log_capture = LogCapture::open();
    let store = open(&server).await;
    works(&store, "bob").await;
    server.ask(&["CONFIG", "SET", "requirepass", "other"]).unwrap();
    let asked = |args: &[&str]| {
        let port = server.port().to_string();
        let output = std::process::Command::new("redis-cli").args(["-p", &port, "-a", "other"]).args(args).output();
        assert!(output.unwrap().status.success());
    };
    asked(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_refused(&store).await;
    until(
        &store,
        "the refusal",
        |store| matches!(store.health(), Health::Down { reason } if reason.contains("permission refused")),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(log_capture.count("permission refused"), 1, "{log_capture:?}");
    asked(&["CONFIG", "SET", "requirepass", "right"]);
    until(&store, "it to come back", is_up).await;
    works(&store, "bob").await;
}

/// The permissions that the operations manual lists as sufficient.
fn documented_permissions() -> String {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    manual.lines().find(|line| line.starts_with("ACL SETUSER rollcall on ")).unwrap().to_owned()
}

fn allow(server: &servers::Redis, rights: &str) {
    assert_eq!(server.ask(&rights.split(' ').collect::<Vec<_>>()).unwrap(), "OK");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_permissions_are_enough() {
    let mut server = servers::Redis::start().unwrap();
    let url = server.url().replace("redis://", "redis://rollcall:password@");
    allow(&server, &documented_permissions());
    let store = NativeRedis::open(&url, options()).await.unwrap();
    let mut expiries = store.expiries();
    works(&store, "bob").await;
    let touches = vec![
        touch_with("bob", "web-1", DeviceEvent::Dropped(Span(5))),
        beat("bob", "web-2"),
        touch_with("bob", "web-2", DeviceEvent::Logout),
    ];
    assert!(touch(&store, touches).await.prior.iter().all(Result::is_ok));
    for index in 0..70 {
        touch_one(&store, beat("bob", &format!("d-{index}"))).await;
    }
    let mut decision = publish(State::Offline, store.now());
    decision.prune_expired_by = store.now();
    decision.next = Next::Evict(Time(1));
    settle(&store, "bob", decision).await;
    assert_eq!(suite::evictable(&store).await, [user("bob")]);
    settle(&store, "bob", wait_for(Next::Nothing)).await;
    let revision = load(&store, "bob").await.revision;
    assert_eq!(evict(&store, "bob", revision).await, Committed::Applied);
    settle(&store, "eve", wait_for(Next::Settle(Time(1)))).await;
    store.trigger_expiry(&[user("eve")]).await.unwrap();
    store.put_many(vec![LastSeenEntry { user: user("eve"), last_seen: Time(7) }]).await.unwrap();
    assert_eq!(store.get_many([user("eve")].into()).await.unwrap(), [Some(Time(7))]);
    assert_eq!(store.renew_membership("host-1").await.unwrap(), ["host-1"]);
    store.leave_membership("host-1").await.unwrap();
    let subscription = store.subscription();
    let topics = [Topic::User(user("bob")), Topic::Conversation(ConversationId::parse("c").unwrap())];
    subscription.watch(&topics).await.unwrap();
    let signal =
        TypingSignal { conversation: ConversationId::parse("c").unwrap(), user: user("bob"), lasts: Span(5000) };
    assert_eq!(store.set_typing(vec![signal.clone(), signal]).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(store.typists(vec![ConversationId::parse("c").unwrap()]).await.unwrap()[0].as_ref().unwrap().len(), 1);
    assert_eq!(store.count_watchers("host-1", vec![(user("bob"), 3)]).await.unwrap(), [3]);
    assert_eq!(store.count_watchers("host-1", vec![(user("bob"), 0)]).await.unwrap(), [0]);
    assert_eq!(tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().typing.len(), 1);
    subscription.unwatch(&topics);
    subscription.watch(&topics).await.unwrap();
    server.restart().unwrap();
    allow(&server, &documented_permissions());
    until_refused(&store).await;
    until(&store, "it to come back", is_up).await;
    assert!(recorded(&server).is_some(), "an outage grace was recorded");
    let deadline = Instant::now() + PATIENCE;
    loop {
        settle(&store, "eve", wait_for(Next::Settle(Time(1)))).await;
        match tokio::time::timeout(Duration::from_millis(100), expiries.next()).await {
            Ok(Some(batch)) if batch.contains(&user("eve")) => break,
            _ => assert!(Instant::now() < deadline, "no expiry was received"),
        }
    }
    assert_eq!(expiries.notification_state(), NotificationState::On);
}

#[tokio::test]
async fn missing_permissions_are_reported_once() {
    let log_capture = LogCapture::open();
    let server = servers::Redis::start().unwrap();
    let url = server.url().replace("redis://", "redis://rollcall:password@");
    allow(&server, &documented_permissions());
    let store = NativeRedis::open(&url, options()).await.unwrap();
    works(&store, "bob").await;
    allow(&server, "ACL SETUSER rollcall -zadd");
    for index in 0..5 {
        // New users: a steady beat does not use `ZADD`.
        let prior = touch(&store, vec![beat(&format!("user-{index}"), "web-1")]).await.prior.remove(0);
        assert!(matches!(prior, Err(Error::Unavailable(_))), "{prior:?}");
    }
    assert_eq!(log_capture.count("does not allow a command"), 1, "once, not five times: {log_capture:?}");
    assert_eq!(log_capture.count("zadd"), 1, "it names the command: {log_capture:?}");
    allow(&server, "ACL SETUSER rollcall +zadd");
    works(&store, "bob").await;
    // Without CONFIG the store works, and logs what is missing.
    allow(&server, "ACL SETUSER rollcall -config");
    let expiries = store.expiries();
    let deadline = Instant::now() + PATIENCE;
    while expiries.notification_state() != NotificationState::Unconfirmed {
        assert!(Instant::now() < deadline, "the missing CONFIG permission is not reported");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(log_capture.count("only the sweep"), 1, "{log_capture:?}");
    works(&store, "bob").await;
}

#[tokio::test]
async fn full_memory_is_a_temporary_outage() {
    let log_capture = LogCapture::open();
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    works(&store, "bob").await;
    let before = load(&store, "bob").await;
    server.ask(&["CONFIG", "SET", "maxmemory", "100kb"]).unwrap();
    assert!(until_refused(&store).await < AT_MOST);
    until(
        &store,
        "the reason",
        |store| matches!(store.health(), Health::Down { reason } if reason.contains("maxmemory")),
    )
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(log_capture.count("memory is full"), 1, "{log_capture:?}");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    until(&store, "it to come back", is_up).await;
    assert!(store.outage_grace().is_some(), "an outage grace covers the lost beats");
    assert_eq!(load(&store, "bob").await.published, before.published);
    works(&store, "bob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_outage_graces_are_merged() {
    let server = servers::Redis::start().unwrap();
    let key = keys().outage_grace().to_string();
    let outage_grace = |since: u64, until: u64| {
        let args = [since.to_string(), until.to_string(), "1000".to_owned()];
        let mut call = vec!["EVAL", Script::OutageGrace.source(), "1", key.as_str()];
        call.extend(args.iter().map(String::as_str));
        server.ask(&call).unwrap().replace('\n', " ")
    };
    assert_eq!(outage_grace(1000, 2000), "1000 2000");
    assert_eq!(outage_grace(1500, 3000), "1000 3000", "the earlier start and the later end");
    assert_eq!(outage_grace(900, 2500), "900 3000");
    assert_eq!(outage_grace(3001, 60_000), "3001 60000", "an ended one does not extend the next");
    let left: u64 = server.ask(&["PTTL", &key]).unwrap().parse().unwrap();
    assert!((50_000..=59_000).contains(&left), "it expires when it ends: {left}");
    // A store that opens while an outage grace is in force knows it from the start.
    server.ask(&["SET", &key, "1 99999999999999"]).unwrap();
    let store = open(&server).await;
    let outage_grace = store.load_many(Vec::new()).await.unwrap().moment.outage_grace;
    assert_eq!(outage_grace, Some(OutageGrace { since: Time(1), until: Time(99_999_999_999_999) }));
}

#[tokio::test]
async fn invalid_address_and_missing_server_are_reported() {
    for url in ["localhost:6379", "http://127.0.0.1", "redis+cluster://127.0.0.1:1/5"] {
        assert!(matches!(NativeRedis::open(url, options()).await, Err(OpenError::Address(_))), "{url}");
    }
    let bad_prefix = Options { prefix: "a b".to_owned(), ..options() };
    assert!(matches!(NativeRedis::open("redis://127.0.0.1:1", bad_prefix).await, Err(OpenError::Prefix(_))));
    let started = Instant::now();
    for url in ["redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1,127.0.0.1:2"] {
        assert!(matches!(NativeRedis::open(url, options()).await, Err(OpenError::Unusable { .. })), "{url}");
    }
    assert!(started.elapsed() < Duration::from_secs(5));
    // A server that is not a Cluster is refused as one.
    let server = servers::Redis::start().unwrap();
    let url = server.url().replace("redis://", "redis+cluster://");
    assert!(matches!(NativeRedis::open(&url, options()).await, Err(OpenError::Unusable { .. })));
}
