//! The service from start to end: opens what it needs, refuses to start on what cannot work, serves, and drains.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rollcall_api::Access;
use rollcall_functions::capabilities::Shards;
use rollcall_store::memory::Options;
use rollcall_store::{Clock, Memory, SqliteArchive};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::config::Config;
use crate::engine::{Catalog, Platform, Source, engine, tick};
use crate::metrics::Metrics;
use crate::worker::{Arrival, Worker};

/// Serves until the process is told to end. `embedded` finds the compiled component of a function by its name.
pub fn run(config: &Config, embedded: &dyn Fn(&str) -> Option<&'static [u8]>) -> Result<()> {
    let access = Arc::new(config.access()?);
    let engine = engine().map_err(anyhow::Error::from).context("cannot set up the WebAssembly engine")?;
    let catalog = Catalog::load(&engine, |name| source(config, embedded, name))?;
    tick(&engine)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let disk = runtime.block_on(Disk::open(config))?;
    let listener = TcpListener::bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let platform = Platform {
        store: disk.memory.clone(),
        archive: disk.archive.clone(),
        rules: config.rules(),
        metrics: Arc::new(Metrics::default()),
    };
    runtime.block_on(catalog.prove(&engine, &platform))?;
    let worker = Worker {
        engine,
        catalog,
        platform,
        memory: Arc::clone(&disk.memory),
        access: Arc::clone(&access),
        limits: config.limits(),
        shards: Shards { first: 0, end: 0 },
        drain: config.drain,
    };
    let (ending, ended) = watch::channel(false);
    let workers = workers(config, &worker, &ended)?;
    drop(worker);
    // Before anybody is told that the service is there: from then on it may be told to end.
    let signals = {
        let _runtime = runtime.enter();
        Signals::listen()?
    };
    announce(config, address, &access);
    runtime.block_on(disk.archive.forget_saved()).context("cannot strike out the last run's sessions")?;
    let asked = runtime.block_on(accept(listener, &workers, signals, config.max_connections))?;
    tracing::info!("ending: no new connections are taken, open ones are finished");
    ending.send_replace(true);
    let joined: Vec<_> = workers.into_iter().map(|worker| worker.thread.join()).collect();
    runtime.block_on(disk.save())?;
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

fn source(config: &Config, embedded: &dyn Fn(&str) -> Option<&'static [u8]>, name: &str) -> Source {
    match (config.component.get(name), embedded(name)) {
        (Some(file), _) => Source::File(file.clone()),
        (None, Some(bytes)) => Source::Compiled(bytes),
        // Reported as unreadable, by name: the binary was built without this function.
        (None, None) => Source::File(format!("{name}.wasm").into()),
    }
}

/// The embedded store and what it keeps on disk.
struct Disk {
    memory: Arc<Memory>,
    archive: Arc<SqliteArchive>,
    /// Held for as long as the directory is ours.
    _lock: Option<File>,
}

/// Takes the data directory for this process alone: two on one directory would each undo what the other keeps.
fn lock_in(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let file =
        File::create(&path).with_context(|| format!("cannot write to the data directory: {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("another rollcall is using the data directory {}", directory.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

impl Disk {
    async fn open(config: &Config) -> Result<Self> {
        let mut lock = None;
        let archive = match &config.data {
            None => SqliteArchive::in_memory()?,
            Some(directory) => {
                std::fs::create_dir_all(directory)
                    .with_context(|| format!("cannot make the data directory {}", directory.display()))?;
                lock = Some(lock_in(directory)?);
                SqliteArchive::open(directory.join("rollcall.sqlite"))?
            }
        };
        let archive = Arc::new(archive);
        let clock = Clock::system();
        let saved = archive.load_saved(clock.now()).await.context("cannot read what the last run saved")?;
        if !saved.sessions.is_empty() {
            tracing::info!(sessions = saved.sessions.len(), "goes on where the last run ended");
        }
        let options = Options { shards: config.shards, clock, listener: None, keeper: Some(archive.clone()) };
        let memory = Arc::new(Memory::restored(options, saved, config.rules().alive_for()));
        Ok(Self { memory, archive, _lock: lock })
    }

    /// Saves every session, so that a restart is no event for anybody.
    async fn save(&self) -> Result<()> {
        let sessions = self.memory.export();
        let count = sessions.len();
        self.archive.save(self.memory.now(), sessions).await.context("cannot save the sessions")?;
        tracing::info!(sessions = count, "saved");
        Ok(())
    }
}

/// A running worker.
struct Running {
    arrivals: mpsc::UnboundedSender<Arrival>,
    thread: JoinHandle<std::io::Result<()>>,
}

fn workers(config: &Config, worker: &Worker, ended: &watch::Receiver<bool>) -> Result<Vec<Running>> {
    let count = match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(64),
        count => count,
    };
    let count = u32::try_from(count)?;
    let mut running = Vec::new();
    for index in 0..count {
        // A fair share each; together they cover every shard once.
        let shards = Shards { first: config.shards * index / count, end: config.shards * (index + 1) / count };
        let worker = Worker { shards, ..worker.clone() };
        let (arrivals, queue) = mpsc::unbounded_channel();
        let ended = ended.clone();
        let thread = std::thread::Builder::new().name(format!("rollcall-{index}"));
        running.push(Running { arrivals, thread: thread.spawn(move || worker.run(queue, ended))? });
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
            let _ = worker.arrivals.send((stream, permit));
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
    let kept = match &config.data {
        Some(directory) => format!("Last seen and choices are kept in {}.", directory.display()),
        None => "Nothing is kept on disk.".to_owned(),
    };
    // Nobody may be listening to standard output, and that is all right.
    let _ = writeln!(out, "rollcall {} listening on http://{address}\n{who}\n{kept}", env!("CARGO_PKG_VERSION"));
    let _ = out.flush();
}
