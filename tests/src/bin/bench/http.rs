//! The cost of a heartbeat over HTTP: single beats to the host, compared with the same requests to an empty handler on the same
//! HTTP stack.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rollcall_tests::Host;

use crate::empty_server::EmptyServer;
use crate::load::{Requests, Seen, load};
use crate::process::cpu_us;
use crate::report::{Goal, Section, number, ratio};
use crate::sample::Comparison;
use crate::users;

/// Users.
const USERS: u64 = 10_000;

/// Connections at full load.
const CONNECTIONS: usize = 64;

/// Slices of each server, in turn.
const SLICES: usize = 20;

/// Length of a slice at full load.
const SLICE: Duration = Duration::from_millis(500);

/// Length of a slice on one connection.
const QUIET_SLICE: Duration = Duration::from_millis(200);

/// A measured server: its address and process.
pub(crate) trait Server {
    fn address(&self) -> &str;
    fn pid(&self) -> u32;
}

impl Server for Host {
    fn address(&self) -> &str {
        self.address()
    }
    fn pid(&self) -> u32 {
        self.pid()
    }
}

impl Server for EmptyServer {
    fn address(&self) -> &str {
        self.address()
    }
    fn pid(&self) -> u32 {
        self.pid()
    }
}

/// Both servers, and the requests.
pub(crate) struct Servers<Ours, Theirs> {
    ours: Ours,
    theirs: Theirs,
    requests: Requests,
}

/// The comparisons at one number of connections.
#[derive(Default)]
pub(crate) struct Comparisons {
    per_second: Comparison,
    per_cpu_second: Comparison,
    p50_us: Comparison,
    p99_us: Comparison,
}

/// Measures at full load and on one connection.
pub(crate) fn run() -> Result<Section> {
    let requests = (0..USERS).map(users::heartbeat).collect();
    let servers = Servers::of(Host::start_in(Path::new("none"), &[]), EmptyServer::start()?, requests);
    servers.compare(CONNECTIONS, SLICE, 2)?;
    let before = Counted::read(&servers.ours)?;
    let busy = servers.compare(CONNECTIONS, SLICE, SLICES)?;
    let gathered = Counted::read(&servers.ours)?.per_call(&before);
    let quiet = servers.compare(1, QUIET_SLICE, SLICES)?;

    let mut section = Section::new(
        "http: single heartbeats against an empty handler",
        &["connections", "figure", "rollcall", "empty", "rollcall/empty", "min–max"],
    );
    for (connections, comparisons) in [(CONNECTIONS, &busy), (1, &quiet)] {
        let goal = if connections == CONNECTIONS { Goal::AtLeast(0.6) } else { Goal::None };
        comparisons.report(&mut section, connections, goal);
    }
    section.note(&format!(
        "Both servers run in their own process with one worker per core; the client shares the cores. All cores are busy, so \
         the ratio of requests/s includes the client's cost on both sides and flatters the slower server; the ratio per \
         second of server CPU does not, and is the stricter one. Keep-alive, {} users, embedded store, nothing on disk. At \
         {CONNECTIONS} connections the host batched {gathered:.1} beats into one function call. In a closed loop, latency \
         at full load is connections divided by rate.",
        number(USERS as f64),
    ));
    Ok(section)
}

fn figure(section: &mut Section, connections: usize, name: &str, comparison: &Comparison, goal: Goal) {
    let (median, range) = ratio(comparison.ratio());
    let cells = [
        connections.to_string(),
        name.to_owned(),
        number(comparison.ours()),
        number(comparison.theirs()),
        median,
        range,
    ];
    section.row(cells, goal, comparison.ratio().median);
}

impl Comparisons {
    pub(crate) fn report(&self, section: &mut Section, connections: usize, goal: Goal) {
        figure(section, connections, "requests/s", &self.per_second, goal);
        figure(section, connections, "requests/s of server CPU", &self.per_cpu_second, goal);
        figure(section, connections, "latency p50 µs", &self.p50_us, Goal::None);
        figure(section, connections, "latency p99 µs", &self.p99_us, Goal::None);
    }
}

impl<Ours: Server, Theirs: Server> Servers<Ours, Theirs> {
    pub(crate) fn of(ours: Ours, theirs: Theirs, requests: Requests) -> Self {
        Self { ours, theirs, requests }
    }

    pub(crate) fn compare(&self, connections: usize, slice: Duration, slices: usize) -> Result<Comparisons> {
        let mut comparisons = Comparisons::default();
        for _ in 0..slices {
            let ours = self.slice(self.ours.address(), self.ours.pid(), connections, slice)?;
            let theirs = self.slice(self.theirs.address(), self.theirs.pid(), connections, slice)?;
            comparisons.per_second.push(ours.0.per_second, theirs.0.per_second);
            comparisons.per_cpu_second.push(ours.1, theirs.1);
            comparisons.p50_us.push(ours.0.p50_us, theirs.0.p50_us);
            comparisons.p99_us.push(ours.0.p99_us, theirs.0.p99_us);
        }
        Ok(comparisons)
    }

    /// The client's result, and the requests answered per second of server CPU.
    fn slice(&self, address: &str, pid: u32, connections: usize, slice: Duration) -> Result<(Seen, f64)> {
        let before = cpu_us(pid)?;
        let seen = load(address, &self.requests, connections, slice)?;
        Ok((seen, seen.answers as f64 * 1e6 / (cpu_us(pid)? - before)))
    }
}

/// Counters of the host.
struct Counted {
    beats: f64,
    calls: f64,
}

impl Counted {
    fn read(host: &Host) -> Result<Self> {
        let text = host.client("bench").get("/metrics").text;
        let calls = r#"rollcall_function_calls_total{function="heartbeat"}"#;
        Ok(Self { beats: metric(&text, "rollcall_heartbeats_total")?, calls: metric(&text, calls)? })
    }

    fn per_call(&self, before: &Self) -> f64 {
        (self.beats - before.beats) / (self.calls - before.calls)
    }
}

/// One of the host's metrics.
pub(crate) fn metric(text: &str, name: &str) -> Result<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("no metric {name}"))?.parse()?)
}
