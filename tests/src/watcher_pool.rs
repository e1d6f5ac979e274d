//! Watchers by the ten thousand, in one thread for each pool: plain TCP streams with just enough HTTP and WebSocket to be
//! told something, so that what is measured is the host and not its clients.
//!
//! Of every event it is noted when it came, what it was, and which version it told of.

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
use crate::watcher::Transport;

pub use reader::{Piece, Reader, frame, masked, opening};

/// Handshakes at once: more would only wait in the host's queue.
const HANDSHAKES: usize = 128;

/// Before a host that is not there is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long a host may take to come back.
const AWAY: Duration = Duration::from_secs(20);

/// What each of a pool does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How they watch.
    pub transport: Transport,
    /// Where.
    pub address: SocketAddr,
    /// Where they come back to when they are sent away; nobody does if it is none.
    pub rejoin: Option<SocketAddr>,
    /// The path with its query, for each.
    pub paths: Vec<String>,
    /// What each says once its socket is open; of a stream, nothing.
    pub messages: Vec<String>,
}

impl Plan {
    /// Watchers of one person, who are not here themselves: `watcher-0`, `watcher-1`, …
    pub fn watching(transport: Transport, address: &str, user: &str, count: usize) -> Self {
        let path = |index: usize| match transport {
            Transport::Events => format!("/v1/subscribe?watch_only=true&users={user}&as=watcher-{index}"),
            Transport::Socket => format!("/v1/socket?watch_only=true&as=watcher-{index}"),
        };
        let message = format!(r#"{{"op":"watch","users":["{user}"]}}"#);
        let messages = match transport {
            Transport::Events => Vec::new(),
            Transport::Socket => vec![message; count],
        };
        let address = address.parse().expect("an address");
        Self { transport, address, rejoin: None, paths: (0..count).map(path).collect(), messages }
    }
}

/// What was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The snapshot.
    Snapshot,
    /// A user's presence.
    Presence,
    /// A sign of typing.
    Typing,
    /// Anything else.
    Other,
}

/// One event at one watcher.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    /// The watcher, by its place in the plan.
    pub connection: usize,
    /// What.
    pub kind: Kind,
    /// The version that it tells of; of several the last, of none zero.
    pub version: u64,
    /// Whether it says of anybody that they are offline.
    pub offline: bool,
    /// When it came.
    pub at: Instant,
}

/// A connection that ended.
#[derive(Debug, Clone, Copy)]
pub struct ClosedConnection {
    /// The watcher, by its place in the plan.
    pub connection: usize,
    /// The close code of a socket.
    pub code: Option<u16>,
    /// After how long it was told to come back.
    pub after_ms: Option<u64>,
}

/// What a pool has come to.
#[derive(Debug, Default)]
pub struct Received {
    /// Every event, in order.
    pub deliveries: Vec<Delivery>,
    /// Every end, in order.
    pub closed: Vec<ClosedConnection>,
    /// Why anybody could not connect.
    pub failures: Vec<String>,
}

impl Received {
    /// How many deliveries are as wanted.
    pub fn count(&self, wanted: impl Fn(&Delivery) -> bool) -> usize {
        self.deliveries.iter().filter(|delivery| wanted(delivery)).count()
    }

    /// The newest version that each watcher was told, by its place.
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
    tally: Arc<Mutex<Received>>,
    size: usize,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WatcherPool {
    /// Connects everybody and waits until each has its snapshot.
    pub fn connect(plan: Plan, within: Duration) -> Self {
        let pool = Self::start(plan);
        pool.until(&format!("{} watchers are connected", pool.size), within, |tally| {
            tally.count(|delivery| delivery.kind == Kind::Snapshot) >= pool.size
        });
        pool
    }

    /// Lets everybody connect, and waits for nobody.
    pub fn start(plan: Plan) -> Self {
        let size = plan.paths.len();
        allow_descriptors(size + 300);
        let tally = Arc::<Mutex<Received>>::default();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn({
            let tally = Arc::clone(&tally);
            move || fly(plan, tally, ended)
        });
        Self { tally, size, end: Some(end), thread: Some(thread) }
    }

    /// How many they are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What it has come to so far.
    pub fn tally(&self) -> MutexGuard<'_, Received> {
        self.tally.lock().expect("a lock")
    }

    /// Waits until it has come to something.
    pub fn until(&self, what: &str, within: Duration, holds: impl Fn(&Received) -> bool) {
        eventually(what, within, || {
            let tally = self.tally();
            assert!(tally.failures.is_empty(), "{what}: {:?}", tally.failures.first());
            holds(&tally)
        });
    }

    /// Waits until everybody was told this version, and answers when the last was.
    pub fn until_all_received(&self, version: u64, within: Duration) -> Instant {
        let told = |delivery: &Delivery| delivery.kind == Kind::Presence && delivery.version == version;
        self.until(&format!("{} watchers are told", self.size), within, |tally| tally.count(told) >= self.size);
        let tally = self.tally();
        let last = tally.deliveries.iter().filter(|delivery| told(delivery)).map(|delivery| delivery.at).max();
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

/// How many files and sockets this process may open, and how many it could if it asked.
pub fn descriptors() -> (usize, usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the limits of this process");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit of open files");
    let mut numbers = line.split_whitespace().skip(3).map(|word| word.parse().unwrap_or(usize::MAX));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Makes sure that this process may open so many files and sockets, and so those that it starts.
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
fn fly(plan: Plan, tally: Arc<Mutex<Received>>, ended: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let plan = Rc::new(plan);
        let flight =
            Rc::new(Flight { tally, handshakes: Semaphore::new(HANDSHAKES), scratch: RefCell::new(vec![0; 65536]) });
        for connection in 0..plan.paths.len() {
            let (plan, flight) = (Rc::clone(&plan), Rc::clone(&flight));
            tokio::task::spawn_local(async move {
                if let Err(error) = flight.stay(&plan, connection).await {
                    flight.tally().failures.push(format!("watcher {connection}: {error}"));
                }
            });
        }
        let _ = ended.await;
    });
}

/// What the watchers of a pool share.
struct Flight {
    tally: Arc<Mutex<Received>>,
    handshakes: Semaphore,
    /// Where bytes are read to: one buffer for all, since none holds it while it waits.
    scratch: RefCell<Vec<u8>>,
}

impl Flight {
    fn tally(&self) -> MutexGuard<'_, Received> {
        self.tally.lock().expect("a lock")
    }

    /// Watches until the connection ends, and comes back if the plan says so.
    async fn stay(&self, plan: &Plan, connection: usize) -> Result<()> {
        let mut closed = self.visit(plan, plan.address, connection).await?;
        while let (Some(rejoin), Some(after_ms)) = (plan.rejoin, closed.after_ms) {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            closed = self.visit(plan, rejoin, connection).await?;
        }
        Ok(())
    }

    async fn visit(&self, plan: &Plan, address: SocketAddr, connection: usize) -> Result<ClosedConnection> {
        let turn = self.handshakes.acquire().await.map_err(Error::other)?;
        let stream = connect(address).await?;
        stream.set_nodelay(true)?;
        write(&stream, opening(plan.transport, &address.to_string(), &plan.paths[connection]).as_bytes()).await?;
        let mut reader = Reader::new(plan.transport);
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
                self.tally().closed.push(closed);
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
        self.tally().deliveries.push(delivery);
    }
}

/// Connects, however long the host takes to be there, within bounds.
async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let end = Instant::now() + AWAY;
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
