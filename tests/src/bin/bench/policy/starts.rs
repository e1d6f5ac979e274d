//! The load of a starting host on Redis until its policy is in memory: the first time, and with a copy on disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_servers::redis::Redis as Server;
use rollcall_tests::Host;

use super::{count, instance, population};
use crate::report::{Goal, Section, number};

/// The policy: restricted numbers at random over pages, and users who hide.
const RESTRICTED: u64 = 1_000_000;
const PAGES: u32 = 1526;
const SETTINGS: u64 = 100_000;

/// Commands listed by name; the others are summed.
const NAMED: usize = 5;

/// The cost of a start.
struct Cost {
    warm_s: f64,
    commands: BTreeMap<String, f64>,
    sent_mb: f64,
    server_ms: f64,
}

/// Measures a start without a copy, with one, and without loading.
pub(crate) fn run() -> Result<Section> {
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let store = NativeRedis::open(&server.url(), Options::default()).await?;
        let settings = population::settings(0, SETTINGS)?.into_iter().map(Ok);
        instance::apply(&store, population::scattered(PAGES, RESTRICTED).chain(settings)).await
    })?;
    let columns = ["start", "until warm, s", "commands", "Redis sends, MB", "Redis is busy, ms", "which"];
    let mut section = Section::new("policy-starts: load of a start on Redis", &columns);
    let folder = tempfile::tempdir()?;
    let warm = |data: &Path| measure(&server, || super::host(data, &server.url(), 2));
    let first = warm(folder.path())?;
    let size = std::fs::metadata(folder.path().join("policy.copy")).context("there is no copy")?.len();
    let again = warm(folder.path())?;
    let nothing = measure(&server, || listening(&server, Duration::from_secs_f64(again.warm_s)))?;
    for (name, cost) in
        [("the first", first), ("the second, from its copy", again), ("with policy_memory = 0, as long", nothing)]
    {
        let commands: f64 = cost.commands.values().sum();
        let cells = [
            name.to_owned(),
            number(cost.warm_s),
            count(commands),
            number(cost.sent_mb),
            number(cost.server_ms),
            which(cost.commands),
        ];
        section.row(cells, Goal::None, 0.0);
    }
    section.note(&format!(
        "{} restricted numbers on {PAGES} pages and {} users with settings, in Redis; two instances, the second of which \
        loads from the copy that the first left on disk ({} MB). A host begins to load at a random moment within five \
        seconds of its start, so that hosts that start together do not load at once: most of the time until warm is \
        that. Every command of the host meanwhile is counted by Redis (INFO commandstats, INFO stats), those of scripts \
        included. zrangebyscore is the search for due users. The last row is what is not loading, except for the first \
        page, which a host always reads.",
        number(RESTRICTED as f64),
        number(SETTINGS as f64),
        number(size as f64 / 1e6),
    ));
    Ok(section)
}

/// A host that loads nothing, this long after its start.
fn listening(server: &Server, after: Duration) -> Result<Host> {
    let arguments = ["--store", &server.url(), "--policy-memory", "0"];
    let host = Host::start_in(Path::new("none"), &[&super::QUIET[..], &arguments].concat());
    std::thread::sleep(after);
    Ok(host)
}

fn measure(server: &Server, start: impl FnOnce() -> Result<Host>) -> Result<Cost> {
    server.ask(&["CONFIG", "RESETSTAT"])?;
    let began = Instant::now();
    let host = start()?;
    let warm_s = began.elapsed().as_secs_f64();
    let commands = server.ask(&["INFO", "commandstats"])?;
    let stats = server.ask(&["INFO", "stats"])?;
    host.stop();
    let sent = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).context("no bytes")?;
    let mut cost =
        Cost { warm_s, commands: BTreeMap::new(), sent_mb: sent.trim().parse::<f64>()? / 1e6, server_ms: 0.0 };
    for line in commands.lines().filter_map(|line| line.trim().strip_prefix("cmdstat_")) {
        let (name, figures) = line.split_once(':').context("a command without figures")?;
        let figure = |name: &str| figures.split(',').find_map(|figure| figure.strip_prefix(name)?.strip_prefix('='));
        let calls: f64 = figure("calls").context("no calls")?.parse()?;
        cost.server_ms += figure("usec").context("no time")?.parse::<f64>()? / 1000.0;
        cost.commands.insert(name.to_owned(), calls);
    }
    Ok(cost)
}

/// The most frequent commands.
fn which(commands: BTreeMap<String, f64>) -> String {
    let mut commands: Vec<(String, f64)> = commands.into_iter().collect();
    commands.sort_by(|one, other| other.1.total_cmp(&one.1));
    let others: f64 = commands.iter().skip(NAMED).map(|(_, calls)| calls).sum();
    let named = commands.into_iter().take(NAMED).map(|(name, calls)| format!("{} {name}", count(calls)));
    named.chain([format!("{} others", count(others))]).collect::<Vec<_>>().join(", ")
}
