//! What a good team would write by hand for one purpose: a server that answers `POST /v1/presence` with one `MGET` of values that
//! are JSON already. No devices, no deadlines, no policy. Natively, on hyper and the redis crate.

use std::net::TcpStream;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use redis::aio::MultiplexedConnection;
use rollcall_servers::redis::Redis as Server;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::empty_server::{EmptyServer, answer_with, serve_with};
use crate::users;

/// The flag that runs this program as the MGET server.
pub(crate) const FLAG: &str = "--mget-server";

/// Starts it in a process of its own, with a value for each of these users.
pub(crate) fn start(server: &Server, user_count: u64) -> Result<EmptyServer> {
    for first in (0..user_count).step_by(500) {
        let pairs = (first..(first + 500).min(user_count)).flat_map(|index| {
            let name = users::name(index);
            let value = format!(
                r#"{{"user":"{name}","state":"online","since":1794795830442,"last_seen":1794795830442,"version":1794795830442000,"note":null}}"#
            );
            [format!("presence:{name}"), value]
        });
        let pairs: Vec<String> = pairs.collect();
        let command: Vec<&str> = ["MSET"].into_iter().chain(pairs.iter().map(String::as_str)).collect();
        server.ask(&command)?;
    }
    EmptyServer::start_as(&[FLAG, &server.url()])
}

/// Serves until killed. The address of its Redis is the last argument.
pub(crate) fn serve() -> Result<()> {
    serve_with(work)
}

fn work(arrivals: mpsc::UnboundedReceiver<TcpStream>) -> Result<()> {
    let url = std::env::args().next_back().context("the address of Redis")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        answer_with(arrivals, async move |request| answer(connection.clone(), request).await).await
    })
}

async fn answer(mut connection: MultiplexedConnection, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let body = request.into_body().collect().await?.to_bytes();
    let asked: Value = serde_json::from_slice(&body)?;
    let mut command = redis::cmd("MGET");
    for user in asked.get("users").and_then(Value::as_array).context("users")? {
        command.arg(format!("presence:{}", user.as_str().context("a user")?));
    }
    let found: Vec<Option<String>> = command.query_async(&mut connection).await?;
    let found: Vec<String> = found.into_iter().flatten().collect();
    Ok(Response::new(Full::from(format!(r#"{{"presences":[{}]}}"#, found.join(",")))))
}
