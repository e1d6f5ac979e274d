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
use crate::http::write_timeout::Patient;
use crate::hub::{Gateway, Manners, Presences, Question};
use crate::jobs::Plan;
use crate::jobs::policy_sync::{Follower, Followers, Invalidated};
use crate::metrics::Metrics;
use crate::runtime::{Catalog, Desk, FunctionHandles, Platform};
use crate::stats::Overview;

/// How long a client may take to send the head of a request, or hold a connection idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long the store may take at the end to hear of the last connections.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connection to be served, with its place among the most that may be open.
pub(crate) type Arrival = (TcpStream, OwnedSemaphorePermit);

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
    pub(crate) manners: Manners,
    /// Who is connected, on all workers.
    pub(crate) present: Presences,
    /// Whoever keeps this host in step with who may see whom.
    pub(crate) followers: Followers,
    /// What all workers know together.
    pub(crate) overview: Arc<Overview>,
    /// Pages for people.
    pub(crate) console: Arc<Console>,
    /// How long to wait for open connections once the service ends.
    pub(crate) drain: Duration,
}

/// One worker's own part of the work.
pub(crate) struct Post {
    /// What it does although nobody calls.
    pub(crate) plan: Plan,
    /// The instance of `restriction-check` that lives here, if one does, and its follower.
    pub(crate) desk: Option<(Desk, Follower)>,
    /// Whose relations changed.
    pub(crate) invalidated: mpsc::UnboundedReceiver<Invalidated>,
    /// What somebody wants to know about who watches whom.
    pub(crate) questions: mpsc::UnboundedReceiver<Question>,
}

impl Worker {
    /// Serves until `ending` turns true and the connections are done.
    pub(crate) fn run(
        self,
        post: Post,
        arrivals: mpsc::UnboundedReceiver<Arrival>,
        ending: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, self.serve(post, arrivals, ending));
        Ok(())
    }

    async fn serve(
        self,
        post: Post,
        mut arrivals: mpsc::UnboundedReceiver<Arrival>,
        mut ending: watch::Receiver<bool>,
    ) {
        let Post { plan, desk, invalidated, questions } = post;
        let follower = desk.map(|(desk, follower)| {
            desk.start(&self.engine, &self.catalog, &self.platform);
            let platform = self.platform.clone();
            tokio::task::spawn_local(async move { follower.follow(&platform).await })
        });
        let function_handles = FunctionHandles::start(&self.engine, &self.catalog, &self.platform);
        let mut rounds = tokio::task::spawn_local(plan.with(function_handles.clone()).go());
        let gateway =
            Gateway::new(function_handles.clone(), self.access.clone(), self.limits, self.manners, self.present);
        let hub = tokio::task::spawn_local({
            let gateway = Rc::clone(&gateway);
            async move { gateway.run(invalidated, questions).await }
        });
        let Self { access, origins, limits, followers, overview, console, .. } = self;
        let hub_of_edge = Rc::clone(&gateway);
        let edge =
            Edge { function_handles, access, origins, limits, followers, gateway: hub_of_edge, overview, console };
        let edge = Rc::new(edge);
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
        if tokio::time::timeout(FAREWELL, gateway.settled()).await.is_err() {
            tracing::warn!("the store could not be told of everybody who was connected");
        }
        hub.abort();
        rounds.abort();
        follower.iter().for_each(tokio::task::JoinHandle::abort);
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
        let Guest { edge, open, ending, permit } = self;
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let place =
            Place { metrics: Arc::clone(&edge.function_handles.platform.metrics), _open: open, _permit: permit };
        place.metrics.connected();
        // Where a request that asks for a connection that stays leaves whoever is to serve it.
        let visitor = Rc::new(RefCell::new(None));
        let service = service_fn(|request| {
            let (edge, visitor) = (Rc::clone(&edge), Rc::clone(&visitor));
            async move {
                match edge.answer(request).await {
                    Answer::Reply(reply) => Ok::<_, std::convert::Infallible>(reply),
                    Answer::Visit(admitted) => {
                        visitor.replace(Some(admitted));
                        // The connection is taken over before anybody could answer.
                        std::future::pending().await
                    }
                }
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(true);
        let mut connection = builder.serve_connection(TokioIo::new(Patient::new(stream)), service);
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
            match (visitor.take(), ended) {
                (None, false) => Poll::Pending,
                (admitted, _) => Poll::Ready(admitted),
            }
        });
        if let Some(admitted) = admitted.await {
            let http1::Parts { io, read_buf, .. } = connection.into_parts();
            // In a task of its own, which has no room for what HTTP needs.
            let serving = admitted.serve(io.into_inner(), read_buf, ending);
            tokio::task::spawn_local(async move {
                let _place = place;
                serving.await;
            });
        }
    }
}

/// A place among those of a worker, until the connection that has it ends.
struct Place {
    metrics: Arc<Metrics>,
    _open: Entered,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.disconnected();
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
