//! Spin's Redis, asynchronous.

pub(crate) use spin_sdk::redis::{Connection as SpinConnection, Error, RedisParameter, RedisResult};

pub(crate) async fn open(url: &str) -> Result<SpinConnection, Error> {
    SpinConnection::open(url).await
}

pub(crate) async fn execute(
    connection: &SpinConnection,
    command: String,
    arguments: Vec<RedisParameter>,
) -> Result<Vec<RedisResult>, Error> {
    connection.execute(command, arguments).await
}
