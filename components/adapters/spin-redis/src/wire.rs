//! Commands through Spin's connection to Redis.
//!
//! Spin has no pipelines, but it starts a command as soon as it is asked to and sends what is started in that order on one
//! connection. So all commands are started before the first is waited for: that is one round trip, in order.

use std::pin::pin;

use futures::future::{Either, join_all, select};
use rollcall_contract::guest::adapter::SharedConnection;
use rollcall_redis::resp::server_line;
use rollcall_redis::{Command, Commands, Connection, ConnectionError, OwnedPiece, ReplyLine};
use spin_sdk::redis::{Connection as SpinConnection, Error, RedisParameter, RedisResult};
use spin_sdk::wasip3::clocks::monotonic_clock;
use spin_sdk::wasip3::random::random::get_random_u64;

/// How long a connection may take: as long as with the native host.
const CONNECT_MS: u64 = 1000;

/// How long an answer may take: as long as with the native host.
const ANSWER_MS: u64 = 1500;

/// One Redis, by its URL.
pub(crate) struct SpinRedis {
    url: String,
    connection: SharedConnection<SpinConnection, ConnectionError>,
}

impl SpinRedis {
    pub(crate) fn new(url: String) -> Self {
        Self { url, connection: SharedConnection::new() }
    }

    async fn open(&self) -> Result<SpinConnection, ConnectionError> {
        let opened = within(CONNECT_MS, SpinConnection::open(&self.url)).await;
        let opened = opened.unwrap_or_else(|| Err(Error::Other("it does not answer in time".to_owned())));
        opened.map_err(away)
    }
}

impl Connection for SpinRedis {
    async fn send(&self, commands: &Commands) -> Result<Vec<ReplyLine>, ConnectionError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.connection.get(self.open()).await?;
        let replies = within(ANSWER_MS, join_all(commands.iter().map(|command| execute(&connection, command)))).await;
        let replies = replies.unwrap_or_else(|| vec![Err(ConnectionError("it does not answer in time".to_owned()))]);
        replies.into_iter().collect::<Result<_, _>>().inspect_err(|_| self.connection.discard(&connection))
    }

    fn ticks_us(&self) -> u64 {
        monotonic_clock::now() / 1000
    }

    fn random(&self) -> u64 {
        get_random_u64()
    }

    async fn sleep(&self, ms: u64) {
        sleep(ms).await;
    }
}

/// One command. What the server says is a reply; everything else is a connection that failed.
async fn execute(connection: &SpinConnection, command: Command<'_>) -> Result<ReplyLine, ConnectionError> {
    let mut args = command.args();
    let name = String::from_utf8_lossy(args.next().unwrap_or_default());
    let args = args.map(|arg| RedisParameter::Binary(arg.to_vec()));
    match connection.execute(name, args).await {
        Ok(results) => Ok(ReplyLine::Pieces(results.into_iter().map(piece).collect())),
        Err(Error::Other(text)) => match server_line(&text) {
            Some(line) => Ok(ReplyLine::Error(line)),
            None => Err(ConnectionError(text)),
        },
        Err(error) => Err(away(error)),
    }
}

fn piece(result: RedisResult) -> OwnedPiece {
    match result {
        RedisResult::Nil => OwnedPiece::Nil,
        RedisResult::Int64(number) => OwnedPiece::Int(number),
        RedisResult::Binary(bytes) => OwnedPiece::Bytes(bytes),
        RedisResult::Status(text) => OwnedPiece::Bytes(text.into_bytes()),
    }
}

fn away(error: Error) -> ConnectionError {
    ConnectionError(match error {
        Error::InvalidAddress => {
            "`redis_url` is no address, or is not among the `allowed_outbound_hosts` of the component".to_owned()
        }
        Error::TooManyConnections => "Spin allows no more connections".to_owned(),
        Error::TypeError => "it answered with something that Spin cannot hand on".to_owned(),
        Error::Other(text) => text,
    })
}

async fn sleep(ms: u64) {
    monotonic_clock::wait_for(ms.saturating_mul(1_000_000)).await;
}

/// What came of it within so many milliseconds; none: nothing yet.
async fn within<T>(ms: u64, what: impl Future<Output = T>) -> Option<T> {
    match select(pin!(what), pin!(sleep(ms))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}
