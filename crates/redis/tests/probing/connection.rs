//! A connection for tests: our own protocol client over a TCP socket, as in the adapter for WASI sockets, so that the
//! stores' suites run over it.
//!
//! Every test gets its own keys: a key with the default prefix is sent with another. And a test's clock can replace
//! Redis's: then the time in the reply of the time probe is replaced.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rollcall_core::{Rules, Time};
use rollcall_redis::resp::{Address, Client, Connector, Sink, Source};
use rollcall_redis::{Command, Commands};
use rollcall_redis::{CommandReply, Connection, ConnectionError, Options, OwnedPiece, ProbingTransport, RedisStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Returns a test's time.
pub(crate) type TestTime = Arc<dyn Fn() -> Time + Send + Sync>;

type Answer = Result<Vec<CommandReply>, ConnectionError>;

/// A connection to a real server.
pub(crate) struct TestConnection {
    requests: mpsc::UnboundedSender<(Commands, oneshot::Sender<Answer>)>,
    prefix: String,
    test_time: Option<TestTime>,
    started: Instant,
    /// The number of sends.
    pub(crate) sends: AtomicUsize,
    /// The number of commands sent.
    pub(crate) commands: AtomicUsize,
    pub(crate) problems: Mutex<Vec<String>>,
}

/// The capabilities with the default prefix, on Redis's own clock.
pub(crate) fn platform(url: &str) -> RedisStore<ProbingTransport<TestConnection>> {
    with_rules(url, &Rules::STANDARD)
}

pub(crate) fn with_rules(url: &str, rules: &Rules) -> RedisStore<ProbingTransport<TestConnection>> {
    RedisStore::over(TestConnection::new(url, "rc", None), Options::of(rules))
}

impl TestConnection {
    pub(crate) fn new(url: &str, prefix: &str, test_time: Option<TestTime>) -> Self {
        Self::patient(url, prefix, test_time, 1)
    }

    /// A client that waits this many times as long for the server as usual.
    pub(crate) fn patient(url: &str, prefix: &str, test_time: Option<TestTime>, patience: u64) -> Self {
        Self {
            requests: start_client(Address::parse(Some(url)).unwrap(), patience),
            prefix: prefix.to_owned(),
            test_time,
            started: Instant::now(),
            sends: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            problems: Mutex::default(),
        }
    }

    /// The commands with the test's prefix in their keys.
    fn prefixed(&self, commands: &Commands) -> Commands {
        let mut prefixed = Commands::with_capacity(commands.len());
        for command in commands.iter() {
            let mut args = command.args();
            prefixed.begin(std::str::from_utf8(args.next().unwrap()).unwrap());
            for arg in args {
                match arg.strip_prefix(b"rc:{") {
                    Some(rest) => prefixed.arg(&[self.prefix.as_bytes(), b":{", rest].concat()),
                    None => prefixed.arg(arg),
                };
            }
        }
        prefixed
    }

    /// The reply; in that of the time probe with the test's time instead of Redis's.
    fn reply(&self, command: Command<'_>, mut reply: CommandReply) -> CommandReply {
        let is_probe = command.args().nth(3).is_some_and(|key| key.ends_with(b"}:probed"));
        if let (Some(test_time), true, CommandReply::Pieces(pieces)) = (&self.test_time, is_probe, &mut reply)
            && let [seconds, micros, ..] = pieces.as_mut_slice()
        {
            let now = test_time().0;
            *seconds = OwnedPiece::Bytes((now / 1000).to_string().into_bytes());
            *micros = OwnedPiece::Bytes((now % 1000 * 1000).to_string().into_bytes());
        }
        reply
    }
}

impl Connection for TestConnection {
    async fn send(&self, commands: &Commands) -> Answer {
        self.sends.fetch_add(1, Ordering::SeqCst);
        self.commands.fetch_add(commands.len(), Ordering::SeqCst);
        let (answer, answered) = oneshot::channel();
        self.requests.send((self.prefixed(commands), answer)).unwrap();
        let replies = answered.await.unwrap()?;
        Ok(commands.iter().zip(replies).map(|(command, reply)| self.reply(command, reply)).collect())
    }

    fn ticks_us(&self) -> u64 {
        match &self.test_time {
            Some(test_time) => test_time().0 * 1000,
            None => self.started.elapsed().as_micros() as u64,
        }
    }

    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    async fn sleep(&self, ms: u64) {
        if self.test_time.is_none() {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    fn warn(&self, problem: &str) {
        self.problems.lock().push(problem.to_owned());
    }
}

/// Runs a client on a thread of its own: it belongs to one thread, as in an instance, and the suites use many. It ends
/// with its connection.
fn start_client(address: Address, patience: u64) -> mpsc::UnboundedSender<(Commands, oneshot::Sender<Answer>)> {
    let (requests, mut received) = mpsc::unbounded_channel::<(Commands, oneshot::Sender<Answer>)>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let connector = TcpConnector { address: address.clone(), started: Instant::now(), patience };
            let client = Rc::new(Client::new(connector, &address));
            while let Some((commands, answer)) = received.recv().await {
                let client = Rc::clone(&client);
                tokio::task::spawn_local(async move {
                    // The test may have stopped waiting.
                    let _ = answer.send(client.send(&commands).await);
                });
            }
        });
    });
    requests
}

/// Opens sockets of tokio.
struct TcpConnector {
    address: Address,
    started: Instant,
    patience: u64,
}

impl Connector for TcpConnector {
    type Source = Incoming;
    type Sink = Outgoing;
    type Signal = oneshot::Sender<()>;

    async fn connect(&self) -> Result<(Incoming, Outgoing), String> {
        let stream = TcpStream::connect((self.address.host(), self.address.port())).await;
        let (source, sink) = stream.map_err(|error| error.to_string())?.into_split();
        Ok((Incoming(source), Outgoing(sink)))
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms * self.patience)).await;
    }

    fn signal(&self) -> (oneshot::Sender<()>, impl Future<Output = ()>) {
        let (signal, signalled) = oneshot::channel();
        (signal, async { drop(signalled.await) })
    }

    fn log(&self, _: &str) {}
}

struct Incoming(OwnedReadHalf);

impl Source for Incoming {
    async fn read(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(64 * 1024);
        match self.0.read_buf(&mut bytes).await {
            Ok(1..) => Some(bytes),
            Ok(0) | Err(_) => None,
        }
    }
}

struct Outgoing(OwnedWriteHalf);

impl Sink for Outgoing {
    async fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.0.write_all(&bytes).await.is_ok()
    }
}
