//! The service from start to end: opens what it needs, refuses to start on what cannot work, serves, and drains.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rollcall_api::Access;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::config::Config;
use crate::http::console::{self, Console};
use crate::http::worker::{AcceptedConnection, Worker, WorkerAssignment};
use crate::hub::{ConnectedDevices, Hubs};
use crate::jobs::policy_sync::{PolicySyncOptions, followers};
use crate::runtime::{Catalog, Checker, Platform, Source, engine, tick};
use crate::stats::{HostInfo, SharedStats};
use crate::storage::{self, Storage};

/// A worker has its own functions and connections; beyond this many, one more gains nothing that was ever measured.
const MAX_DEFAULT_WORKERS: usize = 64;

/// Serves until the process is told to end. `embedded` finds the compiled component of a function by its name, and
/// `console` are the pages for people.
pub fn run(config: &Config, embedded: &dyn Fn(&str) -> Option<&'static [u8]>, console: &[console::File]) -> Result<()> {
    let access = Arc::new(config.access()?);
    let engine = engine().map_err(anyhow::Error::from).context("cannot set up the WebAssembly engine")?;
    let catalog = Catalog::load(&engine, |name| source(config, embedded, name))?;
    tick(&engine)?;
    // One thread beside this one, for what keeps connections to stores alive.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_name("rollcall-store").enable_all().build()?;
    let storage = runtime.block_on(Storage::open(config))?;
    let listener = TcpListener::bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let worker_count = worker_count(config);
    let (checkers, checker_instances): (Vec<_>, Vec<_>) =
        (0..instances(config, worker_count)).map(|_| Checker::open()).unzip();
    let checker = checkers.first().cloned().context("there is at least one worker")?;
    let platform = Platform {
        store: Arc::clone(&storage.store),
        archive: Arc::clone(&storage.archive),
        topics: Arc::clone(&storage.topics),
        policies: Arc::clone(&storage.policies),
        checker,
        policy_memory: config.policy_memory,
        rules: config.rules(),
        metrics: Arc::new(storage.metrics()),
    };
    runtime.block_on(catalog.prove(&engine, &platform))?;
    let sync_options = PolicySyncOptions { memory_bytes: config.policy_memory, spread: storage.spread() };
    let (hubs, queries) = Hubs::of(worker_count as usize);
    let (followers, assignments) = {
        let _runtime = runtime.enter();
        let (followers, following, invalidated) =
            followers(checkers.clone(), &platform, sync_options, worker_count as usize);
        let mut checker_instances = checker_instances.into_iter().zip(following);
        let assignment = |((plan, invalidated), queries)| WorkerAssignment {
            plan,
            checker_instance: checker_instances.next(),
            invalidated,
            queries,
        };
        (followers, storage.plans(worker_count).into_iter().zip(invalidated).zip(queries).map(assignment).collect())
    };
    let shared_stats = SharedStats::new(about(config, &access, &platform), storage.online_counter(), hubs);
    let worker = Worker {
        engine,
        catalog,
        platform,
        access: Arc::clone(&access),
        origins: Arc::new(config.origins.clone()),
        limits: config.limits(),
        hub_options: config.hub_options(),
        present: ConnectedDevices::default(),
        followers,
        shared_stats: Arc::new(shared_stats),
        console: Arc::new(Console::new(console)),
        drain: config.drain,
    };
    let (ending, ended) = watch::channel(false);
    let workers = workers(&worker, &checkers, assignments, &ended)?;
    drop(worker);
    // Before anybody is told that the service is there: from then on it may be told to end.
    let signals = runtime.block_on(async { Signals::listen() })?;
    announce(config, address, &access);
    runtime.block_on(storage.opened())?;
    let asked = runtime.block_on(accept(listener, &workers, signals, config.max_connections))?;
    tracing::info!("ending: no new connections are taken, open ones are finished");
    ending.send_replace(true);
    let joined: Vec<_> = workers.into_iter().map(|worker| worker.thread.join()).collect();
    runtime.block_on(storage.close())?;
    for ended in joined {
        ended.map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    anyhow::ensure!(asked == Asked::ToEnd, "a worker ended by itself; the log says why");
    tracing::info!("ended");
    Ok(())
}

/// Why the service ends.
#[derive(PartialEq, Eq)]
enum Asked {
    /// The process was told to.
    ToEnd,
    /// A worker ended by itself.
    ByFailure,
}

fn about(config: &Config, access: &Access, platform: &Platform) -> HostInfo {
    HostInfo {
        started: platform.topics.now(),
        store: storage::store_name(config),
        archive: storage::archive_name(config),
        open: matches!(access, Access::Open),
        rules: platform.rules,
    }
}

fn source(config: &Config, embedded: &dyn Fn(&str) -> Option<&'static [u8]>, name: &str) -> Source {
    match (config.component.get(name), embedded(name)) {
        (Some(file), _) => Source::File(file.clone()),
        (None, Some(bytes)) => Source::Compiled(bytes),
        // Reported as unreadable, by name: the binary was built without this function.
        (None, None) => Source::File(format!("{name}.wasm").into()),
    }
}

/// A running worker.
struct Running {
    accepted: mpsc::UnboundedSender<AcceptedConnection>,
    thread: JoinHandle<std::io::Result<()>>,
}

fn worker_count(config: &Config) -> u32 {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_DEFAULT_WORKERS) as u32,
        count => count as u32,
    }
}

/// How many instances of `restriction-check` there are: each worker has one, or a few workers have one together.
fn instances(config: &Config, workers: u32) -> u32 {
    if config.policy_instances == 0 { workers } else { workers.min(config.policy_instances) }
}

fn workers(
    worker: &Worker,
    checkers: &[Checker],
    assignments: Vec<WorkerAssignment>,
    ended: &watch::Receiver<bool>,
) -> Result<Vec<Running>> {
    let mut running = Vec::new();
    for ((index, assignment), checker) in assignments.into_iter().enumerate().zip(checkers.iter().cycle()) {
        let mut worker = worker.clone();
        worker.platform.checker = checker.clone();
        let (accepted, queue) = mpsc::unbounded_channel();
        let ended = ended.clone();
        let thread = std::thread::Builder::new().name(format!("rollcall-{index}"));
        running.push(Running { accepted, thread: thread.spawn(move || worker.run(assignment, queue, ended))? });
    }
    Ok(running)
}

/// The ways in which a process is told to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Hands connections to the workers in turn until the process is told to end.
async fn accept(
    listener: TcpListener,
    workers: &[Running],
    mut signals: Signals,
    max_connections: usize,
) -> Result<Asked> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(max_connections));
    let mut pulse = tokio::time::interval(std::time::Duration::from_millis(500));
    let mut turns = workers.iter().cycle();
    loop {
        let next = async {
            // Where every place is taken, new clients wait in the kernel's queue rather than being turned away.
            let permit = Arc::clone(&places).acquire_owned().await?;
            let (stream, _) = listener.accept().await?;
            anyhow::Ok((stream, permit))
        };
        let (stream, permit) = tokio::select! {
            arrival = next => match arrival {
                Ok(arrival) => arrival,
                Err(error) => {
                    tracing::warn!("cannot take a connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = signals.received() => return Ok(Asked::ToEnd),
            // A worker that ended takes its share of the shards along: nobody would sweep them.
            _ = pulse.tick() => match workers.iter().any(|worker| worker.thread.is_finished()) {
                true => return Ok(Asked::ByFailure),
                false => continue,
            },
        };
        // A small answer must not wait for the next one.
        let _ = stream.set_nodelay(true);
        if let (Some(worker), Ok(stream)) = (turns.next(), stream.into_std()) {
            let _ = worker.accepted.send((stream, permit));
        }
    }
}

/// Says on standard output where the service is and how to talk to it: the first thing a newcomer sees.
fn announce(config: &Config, address: SocketAddr, access: &Access) {
    let mut out = std::io::stdout().lock();
    let who = match access {
        Access::Open => "No key is set: only this machine is served, and `Rollcall-User: NAME` says who is asking.",
        Access::Keyed { .. } => "Callers need a token: `Authorization: Bearer …`; `rollcall token` makes one.",
    };
    let kept = storage::described(config);
    // Nobody may be listening to standard output, and that is all right.
    let _ = writeln!(out, "rollcall {} listening on http://{address}\n{who}\n{kept}", env!("CARGO_PKG_VERSION"));
    let _ = out.flush();
}
