//! A lane: one warm instance of one function, fed with calls from one queue.
//!
//! Whatever is queued when the instance can take more is handed over together, so that single heartbeats that arrive
//! together become one batch, and one that arrives alone does not wait.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rollcall_core::Error;
use tokio::sync::{Notify, mpsc, oneshot};
use wasmtime::component::Accessor;
use wasmtime::{Engine, Result, Store, UpdateDeadline};

use super::limits::PATIENCE_TICKS;
use super::platform::{Cell, Platform};

/// Calls in flight in one instance. A call in flight holds its batch in the instance's memory, so there is a bound;
/// behind it the queue grows, and behind that the edge refuses.
const MAX_IN_FLIGHT: usize = 64;

/// Calls waiting for one instance: at a microsecond each in batches, well under a second of work.
const MAX_QUEUED: usize = 65_536;

/// How long a caller waits. A call that takes longer is stuck: its instance is replaced.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// When to come back after a function failed: its instance is being replaced, which takes a millisecond.
const RETRY_MS: u32 = 1000;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A function that a lane can keep warm.
pub(crate) trait Function: Sized + 'static {
    /// The function's name, as in `--component NAME=FILE`.
    const NAME: &'static str;
    /// One call of it, with the place for its answer.
    type Call: 'static;
    /// The function, ready to be instantiated.
    type Blueprint: Clone + 'static;

    /// Makes an instance.
    async fn instantiate(blueprint: &Self::Blueprint, store: &mut Store<Cell>) -> Result<Self>;

    /// Puts together calls that the function can answer as one.
    fn gather(calls: Vec<Self::Call>) -> Vec<Self::Call> {
        calls
    }

    /// Makes a call and sends its answer. An error is a trap: the instance is lost.
    async fn serve(&self, accessor: &Accessor<Cell>, call: Self::Call) -> Result<()>;
}

/// The sending end of a lane. Cheap to clone; stays on its worker thread.
pub struct Lane<C> {
    calls: mpsc::Sender<C>,
    stuck: Arc<Notify>,
}

impl<C> Clone for Lane<C> {
    fn clone(&self) -> Self {
        Self { calls: self.calls.clone(), stuck: Arc::clone(&self.stuck) }
    }
}

impl<C: 'static> Lane<C> {
    /// Starts a lane on the current thread's local task set.
    pub(crate) fn start<F: Function<Call = C>>(engine: Engine, blueprint: F::Blueprint, platform: Platform) -> Self {
        let (calls, queue) = mpsc::channel(MAX_QUEUED);
        let stuck = Arc::new(Notify::new());
        let keeper = Keeper::<F> { engine, blueprint, platform, stuck: Arc::clone(&stuck) };
        tokio::task::spawn_local(keeper.keep(queue));
        Self { calls, stuck }
    }

    /// Makes a call and waits for its answer.
    pub(crate) async fn call<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        if self.calls.try_send(call(reply)).is_err() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        match tokio::time::timeout(CALL_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            // The instance trapped and took its calls along.
            Ok(Err(_)) => Err(Error::Unavailable(RETRY_MS)),
            Err(_) => {
                self.stuck.notify_one();
                Err(Error::Unavailable(RETRY_MS))
            }
        }
    }
}

/// Keeps one instance of a function warm, and replaces it when it is lost.
struct Keeper<F: Function> {
    engine: Engine,
    blueprint: F::Blueprint,
    platform: Platform,
    stuck: Arc<Notify>,
}

/// Why an instance's life ended without a trap.
enum End {
    /// Nobody can call any more.
    Closed,
    /// A call did not come back in time.
    Stuck,
}

impl<F: Function> Keeper<F> {
    async fn keep(self, mut queue: mpsc::Receiver<F::Call>) {
        loop {
            match self.live(&mut queue).await {
                Ok(End::Closed) => return,
                Ok(End::Stuck) => {
                    tracing::error!(function = F::NAME, "a call did not come back; replacing the instance")
                }
                Err(trap) => tracing::error!(function = F::NAME, "replacing the instance: {trap:#}"),
            }
            self.platform.metrics.replaced(F::NAME);
        }
    }

    /// One instance's life.
    async fn live(&self, queue: &mut mpsc::Receiver<F::Call>) -> Result<End> {
        let mut store = Store::new(&self.engine, Cell::new(self.platform.clone()));
        store.limiter(|cell| &mut cell.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|context| {
            if context.data().count_tick() > PATIENCE_TICKS {
                return Err(wasmtime::Error::msg("computed for too long without giving control back"));
            }
            Ok(UpdateDeadline::Continue(1))
        });
        let ticks = Arc::clone(&store.data().ticks);
        let function = patient(&ticks, F::instantiate(&self.blueprint, &mut store)).await?;
        let life = store.run_concurrent(async |accessor| self.feed(&function, accessor, queue).await);
        tokio::select! {
            end = patient(&ticks, life) => end?,
            () = self.stuck.notified() => Ok(End::Stuck),
        }
    }

    /// Hands calls over until there are no more, or until one of them traps.
    async fn feed(&self, function: &F, accessor: &Accessor<Cell>, queue: &mut mpsc::Receiver<F::Call>) -> Result<End> {
        let mut in_flight = FuturesUnordered::new();
        loop {
            let mut arrived = Vec::new();
            tokio::select! {
                biased;
                Some(served) = in_flight.next(), if !in_flight.is_empty() => served?,
                count = queue.recv_many(&mut arrived, MAX_QUEUED), if in_flight.len() < MAX_IN_FLIGHT => {
                    if count == 0 {
                        while let Some(served) = in_flight.next().await {
                            served?;
                        }
                        return Ok(End::Closed);
                    }
                    in_flight.extend(F::gather(arrived).into_iter().map(|call| self.serve(function, accessor, call)));
                }
            }
        }
    }

    async fn serve(&self, function: &F, accessor: &Accessor<Cell>, call: F::Call) -> Result<()> {
        let began = Instant::now();
        let served = function.serve(accessor, call).await;
        self.platform.metrics.called(F::NAME, began.elapsed(), served.is_ok());
        served
    }
}

/// Runs an instance, giving it its full patience anew each time it gave control back.
async fn patient<T>(ticks: &AtomicU32, running: impl Future<Output = T>) -> T {
    let mut running = pin!(running);
    poll_fn(|context| {
        ticks.store(0, Ordering::Relaxed);
        running.as_mut().poll(context)
    })
    .await
}
