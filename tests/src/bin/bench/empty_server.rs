//! The baselines over HTTP: the host's HTTP stack with another handler. The same hyper settings, as many workers, connections
//! handed to them in the same way. One answers 200 without reading the request, the other is in `mget_server.rs`.
//!
//! Each is a hidden mode of this program, so that it runs in its own process like the host.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// The flag that runs this program as the empty server.
pub(crate) const FLAG: &str = "--empty-server";

/// Serves the connections of one worker.
pub(crate) type Work = fn(mpsc::UnboundedReceiver<TcpStream>) -> Result<()>;

/// As in the host: it costs a timer per request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// A running baseline. Killed when dropped.
pub(crate) struct EmptyServer {
    child: Child,
    address: String,
}

impl EmptyServer {
    pub(crate) fn start() -> Result<Self> {
        Self::start_as(&[FLAG])
    }

    /// Starts this program with these flags.
    pub(crate) fn start_as(flags: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the baseline")?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for EmptyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves until killed.
pub(crate) fn serve() -> Result<()> {
    serve_with(work)
}

/// The same with these workers.
pub(crate) fn serve_with(work: Work) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut workers = Vec::new();
    for _ in 0..std::thread::available_parallelism()?.get() {
        let (arrivals, queue) = mpsc::unbounded_channel();
        std::thread::spawn(move || work(queue));
        workers.push(arrivals);
    }
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let mut turns = workers.iter().cycle();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            turns.next().context("no worker")?.send(stream.into_std()?)?;
        }
    })
}

fn work(arrivals: mpsc::UnboundedReceiver<TcpStream>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, answer_with(arrivals, async |_| Ok(Response::new(Full::default()))))
}

/// Answers the requests of all connections that arrive.
pub(crate) async fn answer_with(
    mut arrivals: mpsc::UnboundedReceiver<TcpStream>,
    answer: impl AsyncFn(Request<Incoming>) -> Result<Response<Full<Bytes>>> + 'static,
) -> Result<()> {
    let answer = Rc::new(answer);
    while let Some(stream) = arrivals.recv().await {
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let answer = Rc::clone(&answer);
        tokio::task::spawn_local(async move {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
            let service = service_fn(move |request| {
                let answer = Rc::clone(&answer);
                async move { answer(request).await }
            });
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
    Ok(())
}
