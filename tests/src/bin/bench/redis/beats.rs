//! Beats on Redis: in batches compared with plain `SET`s on the same server, and one by one over HTTP compared with the embedded
//! store.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use rollcall_core::{Rules, UserId};
use rollcall_host::runtime::Functions;
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_servers::redis::Redis as Server;
use rollcall_store::{SqliteArchive, TopicStore};
use rollcall_tests::Host;

use crate::http::Servers;
use crate::load::Requests;
use crate::process::cpu_us;
use crate::report::{Goal, Section, number, ratio};
use crate::sample::Comparison;
use crate::users::{self, Random};

/// Users, and keys of `redis-benchmark`: so few that everything is in the server's caches, and so many that hardly anything is.
const CROWDS: [u64; 2] = [FEW, 100_000];

/// Users that fit into the caches.
const FEW: u64 = 1_000;

/// Beats per call.
const BATCH: u64 = 256;

/// Calls in flight, enough to keep the server busy over one connection.
const IN_FLIGHT: u64 = 8;

/// Slices of each contender, in turn.
const SLICES: usize = 12;

/// Beats per slice: whole rounds of calls.
const BEATS: u64 = 32 * BATCH * IN_FLIGHT;

/// `SET`s per slice.
const SETS: u64 = 400_000;

/// Users per query.
const ASKED: u64 = 200;

/// Measures batches, commands and round trips.
pub(crate) fn run() -> Result<Section> {
    let server = Server::start()?;
    // The store keeps its connection in a thread, as in the host.
    let store_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = Arc::new(store_runtime.block_on(NativeRedis::open(&server.url(), Options::default()))?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut section =
        Section::new("redis-beats: batches of 256 against `redis-benchmark -P 64 -t set`", &["figure", "value"]);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let functions = functions(Arc::clone(&store))?;
        for user_count in CROWDS {
            for first in (0..user_count).step_by(BATCH as usize) {
                beat(&functions, first..(first + BATCH).min(user_count)).await?;
            }
            let goal = if user_count <= FEW { Goal::AtLeast(0.25) } else { Goal::None };
            compare(&mut section, &functions, &server, user_count, goal).await?;
        }
        costs(&mut section, &store, &functions).await
    })?;
    section.note(&format!(
        "Random users, {IN_FLIGHT} calls of {BATCH} in flight on one connection, through the component. By default \
         redis-benchmark sets one key; with many users it uses as many keys (`-r`). Everything shares the same cores, and \
         the server uses one of them.",
    ));
    Ok(section)
}

/// Beats and `SET`s, in turn.
async fn compare(
    section: &mut Section,
    functions: &Functions,
    server: &Server,
    user_count: u64,
    goal: Goal,
) -> Result<()> {
    let (mut comparison, mut by_cpu) = (Comparison::default(), Comparison::default());
    let mut random = Random::new(user_count);
    let pid = server.process_id().context("the server is gone")?;
    for _ in 0..SLICES {
        let before = cpu_us(pid)?;
        let beats = slice(functions, &mut random, user_count).await?;
        let between = cpu_us(pid)?;
        let sets = sets_per_second(server.port(), user_count)?;
        comparison.push(beats, sets);
        by_cpu.push(BEATS as f64 / (between - before), SETS as f64 / (cpu_us(pid)? - between));
    }
    let (median, range) = ratio(comparison.ratio());
    let among = number(user_count as f64);
    section.row([format!("beats/s among {among} users"), number(comparison.ours())], Goal::None, 0.0);
    section.row([format!("`SET`s/s of redis-benchmark beside {among}"), number(comparison.theirs())], Goal::None, 0.0);
    section.row([format!("beats per `SET` among {among} ({range})"), median], goal, comparison.ratio().median);
    let (median, range) = ratio(by_cpu.ratio());
    let name = format!("the same, per second of the server's processor ({range})");
    section.row([name, median], goal, by_cpu.ratio().median);
    Ok(())
}

/// The functions, on this store.
fn functions(store: Arc<NativeRedis>) -> Result<Functions> {
    let archive = Arc::new(SqliteArchive::in_memory()?);
    let topics = Arc::clone(&store) as Arc<dyn TopicStore>;
    Ok(rollcall_tests::functions(store, &archive, topics, Rules::default(), rollcall_tests::component))
}

async fn beat(functions: &Functions, indexes: impl Iterator<Item = u64>) -> Result<()> {
    let beats = indexes.map(users::beat).collect::<Result<Vec<_>, _>>()?;
    for answer in functions.beat_many(beats).await? {
        answer?;
    }
    Ok(())
}

/// Beats per second in one slice. The users are chosen before, as redis-benchmark does, and each answered call is followed by the
/// next, so that the server never waits for the client.
async fn slice(functions: &Functions, random: &mut Random, user_count: u64) -> Result<f64> {
    let mut batch = || (0..BATCH).map(|_| users::beat(random.below(user_count))).collect::<Result<Vec<_>, _>>();
    let batches = (0..BEATS / BATCH).map(|_| batch()).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut calls = stream::iter(batches).map(|beats| functions.beat_many(beats)).buffer_unordered(IN_FLIGHT as usize);
    while let Some(answers) = calls.next().await {
        for answer in answers? {
            answer?;
        }
    }
    Ok(BEATS as f64 / began.elapsed().as_secs_f64())
}

fn sets_per_second(port: u16, user_count: u64) -> Result<f64> {
    let mut benchmark = Command::new("redis-benchmark");
    let spread = user_count.to_string();
    if user_count > FEW {
        benchmark.args(["-r", &spread]);
    }
    benchmark.args(["-p", &port.to_string(), "-P", "64", "-t", "set", "-n", &SETS.to_string(), "-q", "--csv"]);
    let output = benchmark.output().context("redis-benchmark is missing: apt-get install redis-tools")?;
    ensure!(output.status.success(), "redis-benchmark failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("\"SET\"")).context("redis-benchmark measured no SET")?;
    let rate = line.split(',').nth(1).context("redis-benchmark printed no rate")?;
    Ok(rate.trim_matches('"').parse()?)
}

/// Commands and round trips.
async fn costs(section: &mut Section, store: &NativeRedis, functions: &Functions) -> Result<()> {
    let commands = store.stats().commands.get();
    beat(functions, 0..BATCH).await?;
    let per_beat = (store.stats().commands.get() - commands) as f64 / BATCH as f64;
    section.row(["commands per steady beat".to_owned(), number(per_beat)], Goal::AtMost(3.0), per_beat);
    let asked = (0..ASKED).map(|index| UserId::parse(users::name(index))).collect::<Result<Vec<_>, _>>()?;
    let trips = store.stats().round_trips.get();
    for view in functions.look_up(None, asked).await? {
        view?;
    }
    let trips = (store.stats().round_trips.get() - trips) as f64;
    section.row([format!("round trips of a query for {ASKED} users"), number(trips)], Goal::AtMost(1.0), trips);
    Ok(())
}

/// Single beats over HTTP, on Redis and embedded.
pub(crate) fn over_http() -> Result<Section> {
    let server = Server::start()?;
    let requests: Requests = (0..10_000).map(users::heartbeat).collect();
    let nowhere = Path::new("none");
    let ours = Host::start_in(nowhere, &["--store", &server.url()]);
    let theirs = Host::start_in(nowhere, &[]);
    let servers = Servers::of(ours, theirs, requests);
    servers.compare(64, Duration::from_millis(500), 4)?;
    let mut section = Section::new(
        "redis-http: single heartbeats, on Redis against the embedded store",
        &["connections", "figure", "redis", "embedded", "redis/embedded", "min–max"],
    );
    for (connections, span) in [(64, 500), (1, 200)] {
        let comparisons = servers.compare(connections, Duration::from_millis(span), SLICES)?;
        comparisons.report(&mut section, connections, Goal::None);
    }
    section.note("Both hosts with one worker per core; client, hosts and Redis share the cores.");
    Ok(section)
}
