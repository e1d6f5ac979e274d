//! A lean load generator: one thread, requests encoded beforehand, one read and one write each, and just enough parsing to find
//! the end of a response.
//!
//! Closed loop: each connection has one request in flight. So at full load, latency is connections divided by rate; only on one
//! connection does it say more.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::sample::quantile;

/// Larger than any response here: a thousand outcomes of about a hundred bytes.
const BUFFER_BYTES: usize = 512 * 1024;

/// Requests of one kind, sent in turn.
pub(crate) type Requests = Arc<[Vec<u8>]>;

/// The result of one slice of load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) answers: u64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Loads a server for a while over several connections.
pub(crate) fn load(address: &str, requests: &Requests, connections: usize, span: Duration) -> Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Connection::open(address).await?);
        }
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for (index, connection) in open.into_iter().enumerate() {
            let skipped = index * requests.len() / connections;
            tasks.spawn(ask_in_turn(connection, Arc::clone(requests), skipped, began + span));
        }
        let mut latencies_us = Vec::new();
        while let Some(task) = tasks.join_next().await {
            latencies_us.extend(task??);
        }
        let seconds = began.elapsed().as_secs_f64();
        latencies_us.sort_unstable_by(f64::total_cmp);
        Ok(Seen {
            answers: latencies_us.len() as u64,
            per_second: latencies_us.len() as f64 / seconds,
            p50_us: quantile(&latencies_us, 0.5),
            p99_us: quantile(&latencies_us, 0.99),
        })
    })
}

async fn ask_in_turn(
    mut connection: Connection,
    requests: Requests,
    skipped: usize,
    until: Instant,
) -> Result<Vec<f64>> {
    let mut latencies_us = Vec::new();
    let mut sent = Instant::now();
    for request in requests.iter().cycle().skip(skipped) {
        connection.ask(request).await?;
        let answered = Instant::now();
        latencies_us.push((answered - sent).as_nanos() as f64 / 1000.0);
        sent = answered;
        if answered >= until {
            break;
        }
    }
    Ok(latencies_us)
}

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends a request and waits for the response, which must be 200. Returns the body.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        let mut left = request;
        while !left.is_empty() {
            let written = poll_fn(|context| Pin::new(&mut self.stream).poll_write(context, left)).await?;
            left = left.get(written..).unwrap_or_default();
        }
        let mut filled = 0;
        loop {
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            ensure!(!room.is_empty(), "the answer is longer than {BUFFER_BYTES} bytes");
            let mut room = ReadBuf::new(room);
            poll_fn(|context| Pin::new(&mut self.stream).poll_read(context, &mut room)).await?;
            let read = room.filled().len();
            ensure!(read > 0, "the server closed the connection");
            filled += read;
            if let Some((head, end)) = extent(self.buffer.get(..filled).unwrap_or_default())? {
                ensure!(end == filled, "the server sent more than one answer");
                return Ok(self.buffer.get(head..end).unwrap_or_default());
            }
        }
    }
}

/// Where the body begins and ends, once the response is complete. Anything but a 200 with a length is an error.
fn extent(bytes: &[u8]) -> Result<Option<(usize, usize)>> {
    const END: &[u8] = b"\r\n\r\n";
    const LENGTH: &[u8] = b"\r\ncontent-length: ";
    let Some(end) = bytes.windows(END.len()).position(|window| window == END) else { return Ok(None) };
    let (head, body) = bytes.split_at(end + END.len());
    if !head.starts_with(b"HTTP/1.1 200 ") {
        bail!("not a 200: {}", String::from_utf8_lossy(bytes));
    }
    let field = head.windows(LENGTH.len()).position(|window| window == LENGTH).context("no content-length")?;
    let digits = head.get(field + LENGTH.len()..).unwrap_or_default();
    let length = digits.iter().take_while(|digit| digit.is_ascii_digit());
    let length = length.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    Ok((body.len() >= length).then_some((head.len(), head.len() + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_ends_at_content_length() -> Result<()> {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nyes";
        assert_eq!(extent(answer)?, Some((64, 67)));
        for cut in 0..answer.len() {
            assert_eq!(extent(answer.get(..cut).unwrap_or_default())?, None, "{cut}");
        }
        Ok(())
    }

    #[test]
    fn anything_but_a_200_is_an_error() {
        assert!(extent(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}
