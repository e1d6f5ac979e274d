//! The host from start to stop: opens the stores, refuses to start on what cannot work, serves, and drains.

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
use crate::jobs::Supervisor;
use crate::jobs::policy_sync::{PolicySyncOptions, policy_syncs};
use crate::runtime::{Catalog, Checker, Platform, Source, engine, tick};
use crate::stats::{HostInfo, SharedStats};
use crate::storage::{self, Storage};

/// More workers than this never measured faster.
const MAX_DEFAULT_WORKERS: usize = 64;

/// Serves until the process receives a signal to stop. `embedded` finds the compiled component of a function by its name;
/// `console` are the files of the console.
pub fn run(config: &Config, embedded: &dyn Fn(&str) -> Option<&'static [u8]>, console: &[console::File]) -> Result<()> {
    let access = Arc::new(config.access()?);
    let engine = engine().map_err(anyhow::Error::from).context("cannot set up the WebAssembly engine")?;
    let catalog = Catalog::load(&engine, |name| source(config, embedded, name))?;
    tick(&engine)?;
    // One thread beside this one, for connections to stores and the host's own jobs.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_name("rollcall-store").enable_all().build()?;
    let storage = runtime.block_on(Storage::open(config))?;
    let listener = TcpListener::bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let worker_count = worker_count(config);
    let (checkers, checker_instances): (Vec<_>, Vec<_>) =
        (0..instances(config, worker_count)).map(|_| Checker::open()).unzip();
    let checker = checkers.first().cloned().context("there is at least one worker")?;
    let platform = storage.platform(config, checker);
    runtime.block_on(catalog.try_instantiate(&engine, &platform))?;
    let supervisor = Supervisor::new(&platform.metrics);
    let (hubs, queries) = Hubs::of(worker_count as usize);
    let (policy_sync, assignments) = {
        let _runtime = runtime.enter();
        let options = PolicySyncOptions { memory_bytes: config.policy_memory, spread: storage.load_spread() };
        let (handle, syncs, invalidated) = policy_syncs(checkers.clone(), &platform, options, worker_count as usize);
        let mut checker_instances = checker_instances.into_iter().zip(syncs);
        let assignment = |((session_jobs, invalidated), queries)| {
            let checker_instance = checker_instances.next();
            WorkerAssignment { session_jobs, checker_instance, invalidated, queries }
        };
        let session_jobs = storage.start_jobs(&supervisor, worker_count);
        (handle, session_jobs.into_iter().zip(invalidated).zip(queries).map(assignment).collect())
    };
    let shared_stats = SharedStats::new(host_info(config, &access, &platform), storage.online_counter(), hubs);
    let worker = Worker {
        engine,
        catalog,
        platform,
        access: Arc::clone(&access),
        origins: Arc::new(config.origins.clone()),
        limits: config.limits(),
        hub_options: config.hub_options(),
        connected_devices: ConnectedDevices::default(),
        policy_sync,
        shared_stats: Arc::new(shared_stats),
        console: Arc::new(Console::new(console)),
        drain: config.drain,
    };
    let (ending, ended) = watch::channel(false);
    let workers = start_workers(worker, &checkers, assignments, &ended)?;
    // Before the address is printed: from then on a caller may send a signal.
    let signals = runtime.block_on(async { Signals::listen() })?;
    announce(config, address, &access);
    runtime.block_on(storage.opened())?;
    let cause = runtime.block_on(accept(listener, &workers, signals, config.max_connections))?;
    tracing::info!("Stopping; draining open connections");
    ending.send_replace(true);
    let joined: Vec<_> = workers.into_iter().map(|worker| worker.thread.join()).collect();
    supervisor.stop();
    runtime.block_on(storage.close())?;
    for ended in joined {
        ended.map_err(|_| anyhow::anyhow!("a worker thread panicked"))??;
    }
    anyhow::ensure!(cause == StopCause::Signal, "a worker thread ended unexpectedly; the log says why");
    tracing::info!("Stopped");
    Ok(())
}

/// Why the host stops.
#[derive(PartialEq, Eq)]
enum StopCause {
    /// The process received a signal.
    Signal,
    /// A worker thread ended.
    WorkerEnded,
}

fn host_info(config: &Config, access: &Access, platform: &Platform) -> HostInfo {
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
        // The binary was built without this function: reported as an unreadable file of its name.
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

/// How many instances of `restriction-check` there are. Workers share them if there are fewer.
fn instances(config: &Config, workers: u32) -> u32 {
    if config.policy_instances == 0 { workers } else { workers.min(config.policy_instances) }
}

fn start_workers(
    worker: Worker,
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

/// The signals that stop the process.
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

/// Hands connections to the workers in turn, until a signal arrives or a worker ends.
async fn accept(
    listener: TcpListener,
    workers: &[Running],
    mut signals: Signals,
    max_connections: usize,
) -> Result<StopCause> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(max_connections));
    let mut check_interval = tokio::time::interval(std::time::Duration::from_millis(500));
    let mut turns = workers.iter().cycle();
    loop {
        let next = async {
            // At the limit, new clients wait in the kernel's queue instead of being refused.
            let permit = Arc::clone(&places).acquire_owned().await?;
            let (stream, _) = listener.accept().await?;
            anyhow::Ok((stream, permit))
        };
        let (stream, permit) = tokio::select! {
            arrival = next => match arrival {
                Ok(arrival) => arrival,
                Err(error) => {
                    tracing::warn!(%error, "Cannot accept a connection; retrying");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = signals.received() => return Ok(StopCause::Signal),
            // The shards of a worker that ended are not swept any more.
            _ = check_interval.tick() => match workers.iter().any(|worker| worker.thread.is_finished()) {
                true => return Ok(StopCause::WorkerEnded),
                false => continue,
            },
        };
        // A small response must not wait for the next one.
        let _ = stream.set_nodelay(true);
        if let (Some(worker), Ok(stream)) = (turns.next(), stream.into_std()) {
            let _ = worker.accepted.send((stream, permit));
        }
    }
}

/// Prints the address and how to call it: the first thing a new user sees.
fn announce(config: &Config, address: SocketAddr, access: &Access) {
    let mut out = std::io::stdout().lock();
    let who = match access {
        Access::Open => {
            "No key is set: only this machine is served, and the header `Rollcall-User: NAME` names the caller."
        }
        Access::Keyed { .. } => "Callers need a token: `Authorization: Bearer …`; `rollcall token` makes one.",
    };
    let kept = storage::described(config);
    // Standard output may be closed.
    let _ = writeln!(out, "rollcall {} listening on http://{address}\n{who}\n{kept}", env!("CARGO_PKG_VERSION"));
    let _ = out.flush();
}
