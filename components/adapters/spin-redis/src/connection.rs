//! Commands through Spin's connection to Redis.
//!
//! Spin has no pipelines, but it sends a command as soon as its call starts, in that order, on one connection. So all calls
//! start before the first is awaited: one round trip, in order. With WASI 0.2 a call returns with its reply, so that each
//! command takes a round trip, and the timeouts are Spin's.

use std::time::Duration;

use futures::future::join_all;
use rollcall_contract::guest::adapter::SharedConnection;
use rollcall_redis::resp::server_line;
use rollcall_redis::{Command, CommandReply, Commands, Connection, ConnectionError, OwnedPiece};
use rollcall_wasi::{monotonic_ns, random, sleep, within};

use crate::spin::{self, Error, RedisParameter, RedisResult, SpinConnection};

/// The connect timeout, as in the native host.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);

/// The reply timeout, as in the native host.
const REPLY_TIMEOUT: Duration = Duration::from_millis(1500);

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
        let opened = within(CONNECT_TIMEOUT, spin::open(&self.url)).await;
        let opened = opened.unwrap_or_else(|| Err(Error::Other("no reply within the timeout".to_owned())));
        opened.map_err(connection_error)
    }
}

impl Connection for SpinRedis {
    async fn send(&self, commands: &Commands) -> Result<Vec<CommandReply>, ConnectionError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.connection.get(self.open()).await?;
        let replies =
            within(REPLY_TIMEOUT, join_all(commands.iter().map(|command| execute(&connection, command)))).await;
        let replies = replies.unwrap_or_else(|| vec![Err(ConnectionError("no reply within the timeout".to_owned()))]);
        replies.into_iter().collect::<Result<_, _>>().inspect_err(|_| self.connection.discard(&connection))
    }

    fn ticks_us(&self) -> u64 {
        monotonic_ns() / 1000
    }

    fn random(&self) -> u64 {
        random()
    }

    async fn sleep(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }
}

/// Runs one command. An error from the server is a reply; any other error means that the connection failed.
async fn execute(connection: &SpinConnection, command: Command<'_>) -> Result<CommandReply, ConnectionError> {
    let mut args = command.args();
    let name = String::from_utf8_lossy(args.next().unwrap_or_default());
    let args = args.map(|arg| RedisParameter::Binary(arg.to_vec())).collect();
    match spin::execute(connection, name.into_owned(), args).await {
        Ok(results) => Ok(CommandReply::Pieces(results.into_iter().map(piece).collect())),
        Err(Error::Other(text)) => match server_line(&text) {
            Some(line) => Ok(CommandReply::Error(line)),
            None => Err(ConnectionError(text)),
        },
        Err(error) => Err(connection_error(error)),
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

fn connection_error(error: Error) -> ConnectionError {
    ConnectionError(match error {
        Error::InvalidAddress => {
            "`redis_url` is not an address, or not in the component's `allowed_outbound_hosts`".to_owned()
        }
        Error::TooManyConnections => "Spin allows no more connections".to_owned(),
        Error::TypeError => "Spin cannot represent the reply".to_owned(),
        Error::Other(text) => text,
    })
}
