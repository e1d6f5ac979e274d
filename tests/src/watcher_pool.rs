//! Tens of thousands of watchers, one thread per pool. Each is a TCP stream with a minimal HTTP and WebSocket client,
//! so that a benchmark measures the host. Records each event with its arrival time, kind and version.

mod reader;

use std::cell::RefCell;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::LocalSet;

use crate::eventually;
use crate::watcher::Protocol;

pub use reader::{Piece, Reader, frame, masked, opening};

/// Concurrent handshakes. More would only queue in the host.
const HANDSHAKES: usize = 128;

/// Pause before reconnecting to a host that refuses connections.
const RETRY: Duration = Duration::from_millis(100);

/// Timeout for a host to come back.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The connections of a pool.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The protocol.
    pub protocol: Protocol,
    /// The host.
    pub address: SocketAddr,
    /// The host to reconnect to after a drain; `None` if there is none.
    pub reconnect_to: Option<SocketAddr>,
    /// The path and query of each connection.
    pub paths: Vec<String>,
    /// The first message on each socket; empty for streams.
    pub messages: Vec<String>,
}

impl Plan {
    /// Watchers of one user, with `watch_only`: `watcher-0`, `watcher-1`, …
    pub fn watching(protocol: Protocol, address: &str, user: &str, count: usize) -> Self {
        let path = |index: usize| match protocol {
            Protocol::Events => format!("/v1/subscribe?watch_only=true&users={user}&as=watcher-{index}"),
            Protocol::Socket => format!("/v1/socket?watch_only=true&as=watcher-{index}"),
        };
        let message = format!(r#"{{"op":"watch","users":["{user}"]}}"#);
        let messages = match protocol {
            Protocol::Events => Vec::new(),
            Protocol::Socket => vec![message; count],
        };
        let address = address.parse().expect("an address");
        Self { protocol, address, reconnect_to: None, paths: (0..count).map(path).collect(), messages }
    }
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The snapshot.
    Snapshot,
    /// A user's presence.
    Presence,
    /// A typing signal.
    Typing,
    /// Anything else.
    Other,
}

/// One event at one watcher.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    /// The watcher, by its index in the plan.
    pub connection: usize,
    /// The kind.
    pub kind: Kind,
    /// The last version in it; 0 if none.
    pub version: u64,
    /// Whether it reports a user as offline.
    pub offline: bool,
    /// When it arrived.
    pub at: Instant,
}

/// A connection that ended.
#[derive(Debug, Clone, Copy)]
pub struct ClosedConnection {
    /// The watcher, by its index in the plan.
    pub connection: usize,
    /// The close code of a socket.
    pub code: Option<u16>,
    /// The reconnect delay that the host sent.
    pub after_ms: Option<u64>,
}

/// What a pool received.
#[derive(Debug, Default)]
pub struct Received {
    /// Every event, in order.
    pub deliveries: Vec<Delivery>,
    /// Every closed connection, in order.
    pub closed: Vec<ClosedConnection>,
    /// Connection errors.
    pub failures: Vec<String>,
}

impl Received {
    /// How many deliveries match.
    pub fn count(&self, wanted: impl Fn(&Delivery) -> bool) -> usize {
        self.deliveries.iter().filter(|delivery| wanted(delivery)).count()
    }

    /// The newest version each watcher received, by index.
    pub fn newest(&self, watchers: usize) -> Vec<u64> {
        let mut newest = vec![0; watchers];
        for delivery in self.deliveries.iter().filter(|delivery| delivery.version > 0) {
            newest[delivery.connection] = delivery.version;
        }
        newest
    }
}

/// Many watchers. Dropping it breaks their connections.
pub struct WatcherPool {
    received: Arc<Mutex<Received>>,
    size: usize,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatcherPool {
    /// Connects all watchers and waits for their snapshots.
    pub fn connect(plan: Plan, within: Duration) -> Self {
        let pool = Self::start(plan);
        pool.until(&format!("{} watchers are connected", pool.size), within, |received| {
            received.count(|delivery| delivery.kind == Kind::Snapshot) >= pool.size
        });
        pool
    }

    /// Starts all connections without waiting.
    pub fn start(plan: Plan) -> Self {
        let size = plan.paths.len();
        allow_descriptors(size + 300);
        let received = Arc::<Mutex<Received>>::default();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn({
            let received = Arc::clone(&received);
            move || run_pool(plan, received, ended)
        });
        Self { received, size, end: Some(end), thread: Some(thread) }
    }

    /// The number of watchers.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What it received so far.
    pub fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().expect("a lock")
    }

    /// Waits until what it received matches.
    pub fn until(&self, what: &str, within: Duration, holds: impl Fn(&Received) -> bool) {
        eventually(what, within, || {
            let received = self.received();
            assert!(received.failures.is_empty(), "{what}: {:?}", received.failures.first());
            holds(&received)
        });
    }

    /// Waits until all watchers received this version; returns when the last did.
    pub fn until_all_received(&self, version: u64, within: Duration) -> Instant {
        let is_wanted = |delivery: &Delivery| delivery.kind == Kind::Presence && delivery.version == version;
        self.until(&format!("{} watchers received it", self.size), within, |received| {
            received.count(is_wanted) >= self.size
        });
        let received = self.received();
        let last = received.deliveries.iter().filter(|delivery| is_wanted(delivery)).map(|delivery| delivery.at).max();
        last.expect("an event was received")
    }
}

impl Drop for WatcherPool {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The soft and the hard limit of open files.
pub fn descriptors() -> (usize, usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit of open files");
    let mut numbers = line.split_whitespace().skip(3).map(|word| word.parse().unwrap_or(usize::MAX));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Raises the soft limit of open files to at least `count`, for this process and its children.
pub fn allow_descriptors(count: usize) {
    let (soft, hard) = descriptors();
    if soft >= count {
        return;
    }
    assert!(hard >= count, "{count} connections need `ulimit -n {count}`: here the hard limit is {hard}");
    let (pid, limit) = (std::process::id().to_string(), format!("--nofile={hard}:{hard}"));
    let raised = std::process::Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(
        raised.is_ok_and(|status| status.success()),
        "{count} connections need `ulimit -n {count}`: it is {soft}, and `prlimit` could not raise it"
    );
}

/// The thread of a pool.
fn run_pool(plan: Plan, received: Arc<Mutex<Received>>, ended: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let plan = Rc::new(plan);
        let state = Rc::new(PoolState {
            received,
            handshakes: Semaphore::new(HANDSHAKES),
            scratch: RefCell::new(vec![0; 65536]),
        });
        for connection in 0..plan.paths.len() {
            let (plan, state) = (Rc::clone(&plan), Rc::clone(&state));
            tokio::task::spawn_local(async move {
                if let Err(error) = state.keep_watching(&plan, connection).await {
                    state.received().failures.push(format!("watcher {connection}: {error}"));
                }
            });
        }
        let _ = ended.await;
    });
}

/// What the watchers of a pool share.
struct PoolState {
    received: Arc<Mutex<Received>>,
    handshakes: Semaphore,
    /// The read buffer. One for all watchers, because none holds it while it waits.
    scratch: RefCell<Vec<u8>>,
}

impl PoolState {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().expect("a lock")
    }

    /// Watches until the connection ends, and reconnects if the plan says so.
    async fn keep_watching(&self, plan: &Plan, connection: usize) -> Result<()> {
        let mut closed = self.watch_once(plan, plan.address, connection).await?;
        while let (Some(reconnect_to), Some(after_ms)) = (plan.reconnect_to, closed.after_ms) {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            closed = self.watch_once(plan, reconnect_to, connection).await?;
        }
        Ok(())
    }

    async fn watch_once(&self, plan: &Plan, address: SocketAddr, connection: usize) -> Result<ClosedConnection> {
        let turn = self.handshakes.acquire().await.map_err(Error::other)?;
        let stream = connect(address).await?;
        stream.set_nodelay(true)?;
        write(&stream, opening(plan.protocol, &address.to_string(), &plan.paths[connection]).as_bytes()).await?;
        let mut reader = Reader::new(plan.protocol);
        let mut closed = ClosedConnection { connection, code: None, after_ms: None };
        let mut turn = Some(turn);
        loop {
            stream.readable().await?;
            let mut replies = Vec::new();
            let mut refusal = None;
            let count = {
                let mut scratch = self.scratch.borrow_mut();
                match stream.try_read(&mut scratch) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    // A host that is killed resets its connections.
                    Err(_) => 0,
                    Ok(count) => {
                        let bytes = &scratch[..count];
                        reader.take(bytes, |piece| match piece {
                            Piece::Head(200 | 101) => {
                                replies.extend(plan.messages.get(connection).map(|m| masked(1, m.as_bytes())))
                            }
                            Piece::Head(status) => refusal = Some(status),
                            Piece::Event(text) => {
                                let after = reader::number(text, "\"after_ms\":");
                                closed.after_ms = after.or(closed.after_ms);
                                self.note(connection, text);
                            }
                            Piece::Ping(payload) => replies.push(masked(10, payload)),
                            Piece::Close(code) => {
                                closed.code = Some(code);
                                replies.push(masked(8, &code.to_be_bytes()));
                            }
                        });
                        count
                    }
                }
            };
            if let Some(status) = refusal {
                return Err(Error::other(format!("answered with {status}")));
            }
            if reader.has_begun() {
                drop(turn.take());
            }
            for reply in replies {
                // The server may be gone before the close frame is sent.
                let _ = write(&stream, &reply).await;
            }
            if count == 0 {
                self.received().closed.push(closed);
                return Ok(closed);
            }
        }
    }

    fn note(&self, connection: usize, text: &str) {
        let kind = match reader::word(text) {
            "snapshot" => Kind::Snapshot,
            "presence" => Kind::Presence,
            "typing" => Kind::Typing,
            _ => Kind::Other,
        };
        let version = reader::number(text, "\"version\":").unwrap_or(0);
        let offline = text.contains(r#""state":"offline""#);
        let delivery = Delivery { connection, kind, version, offline, at: Instant::now() };
        self.received().deliveries.push(delivery);
    }
}

/// Connects; retries while the host refuses connections.
async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let end = Instant::now() + RECONNECT_TIMEOUT;
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() >= end => return Err(error),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
