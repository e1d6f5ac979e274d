//! Reads: queries of 1, 50 and 200 users over HTTP, on every store, and side by side with a server made for one `MGET`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::LastSeenEntry;
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_servers::redis::{Cluster, Redis};
use rollcall_store::ArchiveStore;
use rollcall_tests::Host;

use crate::http::Server;
use crate::load::{Requests, load};
use crate::mget_server;
use crate::process::cpu_us;
use crate::redis::info;
use crate::report::{Goal, Section, number, ratio};
use crate::sample::{Comparison, Spread};
use crate::users::{self, Random};

/// Users online, users who left within the hour, and users who are known from the archive only.
const USERS: u64 = 10_000;

/// Users per query.
const ASKED: [usize; 3] = [1, 50, 200];

/// Distinct requests of a kind, sent in turn.
const REQUESTS: usize = 256;

/// Connections at full load.
const CONNECTIONS: usize = 32;

/// Slices of each contender, in turn.
const SLICES: usize = 15;

/// Length of a slice.
const SLICE: Duration = Duration::from_millis(400);

/// Which users a query asks about.
#[derive(Debug, Clone, Copy)]
enum Mix {
    /// Everyone is online.
    Online,
    /// Of a hundred users 20 are online, 10 left within the hour, and 70 left long ago.
    Contacts,
    /// Everyone left long ago.
    Gone,
}

impl Mix {
    const ALL: [Mix; 3] = [Self::Online, Self::Contacts, Self::Gone];

    fn name(self) -> &'static str {
        match self {
            Self::Online => "all online",
            Self::Contacts => "contacts",
            Self::Gone => "all gone",
        }
    }

    /// The index of a user to ask about: below [`USERS`] they are online, then come those who left, then those long gone.
    fn user(self, random: &mut Random) -> u64 {
        let user = random.below(USERS);
        match (self, random.below(100)) {
            (Self::Online, _) | (Self::Contacts, 0..20) => user,
            (Self::Contacts, 20..30) => USERS + user,
            (Self::Contacts, _) | (Self::Gone, _) => 2 * USERS + user,
        }
    }

    fn requests(self, asked: usize) -> Requests {
        let mut random = Random::new(USERS);
        (0..REQUESTS).map(|_| users::presences((0..asked).map(|_| self.user(&mut random)))).collect()
    }
}

/// What one slice of load costs.
struct Cost {
    per_second: f64,
    server_us: f64,
    redis_us: f64,
    quiet_us: f64,
}

/// Loads a server with many connections, and then with one.
fn slice(server: &impl Server, redis: &[&Redis], requests: &Requests) -> Result<Cost> {
    let redis_us = || -> Result<f64> {
        let of = |redis: &&Redis| Ok(info(redis, "cpu", "used_cpu_user")? + info(redis, "cpu", "used_cpu_sys")?);
        Ok(redis.iter().map(of).sum::<Result<f64>>()? * 1e6)
    };
    let before = (cpu_us(server.pid())?, redis_us()?);
    let seen = load(server.address(), requests, CONNECTIONS, SLICE)?;
    let answers = seen.answers as f64;
    Ok(Cost {
        per_second: seen.per_second,
        server_us: (cpu_us(server.pid())? - before.0) / answers,
        redis_us: (redis_us()? - before.1) / answers,
        quiet_us: load(server.address(), requests, 1, SLICE / 2)?.p50_us,
    })
}

/// A host on which everyone beat or left. Nobody expires while it is measured.
fn host(store: &[&str]) -> Result<Host> {
    let settings = ["--interval", "10m", "--evict-after", "1h"];
    let host = Host::start_in(Path::new("none"), &[store, &settings].concat());
    let beats: Requests = (0..2 * USERS).step_by(500).map(|first| users::heartbeats(first..first + 500)).collect();
    let leave = |index| users::request("POST", "/v1/leave", index, &format!(r#"{{"device":"{}"}}"#, users::DEVICE));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = crate::load::Connection::open(host.address()).await?;
        for request in beats.iter().cloned().chain((USERS..2 * USERS).map(leave)) {
            connection.ask(&request).await?;
        }
        anyhow::Ok(())
    })?;
    Ok(host)
}

/// Stores the last seen of those who left long ago.
fn fill_archive(url: &str) -> Result<()> {
    let entry =
        |index| Ok(LastSeenEntry { user: UserId::parse(users::name(index))?, last_seen: Time(1_700_000_000_000) });
    let entries: Vec<LastSeenEntry> = (2 * USERS..3 * USERS).map(entry).collect::<Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let store = Arc::new(NativeRedis::open(url, Options::default()).await?);
        Ok(store.put_many(entries).await?)
    })
}

/// Measures the host on Redis and the MGET server in turn, each with a Redis of its own.
pub(crate) fn against_mget() -> Result<Section> {
    let (ours, theirs) = (Redis::start()?, Redis::start()?);
    let (host, baseline) = (host(&["--store", &ours.url()])?, mget_server::start(&theirs, USERS)?);
    let mut section = Section::new(
        "reads-mget: users online, against hyper, the redis crate and one MGET",
        &["users", "figure", "ours", "MGET server", "ours / it", "min–max"],
    );
    for asked in ASKED {
        let requests = Mix::Online.requests(asked);
        let mut figures: [Comparison; 4] = Default::default();
        for round in 0..=SLICES {
            let (us, it) = (slice(&host, &[&ours], &requests)?, slice(&baseline, &[&theirs], &requests)?);
            if round > 0 {
                let pairs = [
                    (us.per_second, it.per_second),
                    (us.redis_us, it.redis_us),
                    (us.server_us, it.server_us),
                    (us.quiet_us, it.quiet_us),
                ];
                figures.iter_mut().zip(pairs).for_each(|(figure, (us, it))| figure.push(us, it));
            }
        }
        let goals = [
            ("requests/s", Goal::AtLeast(0.6)),
            ("Redis CPU, µs a query", Goal::AtMost(1.2)),
            ("server CPU, µs a query", Goal::AtMost(2.0)),
            ("p50 on one connection, µs", Goal::AtMost(1.5)),
        ];
        for (figure, (name, goal)) in figures.iter().zip(goals) {
            let goal = if asked == 200 { goal } else { Goal::None };
            let (times, range) = ratio(figure.ratio());
            let cells =
                [asked.to_string(), name.to_owned(), number(figure.ours()), number(figure.theirs()), times, range];
            section.row(cells, goal, figure.ratio().median);
        }
        if asked == 200 {
            let raw = raw_gets(&ours, asked)?;
            let ours = figures.last().map_or(0.0, Comparison::ours);
            let cells = ["200", "p50 / 200 raw GETs", &number(ours), &number(raw), &format!("{:.2}", ours / raw), ""];
            section.row(cells.map(str::to_owned), Goal::AtMost(4.0), ours / raw);
        }
    }
    section.note(&format!(
        "{} users online, queried at random, POST /v1/presence; {CONNECTIONS} connections at full load. The MGET server's values \
         are JSON already: it knows no devices, deadlines, policy or bad input. Raw: {} pipelined GETs over one socket.",
        number(USERS as f64),
        ASKED.last().copied().unwrap_or_default(),
    ));
    Ok(section)
}

/// The median time of so many pipelined `GET`s of `alive` keys over one socket, in microseconds.
fn raw_gets(server: &Redis, count: usize) -> Result<f64> {
    let keys = rollcall_redis::keyspace::Keyspace::of_hosts(rollcall_core::DEFAULT_SHARDS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = redis::Client::open(server.url())?.get_multiplexed_async_connection().await?;
        let (mut random, mut taken) = (Random::new(7), Vec::new());
        for _ in 0..500 {
            let mut pipeline = redis::pipe();
            for _ in 0..count {
                pipeline.cmd("GET").arg(keys.alive(&users::name(random.below(USERS))).to_string());
            }
            let began = Instant::now();
            let found: Vec<Option<String>> = pipeline.query_async(&mut connection).await?;
            taken.push(began.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(found.iter().all(Option::is_some), "a user is not online");
        }
        Ok(Spread::of(&taken).median)
    })
}

/// Measures every store with every mix of users.
pub(crate) fn stores() -> Result<Section> {
    let mut section = Section::new(
        "reads-stores: queries over HTTP",
        &["store", "users", "mix", "requests/s", "p50 µs, one connection", "server CPU µs", "Redis CPU µs"],
    );
    let single = Redis::start()?;
    let cluster = Cluster::start().context("a cluster")?;
    fill_archive(&single.url())?;
    fill_archive(&cluster.url())?;
    let stores: [(&str, Vec<String>, Vec<&Redis>); 3] = [
        ("embedded", Vec::new(), Vec::new()),
        ("Redis", vec!["--store".to_owned(), single.url()], vec![&single]),
        ("Cluster", vec!["--store".to_owned(), cluster.url()], cluster.nodes().iter().collect()),
    ];
    for (name, arguments, servers) in &stores {
        let host = host(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        for mix in Mix::ALL {
            for asked in ASKED {
                let requests = mix.requests(asked);
                let slices = (0..=SLICES / 3).map(|_| slice(&host, servers, &requests)).collect::<Result<Vec<_>>>()?;
                let median = |figure: fn(&Cost) -> f64| {
                    number(Spread::of(&slices.iter().skip(1).map(figure).collect::<Vec<_>>()).median)
                };
                let cells = [
                    (*name).to_owned(),
                    asked.to_string(),
                    mix.name().to_owned(),
                    median(|cost| cost.per_second),
                    median(|cost| cost.quiet_us),
                    median(|cost| cost.server_us),
                    median(|cost| cost.redis_us),
                ];
                section.row(cells, Goal::None, 0.0);
            }
        }
    }
    section.note(
        "Contacts: 20 % online, 10 % left within the hour, 70 % long ago. Those who left long ago are in the archive in Redis; on the \
         embedded store they are unknown, which is read in the same way.",
    );
    Ok(section)
}
