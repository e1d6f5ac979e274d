//! Time and outage grace on platforms where nothing runs between two calls: when an outage grace is recorded, and how
//! often Redis is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rollcall_core::{DeviceKind, OutageGrace, Rules, Span, State, Time};
use rollcall_functions::capabilities::{DeviceEvent, Loaded, Sessions, Shards, Touch, Touches};
use rollcall_functions::heartbeat::{Beat, beat_many};
use rollcall_functions::sweep::sweep;
use rollcall_redis::Keyspace;
use rollcall_redis::{Options, ProbingTransport, RedisStore};
use rollcall_servers::redis as servers;
use rollcall_store::Clock;

use crate::connection::{TestConnection, TestTime, platform, with_rules};
use crate::suite::{device, user};

const OUTAGE_GRACE: Span = Span::seconds(45);

/// Times short enough for a test to wait for.
const QUICK: Rules = Rules { interval: Span(100), tolerance: Span(50), ..Rules::STANDARD };

pub(crate) const EVERYWHERE: Shards = Shards { first: 0, end: 256 };

pub(crate) fn start() -> servers::Redis {
    servers::Redis::start().unwrap()
}

fn keys() -> Keyspace {
    Keyspace::of_hosts(256)
}

/// Redis's time.
fn now(server: &servers::Redis) -> Time {
    let answer = server.ask(&["TIME"]).unwrap();
    let mut lines = answer.lines().map(|line| line.parse::<u64>().unwrap());
    Time(lines.next().unwrap() * 1000 + lines.next().unwrap() / 1000)
}

fn set_reached(server: &servers::Redis, at: Time) {
    server.ask(&["SET", &keys().probed().to_string(), &at.0.to_string()]).unwrap();
}

fn set_host(server: &servers::Redis, at: Time) {
    server.ask(&["ZADD", &keys().hosts().to_string(), &at.0.to_string(), "host-1"]).unwrap();
}

pub(crate) fn ago(server: &servers::Redis, span: Span) -> Time {
    Time(now(server).0 - span.0)
}

/// The outage grace stored in Redis.
pub(crate) fn recorded(server: &servers::Redis) -> Option<OutageGrace> {
    let text = server.ask(&["GET", &keys().outage_grace().to_string()]).unwrap();
    let (since, until) = text.split_once(' ')?;
    Some(OutageGrace { since: Time(since.parse().unwrap()), until: Time(until.parse().unwrap()) })
}

pub(crate) async fn load(platform: &RedisStore<ProbingTransport<TestConnection>>) -> Loaded {
    platform.load_many(vec![user("bob")]).await.unwrap()
}

pub(crate) async fn outage_grace(platform: &RedisStore<ProbingTransport<TestConnection>>) -> Option<OutageGrace> {
    load(platform).await.moment.outage_grace
}

pub(crate) async fn beat_once(platform: &impl Sessions, rules: &Rules) {
    let beat = Beat { user: user("bob"), device: device("web-1"), kind: DeviceKind::Web, active: true };
    let standings = beat_many(platform, rules, [beat].into_iter().collect()).await.unwrap();
    assert!(standings.iter().all(Result::is_ok), "{standings:?}");
}

pub(crate) fn touches(events: &[DeviceEvent]) -> Touches {
    events.iter().map(|event| Touch { user: user("bob"), device: device("web-1"), event: *event }).collect()
}

pub(crate) const BEAT: DeviceEvent = DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: OUTAGE_GRACE };

#[tokio::test]
async fn first_probe_records_no_outage_grace() {
    let server = start();
    let before = now(&server);
    let moment = load(&platform(&server.url())).await.moment;
    assert_eq!((moment.outage_grace, recorded(&server)), (None, None));
    assert!(moment.now >= before && moment.now <= now(&server));
    let reached = server.ask(&["GET", "rc:{0}:probed"]).unwrap();
    assert_eq!(reached, moment.now.0.to_string(), "the probe stores its time");
}

#[tokio::test]
async fn long_silence_records_an_outage_grace() {
    let server = start();
    set_reached(&server, ago(&server, Span(59_000)));
    assert_eq!(outage_grace(&platform(&server.url())).await, None);
    let since = ago(&server, Span(61_000));
    set_reached(&server, since);
    let moment = load(&platform(&server.url())).await.moment;
    assert_eq!(moment.outage_grace, Some(OutageGrace { since, until: moment.now + OUTAGE_GRACE }));
    assert_eq!(moment.outage_grace, recorded(&server));
    assert_eq!(
        outage_grace(&platform(&server.url())).await,
        moment.outage_grace,
        "the next call reads it and does not extend it"
    );
}

#[tokio::test]
async fn host_entry_counts_as_a_probe() {
    let server = start();
    set_reached(&server, ago(&server, Span(100_000)));
    set_host(&server, ago(&server, Span(10_000)));
    assert_eq!(outage_grace(&platform(&server.url())).await, None);
    let since = ago(&server, Span(70_000));
    set_host(&server, since);
    server.ask(&["DEL", "rc:{0}:probed"]).unwrap();
    assert_eq!(outage_grace(&platform(&server.url())).await.map(|outage_grace| outage_grace.since), Some(since));
}

#[tokio::test]
async fn overlapping_outage_graces_are_merged() {
    let server = start();
    let (since, until) = (ago(&server, Span(500_000)), now(&server) + Span(1_000));
    let known = format!("{} {}", since.0, until.0);
    server.ask(&["SET", "rc:{0}:outage_grace", &known, "PX", "1000"]).unwrap();
    set_reached(&server, ago(&server, Span(61_000)));
    let merged = outage_grace(&platform(&server.url())).await.unwrap();
    assert_eq!(merged.since, since, "the earlier start");
    assert!(merged.until > until + Span(40_000), "the later end");
    assert_eq!(recorded(&server), Some(merged));
}

#[tokio::test]
async fn concurrent_returns_record_one_outage_grace() {
    let server = start();
    let since = ago(&server, Span(100_000));
    set_reached(&server, since);
    let (one, other) = (platform(&server.url()), platform(&server.url()));
    let (one, other) = tokio::join!(outage_grace(&one), outage_grace(&other));
    assert_eq!(one, other);
    assert_eq!(one.map(|outage_grace| outage_grace.since), Some(since));
}

/// Sweeps until a user was published, and returns how long that took.
async fn until_swept(platform: &RedisStore<ProbingTransport<TestConnection>>) -> Duration {
    let started = Instant::now();
    while sweep(platform, &QUICK, EVERYWHERE, 10).await.unwrap().published == 0 {
        assert!(started.elapsed() < Duration::from_secs(5), "the user never goes offline");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

async fn state(platform: &RedisStore<ProbingTransport<TestConnection>>) -> Option<State> {
    platform.read_published(&[user("bob")]).await.unwrap().remove(0).unwrap().map(|published| published.state)
}

#[tokio::test]
async fn device_alive_before_silence_gets_one_grace() {
    let server = start();
    let platform = with_rules(&server.url(), &QUICK);
    beat_once(&platform, &QUICK).await;
    assert_eq!(state(&platform).await, Some(State::Online));
    set_reached(&server, ago(&server, Span(20_000)));
    tokio::time::sleep(Duration::from_millis(160)).await;
    let swept = sweep(&platform, &QUICK, EVERYWHERE, 10).await.unwrap();
    assert_eq!((swept.examined, swept.published), (1, 0), "the beat expired, and the outage grace covers it");
    assert_eq!(state(&platform).await, Some(State::Online));
    assert!(until_swept(&platform).await < Duration::from_secs(1));
    assert_eq!(state(&platform).await, Some(State::Offline));
}

#[tokio::test]
async fn device_dead_before_silence_gets_no_grace() {
    let server = start();
    let platform = with_rules(&server.url(), &QUICK);
    beat_once(&platform, &QUICK).await;
    let long_ago = ago(&server, Span(40_000)).0;
    let shard = keys().due(keys().shard_of("bob")).to_string();
    server.ask(&["HSET", &keys().user("bob").to_string(), "a:web-1", &format!("{long_ago} 150 w")]).unwrap();
    server.ask(&["ZADD", &shard, &long_ago.to_string(), "bob"]).unwrap();
    set_reached(&server, ago(&server, Span(20_000)));
    // Every probe comes after the device's expiry, and so does the silence before the next probe.
    assert_eq!(sweep(&platform, &QUICK, EVERYWHERE, 10).await.unwrap().published, 1);
    assert_eq!(state(&platform).await, Some(State::Offline));
    assert!(recorded(&server).is_some(), "there is an outage grace, but not for this device");
}

/// The capabilities on a clock that the test moves.
fn clocked(server: &servers::Redis) -> (RedisStore<ProbingTransport<TestConnection>>, Clock) {
    let clock = Clock::manual(Time(1_700_000_000_000));
    let test_time: TestTime = {
        let clock = clock.clone();
        Arc::new(move || clock.now())
    };
    (RedisStore::over(TestConnection::new(&server.url(), "rc", Some(test_time)), Options::of(&Rules::STANDARD)), clock)
}

/// How many sends and commands this takes.
async fn sent(
    platform: &RedisStore<ProbingTransport<TestConnection>>,
    by: impl AsyncFnOnce(&RedisStore<ProbingTransport<TestConnection>>),
) -> (usize, usize) {
    let wire = platform.connection();
    let counted = || (wire.sends.load(Ordering::SeqCst), wire.commands.load(Ordering::SeqCst));
    let (sends, commands) = counted();
    by(platform).await;
    (counted().0 - sends, counted().1 - commands)
}

#[tokio::test]
async fn calls_are_one_send_including_the_probe() {
    let server = start();
    let (platform, clock) = clocked(&server);
    load(&platform).await;
    let touch = async |platform: &RedisStore<ProbingTransport<TestConnection>>| {
        assert!(platform.touch_many(touches(&[BEAT])).await.unwrap().prior.iter().all(Result::is_ok));
    };
    let loading = async |platform: &RedisStore<ProbingTransport<TestConnection>>| drop(load(platform).await);
    assert_eq!(sent(&platform, loading).await, (1, 4), "the time, and three per user");
    assert_eq!(sent(&platform, touch).await, (1, 3), "the time is known");
    clock.advance(Span(1_001));
    assert_eq!(sent(&platform, touch).await, (1, 4), "the batch carries a probe");
    assert_eq!(sent(&platform, touch).await, (1, 3));
    clock.advance(Span(30_001));
    assert_eq!(sent(&platform, touch).await, (2, 4), "the time must be known before a beat can be stamped");
    clock.advance(Span(1_001));
    let looking = async |platform: &RedisStore<ProbingTransport<TestConnection>>| {
        drop(platform.due(EVERYWHERE, 10).await.unwrap())
    };
    assert_eq!(sent(&platform, looking).await, (1, 1 + 2 * 256), "both sorted sets of every shard");
}

#[tokio::test]
async fn missing_scripts_are_loaded_and_order_kept() {
    let server = start();
    let platform = platform(&server.url());
    load(&platform).await;
    let events = touches(&[BEAT, DeviceEvent::Logout, BEAT, DeviceEvent::Logout, BEAT]);
    for _ in 0..3 {
        server.ask(&["SCRIPT", "FLUSH"]).unwrap();
        let touching = async |platform: &RedisStore<ProbingTransport<TestConnection>>| {
            let touched = platform.touch_many(events.clone()).await.unwrap();
            assert!(touched.prior.iter().all(Result::is_ok), "{touched:?}");
        };
        assert_eq!(sent(&platform, touching).await.0, 3, "once, again with the scripts, and the trim of devices");
        let Loaded { moment, sessions } = load(&platform).await;
        assert!(moment.is_alive(&sessions[0].as_ref().unwrap().devices[0]), "the last touch was a beat");
    }
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(load(&platform).await.sessions[0].as_ref().unwrap().devices.len(), 1);
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    beat_once(&platform, &Rules::STANDARD).await;
    assert_eq!(state(&platform).await, Some(State::Online));
}
