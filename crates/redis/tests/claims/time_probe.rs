//! Time and the outage grace where nothing runs between two calls: who is pardoned for what, and how often Redis is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rollcall_core::{DeviceKind, OutageGrace, Rules, Span, State, Time};
use rollcall_functions::capabilities::{DeviceEvent, Loaded, Sessions, Shards, Touch, Touches};
use rollcall_functions::heartbeat::{Beat, beat_many};
use rollcall_functions::sweep::sweep;
use rollcall_redis::Keyspace;
use rollcall_redis::{Options, Probing, RedisStore};
use rollcall_servers::redis as servers;
use rollcall_store::Clock;

use crate::connection::{Telling, TestConnection, platform, with_rules};
use crate::suite::{device, user};

const OUTAGE_GRACE: Span = Span::seconds(45);

/// Times so short that a test can wait for them.
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

/// The outage grace as Redis has it.
pub(crate) fn recorded(server: &servers::Redis) -> Option<OutageGrace> {
    let text = server.ask(&["GET", &keys().outage_grace().to_string()]).unwrap();
    let (since, until) = text.split_once(' ')?;
    Some(OutageGrace { since: Time(since.parse().unwrap()), until: Time(until.parse().unwrap()) })
}

pub(crate) async fn load(platform: &RedisStore<Probing<TestConnection>>) -> Loaded {
    platform.load_many(vec![user("bob")]).await.unwrap()
}

pub(crate) async fn outage_grace(platform: &RedisStore<Probing<TestConnection>>) -> Option<OutageGrace> {
    load(platform).await.moment.outage_grace
}

pub(crate) async fn beat_once(platform: &impl Sessions, rules: &Rules) {
    let beat = Beat { user: user("bob"), device: device("web-1"), kind: DeviceKind::Web, active: true };
    let standings = beat_many(platform, rules, [beat].into_iter().collect()).await.unwrap();
    assert!(standings.iter().all(Result::is_ok), "{standings:?}");
}

pub(crate) fn traced(events: &[DeviceEvent]) -> Touches {
    events.iter().map(|event| Touch { user: user("bob"), device: device("web-1"), event: *event }).collect()
}

pub(crate) const BEAT: DeviceEvent = DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: OUTAGE_GRACE };

#[tokio::test]
async fn where_nobody_ever_was_nobody_is_pardoned() {
    let server = start();
    let before = now(&server);
    let moment = load(&platform(&server.url())).await.moment;
    assert_eq!((moment.outage_grace, recorded(&server)), (None, None));
    assert!(moment.now >= before && moment.now <= now(&server));
    let reached = server.ask(&["GET", "rc:{0}:probed"]).unwrap();
    assert_eq!(reached, moment.now.0.to_string(), "and from then on somebody was");
}

#[tokio::test]
async fn a_silence_is_pardoned_if_it_outlasts_an_outage_grace_and_a_quarter_of_a_minute() {
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
        "the next is told, and does not extend it"
    );
}

#[tokio::test]
async fn a_host_that_was_there_counts_like_any_other() {
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
async fn outage_graces_that_overlap_are_merged() {
    let server = start();
    let (since, until) = (ago(&server, Span(500_000)), now(&server) + Span(1_000));
    let known = format!("{} {}", since.0, until.0);
    server.ask(&["SET", "rc:{0}:outage_grace", &known, "PX", "1000"]).unwrap();
    set_reached(&server, ago(&server, Span(61_000)));
    let merged = outage_grace(&platform(&server.url())).await.unwrap();
    assert_eq!(merged.since, since, "the earlier beginning");
    assert!(merged.until > until + Span(40_000), "and the later end");
    assert_eq!(recorded(&server), Some(merged));
}

#[tokio::test]
async fn two_that_come_back_at_once_record_one_outage_grace() {
    let server = start();
    let since = ago(&server, Span(100_000));
    set_reached(&server, since);
    let (one, other) = (platform(&server.url()), platform(&server.url()));
    let (one, other) = tokio::join!(outage_grace(&one), outage_grace(&other));
    assert_eq!(one, other);
    assert_eq!(one.map(|outage_grace| outage_grace.since), Some(since));
}

/// Sweeps until somebody was published, and answers after how long.
async fn until_swept(platform: &RedisStore<Probing<TestConnection>>) -> Duration {
    let started = Instant::now();
    while sweep(platform, &QUICK, EVERYWHERE, 10).await.unwrap().published == 0 {
        assert!(started.elapsed() < Duration::from_secs(5), "nobody is ever declared offline");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

async fn state(platform: &RedisStore<Probing<TestConnection>>) -> Option<State> {
    platform.read_published(&[user("bob")]).await.unwrap().remove(0).unwrap().map(|published| published.state)
}

#[tokio::test]
async fn whoever_was_alive_when_silence_fell_is_pardoned_once_and_then_declared_offline() {
    let server = start();
    let platform = with_rules(&server.url(), &QUICK);
    beat_once(&platform, &QUICK).await;
    assert_eq!(state(&platform).await, Some(State::Online));
    set_reached(&server, ago(&server, Span(20_000)));
    tokio::time::sleep(Duration::from_millis(160)).await;
    let swept = sweep(&platform, &QUICK, EVERYWHERE, 10).await.unwrap();
    assert_eq!((swept.examined, swept.published), (1, 0), "their beat is over, and they are pardoned");
    assert_eq!(state(&platform).await, Some(State::Online));
    assert!(until_swept(&platform).await < Duration::from_secs(1));
    assert_eq!(state(&platform).await, Some(State::Offline));
}

#[tokio::test]
async fn whoever_was_dead_before_silence_fell_is_not_pardoned_for_it() {
    let server = start();
    let platform = with_rules(&server.url(), &QUICK);
    beat_once(&platform, &QUICK).await;
    let long_ago = ago(&server, Span(40_000)).0;
    let shard = keys().due(keys().shard_of("bob")).to_string();
    server.ask(&["HSET", &keys().user("bob").to_string(), "a:web-1", &format!("{long_ago} 150 w")]).unwrap();
    server.ask(&["ZADD", &shard, &long_ago.to_string(), "bob"]).unwrap();
    set_reached(&server, ago(&server, Span(20_000)));
    // However seldom anybody looks: each look is after the death, and so is the silence before the next.
    assert_eq!(sweep(&platform, &QUICK, EVERYWHERE, 10).await.unwrap().published, 1);
    assert_eq!(state(&platform).await, Some(State::Offline));
    assert!(recorded(&server).is_some(), "although there is an outage grace");
}

/// The capabilities on a clock that the test moves.
fn clocked(server: &servers::Redis) -> (RedisStore<Probing<TestConnection>>, Clock) {
    let clock = Clock::manual(Time(1_700_000_000_000));
    let telling: Telling = {
        let clock = clock.clone();
        Arc::new(move || clock.now())
    };
    (RedisStore::over(TestConnection::new(&server.url(), "rc", Some(telling)), Options::of(&Rules::STANDARD)), clock)
}

/// How often something was sent, and how many commands, by this.
async fn sent(
    platform: &RedisStore<Probing<TestConnection>>,
    by: impl AsyncFnOnce(&RedisStore<Probing<TestConnection>>),
) -> (usize, usize) {
    let wire = platform.connection();
    let counted = || (wire.sends.load(Ordering::SeqCst), wire.commands.load(Ordering::SeqCst));
    let (sends, commands) = counted();
    by(platform).await;
    (counted().0 - sends, counted().1 - commands)
}

#[tokio::test]
async fn what_a_call_needs_is_sent_in_one_go_and_the_time_is_asked_for_on_the_way() {
    let server = start();
    let (platform, clock) = clocked(&server);
    load(&platform).await;
    let touch = async |platform: &RedisStore<Probing<TestConnection>>| {
        assert!(platform.touch_many(traced(&[BEAT])).await.unwrap().found.iter().all(Result::is_ok));
    };
    let loading = async |platform: &RedisStore<Probing<TestConnection>>| drop(load(platform).await);
    assert_eq!(sent(&platform, loading).await, (1, 4), "the time, and three for a person");
    assert_eq!(sent(&platform, touch).await, (1, 3), "the time is known");
    clock.advance(Span(1_001));
    assert_eq!(sent(&platform, touch).await, (1, 4), "it is looked at again on the way");
    assert_eq!(sent(&platform, touch).await, (1, 3));
    clock.advance(Span(30_001));
    assert_eq!(sent(&platform, touch).await, (2, 4), "it must be known before a beat can be stamped");
    clock.advance(Span(1_001));
    let looking =
        async |platform: &RedisStore<Probing<TestConnection>>| drop(platform.due(EVERYWHERE, 10).await.unwrap());
    assert_eq!(sent(&platform, looking).await, (1, 1 + 2 * 256), "both sorted sets of every shard");
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_given_them_and_whatever_is_about_one_person_stays_in_order() {
    let server = start();
    let platform = platform(&server.url());
    load(&platform).await;
    let events = traced(&[BEAT, DeviceEvent::Logout, BEAT, DeviceEvent::Logout, BEAT]);
    for _ in 0..3 {
        server.ask(&["SCRIPT", "FLUSH"]).unwrap();
        let touching = async |platform: &RedisStore<Probing<TestConnection>>| {
            let touched = platform.touch_many(events.clone()).await.unwrap();
            assert!(touched.found.iter().all(Result::is_ok), "{touched:?}");
        };
        assert_eq!(sent(&platform, touching).await.0, 3, "once, again with the scripts, and the bound of devices");
        let Loaded { moment, sessions } = load(&platform).await;
        assert!(moment.is_alive(&sessions[0].as_ref().unwrap().devices[0]), "the last word was a beat");
    }
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(load(&platform).await.sessions[0].as_ref().unwrap().devices.len(), 1);
    server.ask(&["SCRIPT", "FLUSH"]).unwrap();
    beat_once(&platform, &Rules::STANDARD).await;
    assert_eq!(state(&platform).await, Some(State::Online));
}
