//! The store on a single Redis: the whole suite, and what this store promises while Redis works. For failures see
//! `outages.rs`.

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
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rollcall_core::{MAX_DEVICES, Next, Note, Revision, Rules, Session, Span, State, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction, Shards};
use rollcall_functions::heartbeat::{Beat, beat_many};
use rollcall_functions::sweep;
use rollcall_redis::native::{NativeRedis, NotificationState, Options};
use rollcall_redis::{Commands, DEFAULT_SHARDS, Deadline, Keyspace, Stamped, Touching};
use rollcall_servers::redis as servers;
use rollcall_store::{Clock, NativeArchive, NativeSessions, SessionStore, SqliteArchive};

use remote::{PATIENCE, Remote, Topics, fresh_prefix};
use suite::{
    Subject, all, beat, commit, evict, idle_beat, load, publish, settle, touch, touch_one, touch_with, user, wait_for,
};

/// One server for all tests that do not break it.
fn server() -> &'static servers::Redis {
    static SERVER: OnceLock<servers::Redis> = OnceLock::new();
    SERVER.get_or_init(|| servers::Redis::start().unwrap())
}

async fn subject() -> Remote {
    Remote::new(&server().url(), Topics::Plain, |_| server().url()).await
}

suite!(subject().await);

/// A store on Redis's clock, with its own keys.
async fn open(server: &servers::Redis) -> NativeRedis {
    NativeRedis::open(&server.url(), Options { prefix: fresh_prefix(), ..Options::default() }).await.unwrap()
}

/// How often each command was called.
fn calls(server: &servers::Redis) -> HashMap<String, u64> {
    let info = server.ask(&["INFO", "commandstats"]).unwrap();
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(count).collect()
}

#[tokio::test]
async fn steady_beat_is_two_plain_commands() {
    let server = servers::Redis::start().unwrap();
    let clock = Clock::manual(Time(1_700_000_000_000));
    let options = Options { clock: Some(clock.clone()), evict_after: Span::seconds(60), ..Options::default() };
    let store = Arc::new(NativeRedis::open(&server.url(), options).await.unwrap());
    let native = NativeSessions(Arc::clone(&store) as Arc<dyn SessionStore>);
    let beats = || {
        let beat = |index: usize| Beat {
            user: user(&format!("user-{index}")),
            device: suite::device("web-1"),
            kind: rollcall_core::DeviceKind::Web,
            active: index.is_multiple_of(2),
        };
        (0..100).map(beat).collect()
    };
    // Hints up to the instant of the connection are invalid.
    clock.advance(Span::seconds(1));
    for _ in 0..2 {
        beat_many(&native, &Rules::STANDARD, beats()).await.unwrap();
    }
    let counted = async || {
        server.ask(&["CONFIG", "RESETSTAT"]).unwrap();
        beat_many(&native, &Rules::STANDARD, beats()).await.unwrap();
        let mut calls = calls(&server);
        // Leaves out this measurement and the background tasks.
        calls.retain(|name, _| !["info", "config|resetstat", "time", "get", "client|setinfo"].contains(&name.as_str()));
        calls
    };
    let hundred = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 100)).collect::<HashMap<_, _>>();
    assert_eq!(counted().await, hundred(&["hset", "hget"]));
    clock.advance(Span::seconds(30));
    assert_eq!(counted().await, hundred(&["hset", "hget"]), "one interval later too");
    clock.advance(Span::seconds(58));
    assert_eq!(counted().await, hundred(&["zadd", "hset", "hget"]), "a silent user may have been evicted");
}

/// Two processes on the same data, and their clock.
async fn two_processes(server: &servers::Redis) -> (NativeRedis, NativeRedis, Clock, Keyspace) {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(Time(1_700_000_000_000)));
    let options = Options {
        prefix: prefix.clone(),
        clock: Some(clock.clone()),
        evict_after: Span::seconds(60),
        ..Options::default()
    };
    let one = NativeRedis::open(&server.url(), options.clone()).await.unwrap();
    let other = NativeRedis::open(&server.url(), options).await.unwrap();
    (one, other, clock, Keyspace::new(&prefix, DEFAULT_SHARDS).unwrap())
}

/// Brings bob online in one process, whose deadline cache then holds his deadline.
async fn bring_bob_online(store: &NativeRedis, clock: &Clock) {
    // Hints up to the instant of the connection, or of a data loss, are invalid.
    clock.advance(Span::seconds(1));
    let at = touch_one(store, beat("bob", "web-1")).await;
    settle(store, "bob", publish(State::Online, at)).await;
    let before = store.stats().commands.get();
    for _ in 0..20 {
        touch_one(store, beat("bob", "web-1")).await;
    }
    // Two per beat, not three; and a few for sampling the time.
    assert!(store.stats().commands.get() - before < 60, "the deadline cache is used");
}

#[tokio::test]
async fn evicted_user_is_due_after_the_next_beat() {
    let (one, other, clock, _) = two_processes(server()).await;
    for next in [Next::Nothing, Next::Evict(Time(u64::MAX)), Next::Settle(Time(u64::MAX))] {
        bring_bob_online(&one, &clock).await;
        settle(&other, "bob", wait_for(next)).await;
        let at = touch_one(&one, beat("bob", "web-1")).await;
        assert_eq!(load(&other, "bob").await.next, Next::Settle(at + suite::ALIVE_FOR), "waited for {next:?}");
    }
    bring_bob_online(&one, &clock).await;
    let revision = load(&other, "bob").await.revision;
    assert_eq!(evict(&other, "bob", revision).await, Committed::Applied);
    let at = touch_one(&one, beat("bob", "web-1")).await;
    assert_eq!(load(&other, "bob").await.next, Next::Settle(at + suite::ALIVE_FOR));
}

#[tokio::test]
async fn beat_of_a_dead_process_is_settled() {
    let (one, other, clock, _) = two_processes(server()).await;
    bring_bob_online(&one, &clock).await;
    let sweeping = NativeSessions(Arc::new(other));
    let everywhere = Shards { first: 0, end: DEFAULT_SHARDS };
    clock.advance(suite::ALIVE_FOR);
    let swept = sweep::sweep(&sweeping, &Rules::STANDARD, everywhere, 10).await.unwrap();
    assert_eq!(swept.published, 1, "bob is offline");
    // The beat that would bring him online again, and nothing after it.
    let at = touch_one(&one, beat("bob", "web-1")).await;
    drop(one);
    clock.advance(suite::ALIVE_FOR);
    let swept = sweep::sweep(&sweeping, &Rules::STANDARD, everywhere, 10).await.unwrap();
    assert_eq!((swept.examined, swept.published), (1, 1));
    assert_eq!(load(&*sweeping.0, "bob").await.published.unwrap().last_seen, Some(at));
}

/// The only case in which a touched session is not due: the process that trusted its deadline cache was killed between
/// the touch and its reply. The session waits for its eviction, and the eviction finds the touch.
#[tokio::test]
async fn eviction_finds_a_touch_without_deadline() {
    let (one, other, clock, keys) = two_processes(server()).await;
    bring_bob_online(&one, &clock).await;
    drop(one);
    let rules = Rules { evict_after: Span::seconds(60), ..Rules::STANDARD };
    let sweeping = NativeSessions(Arc::new(other));
    let archive = NativeArchive(Arc::new(SqliteArchive::in_memory().unwrap()));
    let everywhere = Shards { first: 0, end: DEFAULT_SHARDS };
    clock.advance(suite::ALIVE_FOR);
    assert_eq!(sweep::sweep(&sweeping, &rules, everywhere, 10).await.unwrap().published, 1);
    clock.advance(Span::seconds(5));
    let at = clock.now();
    let mut event = Commands::default();
    let beat = Touching { user: "bob", device: "web-1", event: beat("bob", "web-1").event };
    keys.touch(&mut event, beat, Stamped { now_us: at.0 * 1000, stamp: 5 }, Deadline::Trusted);
    let args: Vec<String> = event.get(0).unwrap().args().map(|arg| String::from_utf8(arg.to_vec()).unwrap()).collect();
    server().ask(&args.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert!(suite::due(&*sweeping.0).await.is_empty());
    clock.advance(rules.evict_after);
    sweep::archive(&sweeping, &archive, &rules, everywhere, 10).await.unwrap();
    assert_eq!(load(&*sweeping.0, "bob").await.published.unwrap().last_seen, Some(at), "the eviction settles it");
}

#[tokio::test]
async fn flushed_data_leave_no_user_without_deadline() {
    let server = servers::Redis::start().unwrap();
    let (store, _, clock, _) = two_processes(&server).await;
    clock.advance(Span::seconds(1));
    let names = ["bob", "eve"];
    for _ in 0..2 {
        touch(&store, names.iter().map(|name| beat(name, "web-1")).collect()).await;
    }
    server.ask(&["FLUSHALL"]).unwrap();
    let at = touch_one(&store, beat("bob", "web-1")).await;
    assert_eq!(load(&store, "bob").await.next, Next::Settle(at + suite::ALIVE_FOR));
    // A process that finds a data loss invalidates all its hints.
    server.ask(&["CONFIG", "RESETSTAT"]).unwrap();
    touch_one(&store, beat("eve", "web-1")).await;
    assert_eq!(calls(&server).get("zadd"), Some(&1));
    assert_eq!(load(&store, "eve").await.next, Next::Settle(at + suite::ALIVE_FOR));
}

#[tokio::test]
async fn load_of_two_hundred_is_one_round_trip() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    let users: Vec<UserId> = (0..200).map(|index| user(&format!("user-{index}"))).collect();
    // The time is sampled in the background, with one round trip each.
    let trips = |store: &NativeRedis| store.stats().round_trips.get() - calls(&server)["time"];
    let before = trips(&store);
    assert_eq!(store.load_many(users).await.unwrap().sessions.len(), 200);
    assert_eq!(trips(&store) - before, 1);
}

#[tokio::test]
async fn missing_scripts_are_loaded_and_order_kept() {
    // A separate server: opening any store on it loads the scripts.
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    let at = touch_one(&store, beat("bob", "web-1")).await;
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    settle(&store, "bob", publish(State::Online, at)).await;
    assert!(store.stats().scripts_reloaded.get() >= 1);
    // The departure in the middle needs a missing script; the beat after it must still come after it.
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    let touches =
        vec![beat("bob", "web-1"), touch_with("bob", "web-1", DeviceEvent::Logout), idle_beat("bob", "web-1")];
    assert!(touch(&store, touches).await.prior.iter().all(Result::is_ok));
    let bob = load(&store, "bob").await;
    assert_eq!((bob.devices.len(), bob.devices[0].active_at), (1, None));
    assert!(bob.devices[0].expires_at > at, "the beat came after the logout");
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(evict(&store, "bob", bob.revision).await, Committed::Applied);
}

#[tokio::test]
async fn commit_batch_survives_missing_scripts() {
    let store = open(server()).await;
    let names: Vec<String> = (0..1000).map(|index| format!("user-{index}")).collect();
    let at = touch(&store, names.iter().map(|name| beat(name, "web-1")).collect()).await.now;
    let loaded = store.load_many(names.iter().map(|name| user(name)).collect()).await.unwrap();
    let commits = names.iter().zip(loaded.sessions).map(|(name, session)| Commit {
        user: user(name),
        expected: session.unwrap().revision,
        decision: publish(State::Online, at),
    });
    let commits: Vec<_> = commits.collect();
    server().ask(&["SCRIPT", "FLUSH"]).unwrap();
    let outcomes = store.commit_many(commits).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(Committed::Applied)));
}

#[tokio::test]
async fn payload_is_json_that_names_its_user() {
    let store = open(server()).await;
    let at = touch_one(&store, beat("bob", "web-1")).await;
    let mut decision = publish(State::Away, at);
    let published = decision.publish.as_mut().unwrap();
    published.note = Some(Note { text: "at \"lunch\"".to_owned(), emoji: "🍜".to_owned(), until: None });
    let subject = subject().await;
    settle(&*subject.store, "bob", decision.clone()).await;
    assert_eq!(subject.published(&user("bob"), 1).await, [decision.publish.unwrap()]);
    let kept = server().ask(&["HGET", &subject.keys.user("bob").to_string(), "n"]).unwrap();
    assert_eq!(kept, r#"{"text":"at \"lunch\"","emoji":"🍜","until":null}"#, "the stored note is JSON too");
}

#[tokio::test]
async fn expired_devices_are_trimmed_first() {
    let subject = subject().await;
    for index in 0..MAX_DEVICES {
        touch_one(&*subject.store, beat("bob", &format!("d-{index}"))).await;
        subject.advance(Span(1));
    }
    touch_one(&*subject.store, touch_with("bob", "d-40", DeviceEvent::Logout)).await;
    touch_one(&*subject.store, beat("bob", "one-more")).await;
    let bob = load(&*subject.store, "bob").await;
    let has = |id: &str| bob.devices.iter().any(|device| device.id.as_str() == id);
    assert!(bob.devices.len() == MAX_DEVICES && has("d-0") && has("one-more") && !has("d-40"));
}

#[tokio::test]
async fn many_new_devices_stay_within_the_bound() {
    let store = open(server()).await;
    let touches = (0..300).map(|index| beat("bob", &format!("d-{index}"))).collect();
    assert!(touch(&store, touches).await.prior.iter().all(Result::is_ok));
    touch_one(&store, beat("bob", "one-more")).await;
    let bob = load(&store, "bob").await;
    assert_eq!(bob.devices.len(), MAX_DEVICES);
    assert!(bob.devices.iter().any(|device| device.id.as_str() == "one-more"));
}

#[tokio::test]
async fn empty_session_keeps_no_key() {
    let subject = subject().await;
    let store = &*subject.store;
    assert_eq!(commit(store, "bob", Revision::default(), wait_for(Next::Nothing)).await, Committed::Applied);
    assert_eq!(load(store, "bob").await, Session::default());
    let at = touch_one(store, beat("bob", "web-1")).await;
    settle(store, "bob", publish(State::Online, at)).await;
    let revision = load(store, "bob").await.revision;
    assert_eq!(evict(store, "bob", revision).await, Committed::Applied);
    let (shard, keys) = (subject.keys.shard_of("bob"), &subject.keys);
    for key in [keys.user("bob"), keys.alive("bob"), keys.due(shard), keys.archive_queue(shard)] {
        assert_eq!(server().ask(&["EXISTS", &key.to_string()]).unwrap(), "0", "{key}");
    }
}

/// A connection that breaks in the middle of a beat can leave a user due without a session.
#[tokio::test]
async fn due_user_without_session_is_settled() {
    let subject = subject().await;
    let shard = subject.keys.shard_of("ghost");
    server().ask(&["ZADD", &subject.keys.due(shard).to_string(), "1", "ghost"]).unwrap();
    let store = NativeSessions(subject.store());
    let archive = NativeArchive(Arc::new(SqliteArchive::in_memory().unwrap()));
    let everywhere = Shards { first: 0, end: DEFAULT_SHARDS };
    let rules = Rules::STANDARD;
    assert_eq!(suite::due(&*subject.store).await, [user("ghost")]);
    sweep::sweep(&store, &rules, everywhere, 10).await.unwrap();
    assert!(suite::due(&*subject.store).await.is_empty());
    subject.advance(rules.evict_after);
    sweep::archive(&store, &archive, &rules, everywhere, 10).await.unwrap();
    assert_eq!(load(&*subject.store, "ghost").await, Session::default());
    assert!(suite::evictable(&*subject.store).await.is_empty());
}

#[tokio::test]
async fn users_with_a_deadline_are_counted() {
    let (store, other, clock, _) = two_processes(server()).await;
    assert_eq!(store.online_count().await, Ok(0));
    clock.advance(Span::seconds(1));
    for name in ["bob", "eve", "zoe"] {
        let at = touch_one(&store, beat(name, "web-1")).await;
        settle(&store, name, publish(State::Online, at)).await;
    }
    assert_eq!((store.online_count().await, other.online_count().await), (Ok(3), Ok(3)));
    let revision = load(&store, "bob").await.revision;
    let mut gone = publish(State::Offline, store.now());
    gone.next = Next::Evict(store.now() + Span::seconds(60));
    assert_eq!(commit(&store, "bob", revision, gone).await, Committed::Applied);
    assert_eq!(store.online_count().await, Ok(2), "an offline user has no deadline");
}

#[tokio::test]
async fn store_time_is_redis_time() {
    let (one, other) = (open(server()).await, open(server()).await);
    let reply = server().ask(&["TIME"]).unwrap();
    let seconds: u64 = reply.lines().next().unwrap().parse().unwrap();
    for store in [&one, &other] {
        assert!(store.now().0.abs_diff(seconds * 1000) < 5_000, "{:?} against {seconds}", store.now());
    }
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(one.now().0.abs_diff(wall) < 5_000 && one.now().0.abs_diff(other.now().0) < 100);
    let touched = touch_one(&one, beat("bob", "web-1")).await;
    assert!(touched >= Time(seconds * 1000) && touched <= one.now());
}

/// A user with a deadline in `in_ms`, and a key that expires then.
async fn expiring(store: &NativeRedis, name: &str, in_ms: u64) {
    let at = touch_one(store, beat(name, "web-1")).await;
    settle(store, name, wait_for(Next::Settle(at + Span(in_ms)))).await;
}

/// The next users notified, within this time.
async fn notified(expiries: &mut rollcall_redis::native::Expiries, patience: Duration) -> Vec<UserId> {
    tokio::time::timeout(patience, expiries.next()).await.ok().flatten().unwrap_or_default()
}

/// Waits until there is a subscription: hints before that are lost.
fn await_subscribers(server: &servers::Redis) {
    rollcall_servers::wait_until("a subscription", PATIENCE, || {
        let subscribed = server.ask(&["PUBSUB", "NUMSUB", "__keyevent@0__:expired"])?;
        Ok(subscribed.lines().nth(1).is_some_and(|count| count != "0"))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_our_expiries_are_notified() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    let mut expiries = store.expiries();
    await_subscribers(&server);
    server.ask(&["SET", "rc:{111}:alive:bob", "a foreign value", "PX", "1"]).unwrap();
    let before = Instant::now();
    expiring(&store, "bob", 200).await;
    assert_eq!(notified(&mut expiries, PATIENCE).await, [user("bob")]);
    assert!(before.elapsed() >= Duration::from_millis(200), "not before the deadline");
    assert_eq!((store.stats().expiries.get(), store.stats().expiries_dropped.get()), (1, 0));
    assert_eq!(expiries.notification_state(), NotificationState::On);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_alive_key_triggers_notification() {
    let server = servers::Redis::start().unwrap();
    server.ask(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).unwrap();
    let store = open(&server).await;
    let mut expiries = store.expiries();
    await_subscribers(&server);
    for name in ["ann", "bob", "cid"] {
        expiring(&store, name, if name == "cid" { 60_000 } else { 1 }).await;
    }
    assert!(
        notified(&mut expiries, Duration::from_millis(300)).await.is_empty(),
        "the key does not expire until it is read"
    );
    store.trigger_expiry(&["ann", "bob", "cid"].map(user)).await.unwrap();
    let mut all = Vec::new();
    while all.len() < 2 {
        let batch = notified(&mut expiries, PATIENCE).await;
        assert!(!batch.is_empty(), "only {all:?}");
        all.extend(batch);
    }
    all.sort();
    assert_eq!(all, ["ann", "bob"].map(user));
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_flags_are_kept() {
    let args = ["--notify-keyspace-events", "Kg"].map(str::to_owned).to_vec();
    let server = servers::Redis::with(servers::Options { args, ..servers::Options::default() }).unwrap();
    let store = open(&server).await;
    let _expiries = store.expiries();
    await_subscribers(&server);
    let flags = server.ask(&["CONFIG", "GET", "notify-keyspace-events"]).unwrap();
    let flags = flags.lines().nth(1).unwrap();
    assert!("KgEx".chars().all(|flag| flags.contains(flag)), "{flags}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_not_taken_are_found_by_the_sweep() {
    let server = servers::Redis::start().unwrap();
    let store = open(&server).await;
    let _never_read = store.expiries();
    await_subscribers(&server);
    // One at a time, so that each is a separate batch: more than the queue holds.
    let deadline = Instant::now() + PATIENCE;
    let mut index = 0;
    while store.stats().expiries_dropped.get() == 0 {
        assert!(Instant::now() < deadline, "{} notified", store.stats().expiries.get());
        let name = format!("user-{index}");
        expiring(&store, &name, 0).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        store.trigger_expiry(&[user(&name)]).await.unwrap();
        index += 1;
    }
    assert!(!suite::due(&store).await.is_empty(), "the sweep finds them");
}

#[tokio::test]
async fn revision_of_an_evicted_session_is_stale() {
    let keys = Options { prefix: fresh_prefix(), ..Options::default() };
    let (one, other) = (
        NativeRedis::open(&server().url(), keys.clone()).await.unwrap(),
        NativeRedis::open(&server().url(), keys).await.unwrap(),
    );
    let mut revisions = Vec::new();
    for store in [&one, &other, &one, &other] {
        touch_one(store, beat("bob", "web-1")).await;
        let revision = load(store, "bob").await.revision;
        assert!(!revisions.contains(&revision));
        let evictions = vec![Eviction { user: user("bob"), expected: revision }];
        assert_eq!(store.evict_many(evictions).await.unwrap(), [Ok(Committed::Applied)]);
        revisions.push(revision);
    }
    assert_eq!(all(&one).end, DEFAULT_SHARDS);
    assert!(Keyspace::new("rc", 0).is_ok());
}

#[tokio::test]
async fn connection_uses_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("server.crt"), folder.path().join("server.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let port = rollcall_servers::free_port().unwrap();
    let mut args = vec!["--tls-port".to_owned(), port.to_string(), "--tls-auth-clients".to_owned(), "no".to_owned()];
    for (flag, file) in
        [("--tls-cert-file", &certificate), ("--tls-key-file", &key), ("--tls-ca-cert-file", &certificate)]
    {
        args.extend([flag.to_owned(), file.display().to_string()]);
    }
    let _server = servers::Redis::with(servers::Options { args, ..servers::Options::default() }).unwrap();
    let url = format!("rediss://localhost:{port}");
    let trusting = Options { ca: Some(made.cert.pem().into_bytes()), ..Options::default() };
    let store = NativeRedis::open(&url, trusting).await.unwrap();
    touch_one(&store, beat("bob", "web-1")).await;
    assert_eq!(load(&store, "bob").await.devices.len(), 1);
    assert!(NativeRedis::open(&url, Options::default()).await.is_err(), "an unknown certificate authority is refused");
}

/// Memory of one online user with an id of 36 bytes, all keys together.
#[tokio::test]
async fn online_user_takes_at_most_650_bytes() {
    const PEOPLE: usize = 50_000;
    let server = servers::Redis::start().unwrap();
    let store = Arc::new(open(&server).await);
    let used = || {
        let info = server.ask(&["INFO", "memory"]).unwrap();
        info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse::<u64>().unwrap()
    };
    let native = NativeSessions(Arc::clone(&store) as Arc<dyn SessionStore>);
    let before = used();
    for first in (0..PEOPLE).step_by(1000) {
        let beat = |index: usize| Beat {
            user: user(&format!("6f9619ff-8b86-d011-b42d-{index:012x}")),
            device: suite::device("web-1"),
            kind: rollcall_core::DeviceKind::Web,
            active: true,
        };
        beat_many(&native, &Rules::STANDARD, (first..first + 1000).map(beat).collect()).await.unwrap();
    }
    let bytes = (used() - before) / PEOPLE as u64;
    println!("{bytes} bytes per online user");
    assert!(bytes <= 650, "{bytes} bytes");
}
