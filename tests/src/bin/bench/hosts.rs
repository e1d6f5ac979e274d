//! The same functions in our host, on each Spin, under `wasmtime serve`, in Python and in Node.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rollcall_servers::redis::{Options, Redis};
use rollcall_tests::deployment::{Deployment, Settings, Spin, Wasi};
use rollcall_tests::root;

use crate::load::{Connection, Requests, Seen, load};
use crate::report::{Goal, Section, number, ratio};
use crate::sample::{Comparison, Spread, quantile};
use crate::users;

/// How many users beat.
const USERS: u64 = 1_000;

/// How many are asked for at once.
const ASKED: u64 = 50;

/// How many connections make a full load.
const CONNECTIONS: usize = 32;

/// How many slices each deployment gets, in turn; the first does not count.
const SLICES: usize = 31;

/// How long a slice is.
const SLICE: Duration = Duration::from_millis(700);

/// How many changes are pushed.
const CHANGES: usize = 100;

/// How often each is started for the first answer.
const STARTS: usize = 3;

/// How many calls an embedding example makes.
const CALLS: &str = "500";

/// The folders of `dist/`, and of the synchronous functions that other languages embed.
const FOLDERS: [&str; 6] =
    ["dist/spin", "dist/spin-4.0", "dist/spin-3", "dist/wasi", "dist/wasi-0.2", "target/components/sync"];

/// Starts a deployment on a Redis.
type Start = Box<dyn Fn(&Redis) -> Deployment>;

/// A deployment to be measured.
struct Contender {
    name: String,
    address: String,
    requests: Requests,
    seen: Vec<Seen>,
}

/// Measures single beats; on Spin also against a component that asks Redis for one key.
pub(crate) fn beats() -> Result<Section> {
    let server = redis()?;
    let requests: Requests = (0..USERS).map(users::heartbeat).collect();
    let deployments = deployments(&server);
    let mut contenders = contenders(&deployments, "/v1/heartbeat", &requests);
    let spins = Spin::all();
    let baselines: Vec<_> = spins.iter().map(|spin| baseline(spin, &server)).collect();
    contenders.extend(baselines.iter().map(|deployment| contender(deployment, "/", &requests)));
    take_turns(&mut contenders)?;
    let mut section = table("hosts-beats: single heartbeats, one Redis");
    report(&mut section, &contenders, Goal::AtLeast(4.0));
    for baseline in &contenders {
        let Some(spin) = baseline.name.strip_prefix("one GET on ") else { continue };
        let Some(beats) = contenders.iter().find(|one| one.name == spin) else { continue };
        let (median, range) = ratio(against(beats, baseline));
        let cells = [format!("a beat / one GET, {spin}"), median, range];
        let blank = [String::new(), String::new(), String::new()];
        section.row(cells.into_iter().chain(blank), Goal::AtLeast(0.7), against(beats, baseline).median);
    }
    note(&mut section);
    Ok(section)
}

/// The baseline on Spin, built as for most users of it: on Spin 4.0 for WASI 0.2.
fn baseline(spin: &Spin, server: &Redis) -> Deployment {
    let wasi = if spin.wasi() == Wasi::V0_3 { Wasi::V0_3 } else { Wasi::V0_2 };
    Deployment::baseline(spin, wasi, server.port())
}

/// Measures beats in the examples that embed the functions in other languages, over a store in memory.
pub(crate) fn languages() -> Result<Section> {
    let mut section =
        Section::new("hosts-languages: µs for a heartbeat, store in memory", &["where", "1 a call", "1,000 a call"]);
    for (name, mut example) in examples()? {
        let output = example.args(["--bench", CALLS]).current_dir(root()).output().context("an example starts")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{name}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
        let figures = text.lines().filter_map(|line| line.split_once(" a call: ")?.1.split(' ').next());
        let cells: Vec<_> = std::iter::once(name).chain(figures.map(str::to_owned)).collect();
        section.row(cells, Goal::None, 0.0);
    }
    section.note(&format!(
        "{CALLS} calls each, by `--bench {CALLS}` of `examples/embed-python` and `examples/embed-node`."
    ));
    Ok(section)
}

/// The examples by name: Python with each installed wasmtime, and Node.
fn examples() -> Result<Vec<(String, Command)>> {
    let mut examples = Vec::new();
    for folder in std::fs::read_dir(root().join("target/python"))? {
        let folder = folder?;
        if let Some(version) = folder.file_name().to_string_lossy().strip_prefix("wasmtime-") {
            let mut python = Command::new("python3");
            python.env("PYTHONPATH", folder.path()).arg("examples/embed-python/presence.py");
            examples.push((format!("Python, wasmtime {version}"), python));
        }
    }
    examples.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut node = Command::new("node");
    node.arg("examples/embed-node/presence.mjs");
    let version = Command::new("node").arg("--version").output().context("Node")?;
    examples.push((format!("Node {}", String::from_utf8_lossy(&version.stdout).trim()), node));
    Ok(examples)
}

/// Measures queries for fifty users.
pub(crate) fn queries() -> Result<Section> {
    let server = redis()?;
    let deployments = deployments(&server);
    let beats: Requests = (0..USERS).map(users::heartbeat).collect();
    for deployment in deployments.iter().take(1) {
        load(deployment.address("/v1/heartbeat"), &beats, 8, Duration::from_secs(2))?;
    }
    let mut random = users::Random::new(7);
    let requests: Requests = (0..200)
        .map(|_| users::presences((0..ASKED).map(|_| random.below(USERS)).collect::<Vec<_>>().into_iter()))
        .collect();
    let mut contenders = contenders(&deployments, "/v1/presence", &requests);
    take_turns(&mut contenders)?;
    let mut section = table("hosts-queries: 50 users per query, one Redis");
    report(&mut section, &contenders, Goal::None);
    note(&mut section);
    Ok(section)
}

/// Measures the time from a change to its event at a watcher of the same host.
pub(crate) fn push() -> Result<Section> {
    let server = redis()?;
    let columns = ["where", "p50 ms", "p99 ms", "max ms"];
    let mut section = Section::new("hosts-push: from a change sent to its event at a watcher", &columns);
    for (index, deployment) in deployments(&server).into_iter().enumerate() {
        // A choice stays: so another user for each deployment.
        let name = format!("push-{index}");
        let bob = deployment.client(&name);
        let mut alice = deployment.subscribe("push-alice", &format!("users={name}&watch_only=true"));
        alice.snapshot();
        bob.beat("web");
        alice.presence(&name, "online");
        let mut taken_ms = Vec::new();
        for state in ["busy", "away"].into_iter().cycle().take(CHANGES) {
            let began = Instant::now();
            bob.put("/v1/status", serde_json::json!({ "choice": state }));
            alice.presence(&name, state);
            taken_ms.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        taken_ms.sort_unstable_by(f64::total_cmp);
        let figure = |share| number(quantile(&taken_ms, share));
        let p50 = quantile(&taken_ms, 0.5);
        section.row([deployment.name.clone(), figure(0.5), figure(0.99), figure(1.0)], Goal::AtMost(20.0), p50);
    }
    section
        .note(&format!("{CHANGES} changes of one user's choice, one after the other, on an otherwise idle service."));
    Ok(section)
}

/// Measures the time from start to first answer, and lists file sizes.
pub(crate) fn starts() -> Result<Section> {
    let server = redis()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut section =
        Section::new("hosts-starts: from the process to its first answer, and sizes", &["figure", "value"]);
    for start in starters() {
        let (mut name, mut taken_ms) = (String::new(), Vec::new());
        for _ in 0..STARTS {
            let began = Instant::now();
            let deployment = start(&server);
            runtime.block_on(async {
                Connection::open(deployment.address("/v1/heartbeat")).await?.ask(&users::heartbeat(1)).await?;
                anyhow::Ok(())
            })?;
            taken_ms.push(began.elapsed().as_secs_f64() * 1000.0);
            name = deployment.name;
        }
        section.row([format!("{name}, ms"), number(Spread::of(&taken_ms).median)], Goal::None, 0.0);
    }
    for folder in FOLDERS {
        let mut files: Vec<_> = std::fs::read_dir(root().join(folder))?.collect::<Result<_, _>>()?;
        files.sort_by_key(std::fs::DirEntry::file_name);
        for file in files.iter().filter(|file| file.path().extension().is_some_and(|extension| extension == "wasm")) {
            let name = format!("`{folder}/{}`, KB", file.file_name().to_string_lossy());
            section.row([name, number(file.metadata()?.len() as f64 / 1e3)], Goal::None, 0.0);
        }
    }
    section.note(&format!(
        "The median of {STARTS} starts, with all functions: our host embeds them precompiled, Spin compiles seven files of about \
         two megabytes, and `wasmtime serve` is six processes that compile one each, one after the other."
    ));
    Ok(section)
}

fn redis() -> Result<Redis> {
    let args = ["--notify-keyspace-events", "Ex"].map(str::to_owned).to_vec();
    Redis::with(Options { args, ..Options::default() }).context("a Redis")
}

/// What is installed: our host; each Spin with the components for its WASI, and with those for 0.2 if that is another one;
/// `wasmtime serve` with both.
fn starters() -> Vec<Start> {
    let mut all: Vec<Start> = vec![Box::new(|server| Deployment::host(&server.url(), Settings::default()))];
    for spin in Spin::all() {
        let both = [spin.wasi(), Wasi::V0_2];
        for wasi in if spin.wasi() == Wasi::V0_2 { &both[1..] } else { &both[..] }.to_vec() {
            let spin = spin.clone();
            all.push(Box::new(move |server| Deployment::spin_with(&spin, wasi, server.port(), Settings::default())));
        }
    }
    if Deployment::has_wasmtime() {
        all.push(Box::new(|server| Deployment::wasmtime(&server.url(), Settings::default())));
        all.push(Box::new(|server| Deployment::wasmtime_0_2(&server.url(), Settings::default())));
    }
    all
}

/// Starts all of them.
fn deployments(server: &Redis) -> Vec<Deployment> {
    starters().into_iter().map(|start| start(server)).collect()
}

fn contenders(deployments: &[Deployment], path: &str, requests: &Requests) -> Vec<Contender> {
    deployments.iter().map(|deployment| contender(deployment, path, requests)).collect()
}

fn contender(deployment: &Deployment, path: &str, requests: &Requests) -> Contender {
    let (address, requests) = (deployment.address(path).to_owned(), requests.clone());
    Contender { name: deployment.name.clone(), address, requests, seen: Vec::new() }
}

/// Slice by slice, each in turn. The first round is warm-up.
fn take_turns(contenders: &mut [Contender]) -> Result<()> {
    for round in 0..SLICES {
        for contender in contenders.iter_mut() {
            let seen = load(&contender.address, &contender.requests, CONNECTIONS, SLICE);
            let seen = seen.with_context(|| format!("{} was asked", contender.name))?;
            if round > 0 {
                contender.seen.push(seen);
            }
        }
    }
    Ok(())
}

fn table(title: &'static str) -> Section {
    Section::new(title, &["where", "requests/s", "our host / it", "min–max", "p50 µs", "p99 µs"])
}

fn report(section: &mut Section, contenders: &[Contender], goal: Goal) {
    for contender in contenders {
        let median = |figure: fn(&Seen) -> f64| {
            number(Spread::of(&contender.seen.iter().map(figure).collect::<Vec<_>>()).median)
        };
        let ours = contenders.first().map(|ours| against(ours, contender)).unwrap_or(Spread {
            low: 1.0,
            median: 1.0,
            high: 1.0,
        });
        let (times, range) = ratio(ours);
        let goal = if contender.name.starts_with("Spin") { goal } else { Goal::None };
        let cells = [
            contender.name.clone(),
            median(|seen| seen.per_second),
            times,
            range,
            median(|seen| seen.p50_us),
            median(|seen| seen.p99_us),
        ];
        section.row(cells, goal, ours.median);
    }
}

/// The ratio of requests per second, slice by slice.
fn against(ours: &Contender, theirs: &Contender) -> Spread {
    let mut comparison = Comparison::default();
    ours.seen.iter().zip(&theirs.seen).for_each(|(one, other)| comparison.push(one.per_second, other.per_second));
    comparison.ratio()
}

fn note(section: &mut Section) {
    let mut text = format!(
        "{CONNECTIONS} connections, keep-alive, {} users, the client and Redis on the same cores. Each with default settings.",
        number(USERS as f64)
    );
    for (name, is_there) in [("Spin", !Spin::all().is_empty()), ("`wasmtime serve`", Deployment::has_wasmtime())] {
        if !is_there {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name} was not installed, and not measured.");
        }
    }
    section.note(&text);
}
