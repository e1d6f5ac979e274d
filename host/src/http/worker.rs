//! A worker: one thread with its own functions, its own connections and its own share of the shards. A request never
//! leaves the thread that its connection came to.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rollcall_api::{Access, Limits};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, watch};
use tokio::task::LocalSet;
use wasmtime::Engine;

use crate::http::console::Console;
use crate::http::edge::{Answer, Edge};
use crate::http::origins::Origins;
use crate::http::write_timeout::WriteTimeoutStream;
use crate::hub::{ConnectedDevices, Hub, HubOptions, HubQuery};
use crate::jobs::Plan;
use crate::jobs::policy_sync::{Invalidated, PolicySync, PolicySyncHandle};
use crate::metrics::Metrics;
use crate::runtime::{Catalog, CheckerInstance, Functions, Platform};
use crate::stats::SharedStats;

/// How long a client may take to send the head of a request, or hold a connection idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long the store may take at the end to hear of the last connections.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connection to be served, with its slot among the most that may be open.
pub(crate) type AcceptedConnection = (TcpStream, OwnedSemaphorePermit);

/// Everything that one worker needs.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) catalog: Catalog,
    pub(crate) platform: Platform,
    pub(crate) access: Arc<Access>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) limits: Limits,
    /// How connections that stay are treated.
    pub(crate) hub_options: HubOptions,
    /// Who is connected, on all workers.
    pub(crate) present: ConnectedDevices,
    /// Whoever keeps this host in step with who may see whom.
    pub(crate) followers: PolicySyncHandle,
    /// What all workers know together.
    pub(crate) shared_stats: Arc<SharedStats>,
    /// Pages for people.
    pub(crate) console: Arc<Console>,
    /// How long to wait for open connections once the service ends.
    pub(crate) drain: Duration,
}

/// One worker's own part of the work.
pub(crate) struct WorkerAssignment {
    /// What it does although nobody calls.
    pub(crate) plan: Plan,
    /// The instance of `restriction-check` that lives here, if one does, and its follower.
    pub(crate) checker_instance: Option<(CheckerInstance, PolicySync)>,
    /// Whose relations changed.
    pub(crate) invalidated: mpsc::UnboundedReceiver<Invalidated>,
    /// What somebody wants to know about who watches whom.
    pub(crate) queries: mpsc::UnboundedReceiver<HubQuery>,
}

impl Worker {
    /// Serves until `ending` turns true and the connections are done.
    pub(crate) fn run(
        self,
        assignment: WorkerAssignment,
        accepted: mpsc::UnboundedReceiver<AcceptedConnection>,
        ending: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, self.serve(assignment, accepted, ending));
        Ok(())
    }

    async fn serve(
        self,
        assignment: WorkerAssignment,
        mut accepted: mpsc::UnboundedReceiver<AcceptedConnection>,
        mut ending: watch::Receiver<bool>,
    ) {
        let WorkerAssignment { plan, checker_instance, invalidated, queries } = assignment;
        let follower = checker_instance.map(|(checker_instance, follower)| {
            checker_instance.start(&self.engine, &self.catalog, &self.platform);
            let platform = self.platform.clone();
            tokio::task::spawn_local(async move { follower.follow(&platform).await })
        });
        let functions = Functions::start(&self.engine, &self.catalog, &self.platform);
        let mut rounds = tokio::task::spawn_local(plan.with(functions.clone()).go());
        let hub = Hub::new(functions.clone(), self.access.clone(), self.limits, self.hub_options, self.present);
        let hub_task = tokio::task::spawn_local({
            let hub = Rc::clone(&hub);
            async move { hub.run(invalidated, queries).await }
        });
        let Self { access, origins, limits, followers, shared_stats, console, .. } = self;
        let edge = Edge { functions, access, origins, limits, followers, hub: Rc::clone(&hub), shared_stats, console };
        let edge = Rc::new(edge);
        let open = Rc::new(OpenConnections::default());
        let watched = ending.clone();
        let welcome = |(stream, permit): AcceptedConnection| {
            let connection =
                HttpConnection { edge: Rc::clone(&edge), open: open.enter(), ending: watched.clone(), permit };
            tokio::task::spawn_local(connection.serve(stream));
        };
        loop {
            tokio::select! {
                arrival = accepted.recv() => match arrival {
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
        accepted.close();
        while let Some(arrival) = accepted.recv().await {
            welcome(arrival);
        }
        if tokio::time::timeout(self.drain, open.emptied()).await.is_err() {
            tracing::warn!(connections = open.count.get(), "gave up waiting for connections to end");
        }
        if tokio::time::timeout(FAREWELL, hub.settled()).await.is_err() {
            tracing::warn!("the store could not be told of everybody who was connected");
        }
        hub_task.abort();
        rounds.abort();
        follower.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// One connection.
struct HttpConnection {
    edge: Rc<Edge>,
    open: ConnectionGuard,
    ending: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
}

impl HttpConnection {
    async fn serve(self, stream: TcpStream) {
        let HttpConnection { edge, open, ending, permit } = self;
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let slot =
            ConnectionSlot { metrics: Arc::clone(&edge.functions.platform.metrics), _open: open, _permit: permit };
        slot.metrics.connected();
        // Where a request that asks for a connection that stays leaves whoever is to serve it.
        let upgraded = Rc::new(RefCell::new(None));
        let service = service_fn(|request| {
            let (edge, upgraded) = (Rc::clone(&edge), Rc::clone(&upgraded));
            async move {
                match edge.answer(request).await {
                    Answer::Reply(reply) => Ok::<_, std::convert::Infallible>(reply),
                    Answer::Upgrade(admitted) => {
                        upgraded.replace(Some(admitted));
                        // The connection is taken over before anybody could answer.
                        std::future::pending().await
                    }
                }
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true);
        let mut connection = builder.serve_connection(TokioIo::new(WriteTimeoutStream::new(stream)), service);
        let mut watched = ending.clone();
        let mut is_ending = std::pin::pin!(watched.wait_for(|ending| *ending));
        let mut shutting_down = false;
        let admitted = poll_fn(|context| {
            if !shutting_down && is_ending.as_mut().poll(context).is_ready() {
                shutting_down = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // How a connection ended is the client's business: they break all the time.
            let ended = Pin::new(&mut connection).poll(context).is_ready();
            match (upgraded.take(), ended) {
                (None, false) => Poll::Pending,
                (admitted, _) => Poll::Ready(admitted),
            }
        });
        if let Some(admitted) = admitted.await {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            // In a task of its own, which has no room for what HTTP needs.
            let serving = admitted.serve(io.into_inner(), read_buf, ending);
            tokio::task::spawn_local(async move {
                let _place = slot;
                serving.await;
            });
        }
    }
}

/// A slot among those of a worker, until the connection that has it ends.
struct ConnectionSlot {
    metrics: Arc<Metrics>,
    _open: ConnectionGuard,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.metrics.disconnected();
    }
}

/// Counts open connections, and tells when there are none left.
#[derive(Default)]
struct OpenConnections {
    count: Cell<usize>,
    changed: Notify,
}

impl OpenConnections {
    fn enter(self: &Rc<Self>) -> ConnectionGuard {
        self.count.set(self.count.get() + 1);
        ConnectionGuard(Rc::clone(self))
    }

    async fn emptied(&self) {
        while self.count.get() > 0 {
            self.changed.notified().await;
        }
    }
}

/// One open connection, until it is dropped.
struct ConnectionGuard(Rc<OpenConnections>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.changed.notify_one();
    }
}
