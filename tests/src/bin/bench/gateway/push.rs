//! Push latency: from the heartbeat that brings a user online to the event at a watcher, among ten thousand connections.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rollcall_servers::redis::Redis;
use rollcall_tests::watcher::Protocol;
use rollcall_tests::watcher_pool::{Kind, Plan, WatcherPool};
use rollcall_tests::{Client, Host};
use serde_json::{Value, json};

use crate::process::cpu_us;
use crate::report::{Goal, Section, number};
use crate::sample::quantile;

/// Connections, half of each protocol.
const CONNECTIONS: usize = 10_000;

/// Users per connection, watched by it alone.
const EACH: usize = 9;

/// Interval between batches of beats.
const TICK: Duration = Duration::from_millis(10);

/// Transitions per second, and seconds.
const LOADS: [(usize, u64); 4] = [(100, 10), (1000, 10), (5000, 6), (20_000, 2)];

/// Deadline for all events after the last beat.
const LATEST: Duration = Duration::from_secs(30);

pub(crate) fn run() -> Result<Section> {
    let columns = ["setting", "transitions/s", "delivered", "p50 ms", "p99 ms", "max ms", "host, cores"];
    let mut section = Section::new("Push: heartbeat sent → event received, 10,000 connections", &columns);
    let alone = super::host(&[]);
    measure(&mut section, "one host, embedded", &alone, &alone)?;
    drop(alone);
    let redis = Redis::start()?;
    let store = redis.url();
    let (watched, beaten) = (super::host(&["--store", &store]), super::host(&["--store", &store]));
    measure(&mut section, "two hosts, one Redis", &watched, &beaten)?;
    section.note(
        "Half the connections are event streams, half WebSockets; each watches nine users that no other connection watches. Every \
         transition is a user's first beat, sent in batches every 10 ms, to the other host where there are two. Hosts, Redis \
         and both clients share the two cores.",
    );
    Ok(section)
}

fn measure(section: &mut Section, setting: &str, watched: &Host, beaten: &Host) -> Result<()> {
    let half = CONNECTIONS / 2;
    let pools = [Protocol::Events, Protocol::Socket].map(|protocol| {
        let first = if protocol == Protocol::Events { 0 } else { half };
        WatcherPool::connect(plan(protocol, watched, first, half), Duration::from_secs(120))
    });
    let client = beaten.client("edge");
    let mut next = 0;
    for (rate, seconds) in LOADS {
        pools.iter().for_each(|pool| pool.received().deliveries.clear());
        let cpu = cpu_us(watched.pid())?;
        let began = Instant::now();
        let sent = beat(&client, &mut next, rate, seconds)?;
        let took = began.elapsed();
        let cores = (cpu_us(watched.pid())? - cpu) / took.as_micros() as f64;
        let lags = lags(&pools, half, &sent);
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| quantile(&lags, share));
        let achieved = sent.len() as f64 / took.as_secs_f64();
        let wanted = rate;
        let rate = format!("{} ({wanted} wanted)", number(achieved));
        let delivered = format!("{} of {}", lags.len(), sent.len());
        let cells = [setting.to_owned(), rate, delivered, number(p50), number(p99), number(max), number(cores)];
        // The last rate is there to find the limit.
        section.row(cells, if wanted > 5000 { Goal::None } else { Goal::AtMost(50.0) }, p99);
    }
    Ok(())
}

/// The connections and the users they watch.
fn plan(protocol: Protocol, host: &Host, first: usize, count: usize) -> Plan {
    let mut plan = Plan::watching(protocol, host.address(), "nobody", count);
    for (index, path) in plan.paths.iter_mut().enumerate() {
        let users: Vec<String> = (0..EACH).map(|place| user_name(first + index, place)).collect();
        let watcher = first + index;
        match protocol {
            Protocol::Events => {
                *path = format!("/v1/subscribe?watch_only=true&users={}&as=watcher-{watcher}", users.join(","));
            }
            Protocol::Socket => {
                *path = format!("/v1/socket?watch_only=true&as=watcher-{watcher}");
                if let Some(message) = plan.messages.get_mut(index) {
                    *message = json!({ "op": "watch", "users": users }).to_string();
                }
            }
        }
    }
    plan
}

fn user_name(connection: usize, place: usize) -> String {
    format!("p{connection}-{place}")
}

/// When the beat was sent that made this version, by the connection that watches the user.
type Sent = HashMap<(usize, u64), Instant>;

/// Brings users online at this rate, watched by one connection after the other.
fn beat(client: &Client, next: &mut usize, rate: usize, seconds: u64) -> Result<Sent> {
    let ticks = Duration::from_secs(seconds).as_millis() / TICK.as_millis();
    let batch = (rate as u128 * TICK.as_millis() / 1000) as usize;
    let mut sent = Sent::new();
    let began = Instant::now();
    for tick in 0..ticks as u32 {
        std::thread::sleep((began + TICK * tick).saturating_duration_since(Instant::now()));
        let users: Vec<(usize, String)> = (*next..*next + batch)
            .map(|place| (place % CONNECTIONS, user_name(place % CONNECTIONS, place / CONNECTIONS)))
            .collect();
        *next += batch;
        let beats: Vec<_> = users.iter().map(|(_, user)| json!({ "user": user, "device": "d" })).collect();
        let at = Instant::now();
        let answer = client.post("/v1/heartbeats", json!({ "beats": beats }));
        let outcomes = answer.json.get("outcomes").and_then(Value::as_array).with_context(|| answer.text.clone())?;
        for ((connection, _), outcome) in users.iter().zip(outcomes) {
            let version = outcome.get("version").and_then(Value::as_u64).with_context(|| answer.text.clone())?;
            sent.insert((*connection, version), at);
        }
    }
    Ok(sent)
}

/// The latency of each event in milliseconds, sorted.
fn lags(pools: &[WatcherPool], half: usize, sent: &Sent) -> Vec<f64> {
    let delivered =
        || pools.iter().map(|pool| pool.received().count(|delivery| delivery.kind == Kind::Presence)).sum::<usize>();
    let end = Instant::now() + LATEST;
    while delivered() < sent.len() && Instant::now() < end {
        std::thread::sleep(TICK);
    }
    let mut lags = Vec::with_capacity(sent.len());
    for (place, pool) in pools.iter().enumerate() {
        for delivery in &pool.received().deliveries {
            if let Some(at) = sent.get(&(place * half + delivery.connection, delivery.version)) {
                lags.push(delivery.at.saturating_duration_since(*at).as_secs_f64() * 1000.0);
            }
        }
    }
    lags.sort_by(f64::total_cmp);
    lags
}
