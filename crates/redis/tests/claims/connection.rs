//! A test connection over the client library of the native store, so that the capabilities run the stores' suites.
//!
//! Every test gets its own keys: a key with the default prefix is sent with another. And a test's clock can replace
//! Redis's: then the time in the reply of the time probe is replaced.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, Pipeline, Value};
use rollcall_core::{Rules, Time};
use rollcall_redis::{Command, Commands};
use rollcall_redis::{Connection, ConnectionError, Options, OwnedPiece, Probing, RedisStore, ReplyLine};

/// How long a reply may take before the server counts as away, unless a test sets it: as in the host.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Returns a test's time.
pub(crate) type TestTime = Arc<dyn Fn() -> Time + Send + Sync>;

/// A connection to a real server.
pub(crate) struct TestConnection {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
    prefix: String,
    test_time: Option<TestTime>,
    started: Instant,
    /// How long a reply may take before the server counts as away.
    pub(crate) patience: Duration,
    /// The number of sends.
    pub(crate) sends: AtomicUsize,
    /// The number of commands sent.
    pub(crate) commands: AtomicUsize,
    pub(crate) problems: Mutex<Vec<String>>,
}

/// The capabilities with the default prefix, on Redis's own clock.
pub(crate) fn platform(url: &str) -> RedisStore<Probing<TestConnection>> {
    with_rules(url, &Rules::STANDARD)
}

pub(crate) fn with_rules(url: &str, rules: &Rules) -> RedisStore<Probing<TestConnection>> {
    RedisStore::over(TestConnection::new(url, "rc", None), Options::of(rules))
}

impl TestConnection {
    pub(crate) fn new(url: &str, prefix: &str, test_time: Option<TestTime>) -> Self {
        Self {
            client: Client::open(url).unwrap(),
            connection: Mutex::default(),
            prefix: prefix.to_owned(),
            test_time,
            started: Instant::now(),
            patience: PATIENCE,
            sends: AtomicUsize::new(0),
            commands: AtomicUsize::new(0),
            problems: Mutex::default(),
        }
    }

    async fn connection(&self) -> redis::RedisResult<MultiplexedConnection> {
        let known = self.connection.lock().clone();
        if let Some(connection) = known {
            return Ok(connection);
        }
        let connection = self.client.get_multiplexed_async_connection().await?;
        *self.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    fn packed(&self, command: Command<'_>) -> Cmd {
        let mut packed = Cmd::new();
        for arg in command.args() {
            match arg.strip_prefix(b"rc:{") {
                Some(rest) => packed.arg([self.prefix.as_bytes(), b":{", rest].concat()),
                None => packed.arg(arg),
            };
        }
        packed
    }

    /// The reply; in that of the time probe with the test's time instead of Redis's.
    fn reply(&self, command: Command<'_>, value: Value) -> ReplyLine {
        if let Value::ServerError(error) = &value {
            return ReplyLine::Error(format!("{} {}", error.code(), error.details().unwrap_or_default()));
        }
        let mut pieces = Vec::new();
        flatten(value, &mut pieces);
        let is_probe = command.args().nth(3).is_some_and(|key| key.ends_with(b"}:probed"));
        if let (Some(test_time), true, [seconds, micros, ..]) = (&self.test_time, is_probe, pieces.as_mut_slice()) {
            let now = test_time().0;
            *seconds = OwnedPiece::Bytes((now / 1000).to_string().into_bytes());
            *micros = OwnedPiece::Bytes((now % 1000 * 1000).to_string().into_bytes());
        }
        ReplyLine::Pieces(pieces)
    }
}

impl Connection for TestConnection {
    async fn send(&self, commands: &Commands) -> Result<Vec<ReplyLine>, ConnectionError> {
        self.sends.fetch_add(1, Ordering::SeqCst);
        self.commands.fetch_add(commands.len(), Ordering::SeqCst);
        let mut pipeline = Pipeline::with_capacity(commands.len());
        commands.iter().for_each(|command| {
            pipeline.add_command(self.packed(command));
        });
        let answer = async {
            let mut connection = self.connection().await?;
            connection.send_packed_commands(&pipeline, 0, commands.len()).await
        };
        let answer = tokio::time::timeout(self.patience, answer).await;
        match answer {
            Ok(Ok(values)) => Ok(commands.iter().zip(values).map(|(one, value)| self.reply(one, value)).collect()),
            failed => {
                *self.connection.lock() = None;
                Err(ConnectionError(
                    failed.map_or_else(|_| "no reply in time".to_owned(), |error| format!("{:?}", error.err())),
                ))
            }
        }
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

fn flatten(value: Value, to: &mut Vec<OwnedPiece>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| flatten(value, to)),
        Value::Int(number) => to.push(OwnedPiece::Int(number)),
        Value::BulkString(bytes) => to.push(OwnedPiece::Bytes(bytes)),
        Value::SimpleString(text) => to.push(OwnedPiece::Bytes(text.into_bytes())),
        Value::Okay => to.push(OwnedPiece::Bytes(b"OK".to_vec())),
        _ => to.push(OwnedPiece::Nil),
    }
}
