//! A worker: one thread with its own functions, its own connections and its own share of the shards. A request never
//! leaves the thread that its connection came to.

use std::cell::Cell;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rollcall_api::{Access, Limits};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, watch};
use tokio::task::LocalSet;
use tokio_io_timeout::TimeoutStream;
use wasmtime::Engine;

use crate::edge::Edge;
use crate::engine::{Catalog, Crew, Platform};
use crate::rounds::Plan;

/// How long a client may take to send the head of a request, or hold a connection idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a client may take none of what it asked for before its connection is closed, so that clients that never read
/// cannot take every place.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to be served, with its place among the most that may be open.
pub(crate) type Arrival = (TcpStream, OwnedSemaphorePermit);

/// Everything that one worker needs.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) catalog: Catalog,
    pub(crate) platform: Platform,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: Limits,
    /// How long to wait for open connections once the service ends.
    pub(crate) drain: Duration,
}

impl Worker {
    /// Serves until `ending` turns true and the connections are done.
    pub(crate) fn run(
        self,
        plan: Plan,
        arrivals: mpsc::UnboundedReceiver<Arrival>,
        ending: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, self.serve(plan, arrivals, ending));
        Ok(())
    }

    async fn serve(
        self,
        plan: Plan,
        mut arrivals: mpsc::UnboundedReceiver<Arrival>,
        mut ending: watch::Receiver<bool>,
    ) {
        let crew = Crew::start(&self.engine, &self.catalog, &self.platform);
        let mut rounds = tokio::task::spawn_local(plan.with(crew.clone()).go());
        let edge = Rc::new(Edge { crew, access: self.access, limits: self.limits });
        let open = Rc::new(Open::default());
        let watched = ending.clone();
        let welcome = |(stream, permit): Arrival| {
            let guest = Guest { edge: Rc::clone(&edge), open: open.enter(), ending: watched.clone(), permit };
            tokio::task::spawn_local(guest.serve(stream));
        };
        loop {
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(arrival) => welcome(arrival),
                    None => break,
                },
                _ = ending.wait_for(|ending| *ending) => break,
                // Nobody would notice who expired: better to end, and to be started again.
                _ = &mut rounds => {
                    tracing::error!("the rounds of a worker ended; the worker ends too");
                    return;
                }
            }
        }
        // Connections that were accepted before the end are served to theirs.
        arrivals.close();
        while let Some(arrival) = arrivals.recv().await {
            welcome(arrival);
        }
        if tokio::time::timeout(self.drain, open.emptied()).await.is_err() {
            tracing::warn!(connections = open.count.get(), "gave up waiting for connections to end");
        }
        rounds.abort();
    }
}

/// One connection.
struct Guest {
    edge: Rc<Edge>,
    open: Entered,
    ending: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
}

impl Guest {
    async fn serve(self, stream: TcpStream) {
        let Guest { edge, open: _open, mut ending, permit: _permit } = self;
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let metrics = Arc::clone(&edge.crew.platform.metrics);
        metrics.connected();
        let service = service_fn(move |request| {
            let edge = Rc::clone(&edge);
            async move { Ok::<_, std::convert::Infallible>(edge.answer(request).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let stream = TokioIo::new(Box::pin(stream));
        let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
        // How a connection ended is the client's business: they break all the time.
        tokio::select! {
            _ = connection.as_mut() => {}
            _ = ending.wait_for(|ending| *ending) => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
        metrics.disconnected();
    }
}

/// Counts open connections, and tells when there are none left.
#[derive(Default)]
struct Open {
    count: Cell<usize>,
    changed: Notify,
}

impl Open {
    fn enter(self: &Rc<Self>) -> Entered {
        self.count.set(self.count.get() + 1);
        Entered(Rc::clone(self))
    }

    async fn emptied(&self) {
        while self.count.get() > 0 {
            self.changed.notified().await;
        }
    }
}

/// One open connection, until it is dropped.
struct Entered(Rc<Open>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.changed.notify_one();
    }
}
