//! The cost of a presence query: for one user and two hundred, over HTTP, and in process through the component compared with
//! native code.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rollcall_core::UserId;
use rollcall_functions::query;
use rollcall_tests::Host;

use crate::load::{Requests, load};
use crate::process::cpu_us;
use crate::report::{Goal, Section, number};
use crate::sample::Spread;
use crate::users::{self, Random};
use crate::wasm_and_native::{self, WasmAndNative, in_turn, on_a_worker};

/// Users online.
const USERS: u64 = 10_000;

/// Users per query.
const ASKED: [usize; 2] = [1, 200];

/// Distinct requests, sent in turn.
const REQUESTS: usize = 256;

/// Connections at full load.
const CONNECTIONS: usize = 64;

/// Slices of each kind of request, in turn.
const SLICES: usize = 5;

/// Length of a slice over HTTP.
const SLICE: Duration = Duration::from_millis(500);

/// Measures over HTTP and in process.
pub(crate) fn run() -> Result<Section> {
    let mut section = Section::new(
        "query: presence of users",
        &["path", "users per query", "queries/s", "µs/query", "µs/user", "server CPU µs/query"],
    );
    over_http(&mut section)?;
    in_process(&mut section)?;
    section.note(&format!(
        "{} users online, queried at random. Over HTTP: GET for one, POST for two hundred; queries/s at \
         {CONNECTIONS} connections, µs/query as the client sees it on one connection (p50), µs/user of the server's CPU \
         time at full load. The client shares the server's cores. In process: one call in flight.",
        number(USERS as f64),
    ));
    Ok(section)
}

fn over_http(section: &mut Section) -> Result<()> {
    let host = Host::start_in(Path::new("none"), &["--interval", "10m"]);
    let all_users: Requests = (0..USERS).step_by(500).map(|first| users::heartbeats(first..first + 500)).collect();
    load(host.address(), &all_users, 1, SLICE)?;
    let mut random = Random::new(USERS);
    let mut random_user = || random.below(USERS);
    let one = |index| users::request("GET", &format!("/v1/presence/{}", users::name(index)), 0, "");
    let gets: Requests = (0..REQUESTS).map(|_| one(random_user())).collect();
    let posts: Requests = (0..REQUESTS).map(|_| users::presences((0..200).map(|_| random_user()))).collect();
    let mut kinds = [(1, gets, Figures::default()), (200, posts, Figures::default())];
    for _ in 0..SLICES {
        for (_, requests, figures) in &mut kinds {
            let before = cpu_us(host.pid())?;
            let seen = load(host.address(), requests, CONNECTIONS, SLICE)?;
            figures.cpu_us.push((cpu_us(host.pid())? - before) / seen.answers as f64);
            figures.per_second.push(seen.per_second);
            figures.quiet_us.push(load(host.address(), requests, 1, SLICE)?.p50_us);
        }
    }
    for (asked, _, figures) in kinds {
        let cpu_us = Spread::of(&figures.cpu_us).median;
        let cells = [
            "HTTP".to_owned(),
            asked.to_string(),
            number(Spread::of(&figures.per_second).median),
            number(Spread::of(&figures.quiet_us).median),
            number(cpu_us / f64::from(asked)),
            number(cpu_us),
        ];
        section.row(cells, Goal::None, 0.0);
    }
    Ok(())
}

#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    quiet_us: Vec<f64>,
    cpu_us: Vec<f64>,
}

fn in_process(section: &mut Section) -> Result<()> {
    let comparisons = on_a_worker(USERS, async |functions| {
        let (mut ours, mut theirs) = (Random::new(1), Random::new(2));
        let mut comparisons = Vec::new();
        for asked in ASKED {
            let wasm = async || through_wasm(&functions, asked, || ours.below(USERS)).await;
            let native = async || natively(&functions, asked, || theirs.below(USERS)).await;
            comparisons.push(in_turn(wasm, native).await?);
        }
        Ok(comparisons)
    })?;
    for (asked, comparison) in ASKED.into_iter().zip(comparisons) {
        for (path, us) in [("component", comparison.ours()), ("native", comparison.theirs())] {
            let cells = [
                path.to_owned(),
                asked.to_string(),
                number(1e6 / us),
                number(us),
                number(us / asked as f64),
                "—".to_owned(),
            ];
            section.row(cells, Goal::None, 0.0);
        }
    }
    Ok(())
}

/// Microseconds per query in one slice.
async fn through_wasm(functions: &WasmAndNative, asked: usize, mut random_user: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut queries) = (Duration::ZERO, 0);
    while spent < wasm_and_native::SLICE {
        let users = (0..asked).map(|_| UserId::parse(users::name(random_user()))).collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        for answer in functions.wasm.look_up(None, users).await? {
            black_box(answer?);
        }
        spent += began.elapsed();
        queries += 1;
    }
    Ok(spent.as_nanos() as f64 / 1000.0 / f64::from(queries))
}

/// Microseconds per query in one slice.
async fn natively(functions: &WasmAndNative, asked: usize, mut random_user: impl FnMut() -> u64) -> Result<f64> {
    let (mut spent, mut queries) = (Duration::ZERO, 0);
    let native = &functions.native;
    while spent < wasm_and_native::SLICE {
        let users = (0..asked).map(|_| UserId::parse(users::name(random_user()))).collect::<Result<_, _>>()?;
        let began = Instant::now();
        for answer in query::look_up((native, native, native), &functions.rules, None, users).await? {
            black_box(answer?);
        }
        spent += began.elapsed();
        queries += 1;
    }
    Ok(spent.as_nanos() as f64 / 1000.0 / f64::from(queries))
}
