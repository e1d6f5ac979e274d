//! A worker: one thread with its own functions, connections and shards. A request stays on the thread its connection was
//! accepted for.

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
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, mpsc, watch};
use tokio::task::LocalSet;
use wasmtime::Engine;

use crate::http::console::Console;
use crate::http::edge::{Answer, Edge};
use crate::http::origins::Origins;
use crate::http::write_timeout::WriteTimeoutStream;
use crate::hub::{ConnectedDevices, Hub, HubOptions, HubQuery};
use crate::jobs::policy_sync::{self, Invalidated, PolicySync, PolicySyncHandle};
use crate::jobs::{SessionJobs, Supervisor, start_hub_jobs};
use crate::metrics::Metrics;
use crate::runtime::{Catalog, CheckerInstance, Functions, Platform};
use crate::stats::SharedStats;

/// How long a client may take to send the head of a request, and keep a connection idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long the last beats and departures may take to reach the store at the end.
const LAST_BEATS_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to serve, and its permit among the most that may be open.
pub(crate) type AcceptedConnection = (TcpStream, OwnedSemaphorePermit);

/// What all workers have in common.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) catalog: Catalog,
    pub(crate) platform: Platform,
    pub(crate) access: Arc<Access>,
    pub(crate) origins: Arc<Origins>,
    pub(crate) limits: Limits,
    pub(crate) hub_options: HubOptions,
    /// The connected devices of all workers.
    pub(crate) connected_devices: ConnectedDevices,
    pub(crate) policy_sync: PolicySyncHandle,
    pub(crate) shared_stats: Arc<SharedStats>,
    pub(crate) console: Arc<Console>,
    /// How long to wait for open connections when the host stops.
    pub(crate) drain: Duration,
}

/// One worker's own part of the work.
pub(crate) struct WorkerAssignment {
    pub(crate) session_jobs: SessionJobs,
    /// The `restriction-check` instance on this thread, if there is one, and its policy sync.
    pub(crate) checker_instance: Option<(CheckerInstance, PolicySync)>,
    pub(crate) invalidated: mpsc::UnboundedReceiver<Invalidated>,
    pub(crate) queries: mpsc::UnboundedReceiver<HubQuery>,
}

impl Worker {
    /// Serves until `ending` turns true and the connections are closed.
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
        let supervisor = Supervisor::new(&self.platform.metrics);
        let (edge, hub) = self.start(assignment, &supervisor);
        let open = Rc::new(OpenConnections::default());
        let stopping = ending.clone();
        let serve = |(stream, permit): AcceptedConnection| {
            let (edge, open, ending) = (Rc::clone(&edge), open.add(), stopping.clone());
            tokio::task::spawn_local(HttpConnection { edge, open, ending, permit }.serve(stream));
        };
        loop {
            tokio::select! {
                connection = accepted.recv() => match connection {
                    Some(connection) => serve(connection),
                    None => break,
                },
                _ = ending.wait_for(|ending| *ending) => break,
            }
        }
        // Connections accepted before the end are still served.
        accepted.close();
        while let Some(connection) = accepted.recv().await {
            serve(connection);
        }
        if tokio::time::timeout(self.drain, open.emptied()).await.is_err() {
            tracing::warn!(connections = open.count.get(), "Connections still open after drain; closing them");
        }
        if tokio::time::timeout(LAST_BEATS_TIMEOUT, hub.settled()).await.is_err() {
            tracing::warn!("Last beats of connections did not reach the store in time; giving up on them");
        }
        supervisor.stop();
    }

    /// Starts the functions and jobs of this worker.
    fn start(&self, assignment: WorkerAssignment, supervisor: &Supervisor) -> (Rc<Edge>, Rc<Hub>) {
        let WorkerAssignment { session_jobs, checker_instance, invalidated, queries } = assignment;
        if let Some((instance, sync)) = checker_instance {
            instance.start(&self.engine, &self.catalog, &self.platform);
            let (sync, platform) = (Rc::new(Mutex::new(sync)), self.platform.clone());
            supervisor.spawn_local("policy-sync", move || policy_sync::run(Rc::clone(&sync), platform.clone()));
        }
        let functions = Functions::start(&self.engine, &self.catalog, &self.platform);
        session_jobs.start(supervisor, &functions);
        let connected = self.connected_devices.clone();
        let hub = Hub::new(functions.clone(), Arc::clone(&self.access), self.limits, self.hub_options, connected);
        start_hub_jobs(supervisor, &hub, invalidated, queries);
        let edge = Edge {
            functions,
            access: Arc::clone(&self.access),
            origins: Arc::clone(&self.origins),
            limits: self.limits,
            policy_sync: self.policy_sync.clone(),
            hub: Rc::clone(&hub),
            shared_stats: Arc::clone(&self.shared_stats),
            console: Arc::clone(&self.console),
        };
        (Rc::new(edge), hub)
    }
}

/// One HTTP connection.
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
        // Where an admitted upgrade is left for the code below.
        let upgraded = Rc::new(RefCell::new(None));
        let service = service_fn(|request| {
            let (edge, upgraded) = (Rc::clone(&edge), Rc::clone(&upgraded));
            async move {
                match edge.answer(request).await {
                    Answer::Reply(reply) => Ok::<_, std::convert::Infallible>(reply),
                    Answer::Upgrade(admitted) => {
                        upgraded.replace(Some(admitted));
                        // The connection is taken over before hyper could respond.
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
            // Why the connection ended does not matter: clients break connections all the time.
            let ended = Pin::new(&mut connection).poll(context).is_ready();
            match (upgraded.take(), ended) {
                (None, false) => Poll::Pending,
                (admitted, _) => Poll::Ready(admitted),
            }
        });
        if let Some(admitted) = admitted.await {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            // In another task, without the memory that HTTP needs.
            let serving = admitted.serve(io.into_inner(), read_buf, ending);
            tokio::task::spawn_local(async move {
                let _place = slot;
                serving.await;
            });
        }
    }
}

/// The accounting of one open connection, until it is dropped.
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

/// Counts open connections, and notifies when none is left.
#[derive(Default)]
struct OpenConnections {
    count: Cell<usize>,
    changed: Notify,
}

impl OpenConnections {
    fn add(self: &Rc<Self>) -> ConnectionGuard {
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
