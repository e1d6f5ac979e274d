//! The cost of a presence query with blocks and hidden users, compared with the same query without policy.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_servers::redis::Redis as Server;
use rollcall_tests::Host;

use super::{instance, population};
use crate::http::Servers;
use crate::load::{Connection, Requests};
use crate::report::{Goal, Section, number};
use crate::users::{self, Random};

/// Users online.
const USERS: u64 = 10_000;

/// Blocks among them, and users who show presence to nobody.
const BLOCKS: u64 = 100_000;
const PRIVATE_USERS: u64 = 500;

/// Users per query.
const ASKED: u64 = 200;

/// Distinct queries, sent in turn.
const REQUESTS: usize = 256;

/// Queries whose store calls are counted.
const COUNTED: usize = 1000;

/// Length of a slice, and slices of each host.
const SLICE: Duration = Duration::from_millis(400);
const SLICES: usize = 15;

/// Measures round trips, and both hosts side by side.
pub(crate) fn run() -> Result<Section> {
    let servers = [Server::start()?, Server::start()?];
    let [strict, open] = &servers;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let store = NativeRedis::open(&strict.url(), Options::default()).await?;
        let blocks = population::blocks(BLOCKS, USERS)?;
        instance::apply(&store, blocks.into_iter().chain(population::settings(0, PRIVATE_USERS)?).map(Ok)).await
    })?;
    let (ours, theirs) =
        (super::host(Path::new("none"), &strict.url(), 2)?, super::host(Path::new("none"), &open.url(), 2)?);
    for host in [&ours, &theirs] {
        runtime.block_on(super::beat(host, USERS))?;
    }
    let mut random = Random::new(USERS);
    let requests: Requests = (0..REQUESTS).map(|_| query(&mut random)).collect();
    let columns = ["connections", "figure", "blocks and settings", "none", "with/without", "min–max"];
    let mut section = Section::new("policy-queries: two hundred users on Redis, with blocks and without", &columns);
    let counted = runtime.block_on(count(&ours, &requests))?;
    let hosts = Servers::of(ours, theirs, requests);
    hosts.compare(64, SLICE, 2)?;
    for connections in [64, 1] {
        hosts.compare(connections, SLICE, SLICES)?.report(&mut section, connections, Goal::None);
    }
    for (name, figure) in
        ["calls of the store that load sessions", "all calls of the store"].into_iter().zip(counted.calls)
    {
        let cells = ["1", name, &number(figure), "", "", ""].map(str::to_owned);
        section.row(cells, Goal::AtMost(1.0), figure);
    }
    section.note(&format!(
        "{} users online, {} blocks among them, {PRIVATE_USERS} who show presence to nobody; each query by another viewer, for \
        {ASKED} random subjects, of which {:.1} % were hidden. Both hosts have all policy in memory, each on its own \
        Redis; client, hosts and Redis share the cores. Store calls are per query over {COUNTED} queries, by the host's \
        own count; `relations`, which a cold host uses for visibility, was called {} times, and besides the queries the \
        host checked {} times for policy changes, once a second per instance.",
        number(USERS as f64),
        number(BLOCKS as f64),
        counted.hidden * 100.0,
        counted.relations,
        counted.looks,
    ));
    Ok(section)
}

/// A query of a user for random others.
fn query(random: &mut Random) -> Vec<u8> {
    let names: Vec<String> = (0..ASKED).map(|_| format!(r#""{}""#, users::name(random.below(USERS)))).collect();
    let body = format!(r#"{{"users":[{}]}}"#, names.join(","));
    users::request("POST", "/v1/presence", random.below(USERS), &body)
}

/// The counts.
struct Counted {
    /// Store calls per query: loads, and all.
    calls: [f64; 2],
    relations: f64,
    looks: f64,
    /// The share of hidden subjects.
    hidden: f64,
}

async fn count(host: &Host, requests: &Requests) -> Result<Counted> {
    let calls = |operation: &str| {
        host.metric(&format!(r#"rollcall_store_calls_total{{operation="{operation}",outcome="ok"}}"#))
    };
    let read = || ["load", "relations", "archive_get", "policy_page", "policy_since"].map(calls);
    let mut open = Connection::open(host.address()).await?;
    let before = read();
    let (mut hidden, mut seen) = (0, 0);
    for request in requests.iter().cycle().take(COUNTED) {
        let answer = open.ask(request).await?;
        let of = |part: &[u8]| answer.windows(part.len()).filter(|window| *window == part).count();
        hidden += of(br#""state":null"#);
        seen += of(br#""state":"#);
    }
    let after = read();
    ensure!(hidden > 0 && seen as u64 == COUNTED as u64 * ASKED, "{hidden} of {seen} users are hidden");
    let mut more = after.iter().zip(before).map(|(after, before)| after - before);
    let mut next = || more.next().unwrap_or_default();
    let (loads, relations, archive, pages, looks) = (next(), next(), next(), next(), next());
    ensure!(pages < 1.0, "the host was still loading");
    let queries = COUNTED as f64;
    let calls = [loads / queries, (loads + relations + archive) / queries];
    Ok(Counted { calls, relations, looks, hidden: f64::from(u32::try_from(hidden)?) / f64::from(u32::try_from(seen)?) })
}
