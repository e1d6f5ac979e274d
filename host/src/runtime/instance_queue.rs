//! An instance queue: calls waiting for the warm instance of one function.
//!
//! Everything queued when the instance can take more is handed over together: heartbeats that arrive together become one
//! batch, and one that arrives alone does not wait.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rollcall_core::Error;
use rollcall_functions::capabilities::MAX_BATCH;
use tokio::sync::{Mutex, mpsc, oneshot};
use tracing::Instrument;
use wasmtime::component::Accessor;
use wasmtime::{Engine, Result, Store, UpdateDeadline};

use super::limits::{MAX_TICKS, MEMORY_LIMIT_BYTES};
use super::platform::{Platform, StoreData};
use crate::jobs::{Exit, Supervisor};

/// Calls in flight in one instance. A full batch takes a few hundred kilobytes of the instance's 64 MiB, so this many fit
/// with room to spare. Further calls wait in the queue; when that is full, calls are refused.
const MAX_IN_FLIGHT: usize = 32;

/// Calls waiting for one instance.
const MAX_QUEUED: usize = 16_384;

/// How long a caller waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call may be in flight before its instance counts as stuck. Longer than any caller waits, and than a store
/// takes to report that it is unavailable.
const STUCK_AFTER: Duration = Duration::from_secs(8);

/// The pause after a failed instantiation.
const INSTANTIATE_RETRY: Duration = Duration::from_millis(250);

/// The retry hint after an instance was lost. Replacing it takes a millisecond.
const RETRY_MS: u32 = 1000;

/// Where the answer to a call goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What is the same in every function: its name, its types, and how it is instantiated.
macro_rules! function {
    ($name:literal, $call:ty, $pre:ident) => {
        const NAME: &'static str = $name;
        const JOB: &'static str = concat!("instance-", $name);
        type Call = $call;
        type Pre = $pre<StoreData>;

        async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
            pre.instantiate_async(store).await
        }
    };
}

pub(super) use function;

/// A function that can be kept warm.
pub(crate) trait Function: Sized + 'static {
    /// The function's name, as in `--component NAME=FILE`.
    const NAME: &'static str;
    /// The name of the job that runs its instance.
    const JOB: &'static str;
    /// A call, with where its answer goes.
    type Call: 'static;
    /// The component, linked and ready to be instantiated.
    type Pre: Clone + 'static;

    /// The memory limit of an instance.
    fn memory_limit(_platform: &Platform) -> usize {
        MEMORY_LIMIT_BYTES
    }

    /// Creates an instance.
    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self>;

    /// Combines calls that the function can answer as one batch.
    fn gather(calls: Vec<Self::Call>) -> Vec<Self::Call> {
        calls
    }

    /// Makes a call and sends the answer. An error is a trap: the instance is lost.
    async fn serve(&self, accessor: &Accessor<StoreData>, call: Self::Call) -> Result<()>;
}

/// The sending end of an instance queue. Cheap to clone.
pub struct InstanceQueue<C> {
    calls: mpsc::Sender<C>,
}

impl<C> Clone for InstanceQueue<C> {
    fn clone(&self) -> Self {
        Self { calls: self.calls.clone() }
    }
}

impl<C: 'static> InstanceQueue<C> {
    /// Opens a queue and runs its instance on the current thread's local task set.
    pub(crate) fn start<F: Function<Call = C>>(engine: Engine, pre: F::Pre, platform: Platform) -> Self {
        let (sender, queue) = Self::open();
        queue.serve::<F>(engine, pre, platform);
        sender
    }

    /// Both ends of a queue whose instance is yet to be started.
    pub(crate) fn open() -> (Self, Queue<C>) {
        let (calls, queue) = mpsc::channel(MAX_QUEUED);
        (Self { calls }, Queue(queue))
    }

    /// Makes a call and waits for its answer, up to [`CALL_TIMEOUT`].
    pub(crate) async fn call<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Error> {
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.call_untimed(call)).await;
        answer.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }

    /// Makes a call and waits for its answer without a timeout: a stuck instance is replaced, which ends the call.
    pub(crate) async fn call_untimed<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        if self.calls.try_send(call(reply)).is_err() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        // A lost instance drops the calls it held.
        answer.await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }
}

/// The receiving end of an instance queue.
pub(crate) struct Queue<C>(mpsc::Receiver<C>);

impl<C: 'static> Queue<C> {
    /// Runs the instance on the current thread's local task set, until every sender is dropped.
    pub(crate) fn serve<F: Function<Call = C>>(self, engine: Engine, pre: F::Pre, platform: Platform) {
        let supervisor = Supervisor::new(&platform.metrics);
        let runner = Rc::new(InstanceRunner::<F> { engine, pre, platform });
        let queue = Rc::new(Mutex::new(self.0));
        supervisor.spawn_local(F::JOB, move || {
            let (runner, queue) = (Rc::clone(&runner), Rc::clone(&queue));
            async move { runner.run(&mut *queue.lock().await).await }
        });
    }
}

/// Creates one instance and drops it, to find out at start whether a function can be instantiated.
pub(crate) async fn try_instantiate<F: Function>(engine: &Engine, pre: &F::Pre, platform: &Platform) -> Result<()> {
    let mut store = wasm_store::<F>(engine, platform);
    let ticks = Arc::clone(&store.data().ticks);
    yielding(&ticks, F::instantiate(pre, &mut store)).await?;
    Ok(())
}

/// A wasmtime store for one instance, with its limits.
fn wasm_store<F: Function>(engine: &Engine, platform: &Platform) -> Store<StoreData> {
    let mut store = Store::new(engine, StoreData::new(platform.clone(), F::memory_limit(platform)));
    store.limiter(|data| &mut data.limits);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        if context.data().count_tick() > MAX_TICKS {
            return Err(wasmtime::Error::msg("computed for too long without yielding"));
        }
        Ok(UpdateDeadline::Continue(1))
    });
    store
}

/// Keeps one instance of a function warm and replaces it when it is lost.
struct InstanceRunner<F: Function> {
    engine: Engine,
    pre: F::Pre,
    platform: Platform,
}

/// Why an instance ended.
enum End {
    /// Every sender was dropped.
    Closed,
    /// A call did not return in time.
    Stuck,
    /// It trapped. The calls it held are lost.
    Trapped(wasmtime::Error),
    /// It could not be created.
    NotCreated(wasmtime::Error),
}

impl<F: Function> InstanceRunner<F> {
    async fn run(&self, queue: &mut mpsc::Receiver<F::Call>) -> Exit {
        loop {
            match self.run_instance(queue).await {
                End::Closed => return Exit::Closed,
                End::Stuck => tracing::error!(function = F::NAME, "Call did not return; replacing the instance"),
                End::Trapped(trap) => {
                    let trap = format!("{trap:#}");
                    tracing::error!(function = F::NAME, trap, "Function trapped; replacing the instance");
                }
                End::NotCreated(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(function = F::NAME, error, "Cannot create an instance; retrying");
                    // Waiting calls fail at once; later ones may succeed.
                    while queue.try_recv().is_ok() {}
                    tokio::time::sleep(INSTANTIATE_RETRY).await;
                }
            }
            self.platform.metrics.replaced(F::NAME);
        }
    }

    /// Runs one instance until it ends.
    async fn run_instance(&self, queue: &mut mpsc::Receiver<F::Call>) -> End {
        let mut store = wasm_store::<F>(&self.engine, &self.platform);
        let ticks = Arc::clone(&store.data().ticks);
        let function = match yielding(&ticks, F::instantiate(&self.pre, &mut store)).await {
            Ok(function) => function,
            Err(error) => return End::NotCreated(error),
        };
        let calls = InFlight { since: RefCell::default(), ticks: Arc::clone(&ticks) };
        let running = store.run_concurrent(async |accessor| self.feed(&function, accessor, queue, &calls).await);
        tokio::select! {
            end = yielding(&ticks, running) => match end {
                Ok(Ok(())) => End::Closed,
                Ok(Err(trap)) | Err(trap) => End::Trapped(trap),
            },
            () = calls.until_stuck() => End::Stuck,
        }
    }

    /// Hands calls over until every sender is dropped or a call traps.
    async fn feed(
        &self,
        function: &F,
        accessor: &Accessor<StoreData>,
        queue: &mut mpsc::Receiver<F::Call>,
        in_flight_calls: &InFlight,
    ) -> Result<()> {
        let mut waiting = VecDeque::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < MAX_IN_FLIGHT
                && let Some(call) = waiting.pop_front()
            {
                in_flight.push(self.serve(function, accessor, call, in_flight_calls));
            }
            let mut arrived = Vec::new();
            tokio::select! {
                biased;
                Some(served) = in_flight.next(), if !in_flight.is_empty() => served?,
                count = queue.recv_many(&mut arrived, MAX_BATCH), if waiting.is_empty() => {
                    if count == 0 {
                        break;
                    }
                    waiting.extend(F::gather(arrived));
                }
            }
        }
        while let Some(served) = in_flight.next().await {
            served?;
        }
        Ok(())
    }

    async fn serve(
        &self,
        function: &F,
        accessor: &Accessor<StoreData>,
        call: F::Call,
        in_flight_calls: &InFlight,
    ) -> Result<()> {
        let began = Instant::now();
        let number = in_flight_calls.begin(began);
        let span = tracing::debug_span!("call", function = F::NAME);
        let served = function.serve(accessor, call).instrument(span).await;
        in_flight_calls.end(number);
        if served.is_ok() {
            self.platform.metrics.called(F::NAME, began.elapsed());
        }
        served
    }
}

/// The calls in flight in one instance.
struct InFlight {
    /// When each was handed over, in that order.
    since: RefCell<BTreeMap<u64, Instant>>,
    ticks: Arc<AtomicU32>,
}

impl InFlight {
    fn begin(&self, at: Instant) -> u64 {
        let mut since = self.since.borrow_mut();
        let number = since.last_key_value().map_or(0, |(last, _)| last + 1);
        since.insert(number, at);
        number
    }

    /// A call returned, so the instance makes progress: its tick count starts again.
    fn end(&self, number: u64) {
        self.since.borrow_mut().remove(&number);
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Returns when the oldest call has been in flight for longer than [`STUCK_AFTER`].
    async fn until_stuck(&self) {
        loop {
            tokio::time::sleep(STUCK_AFTER / 8).await;
            let oldest = self.since.borrow().first_key_value().map(|(_, at)| *at);
            if oldest.is_some_and(|at| at.elapsed() > STUCK_AFTER) {
                return;
            }
        }
    }
}

/// Runs an instance, and resets its tick count each time it yields.
async fn yielding<T>(ticks: &AtomicU32, running: impl Future<Output = T>) -> T {
    let mut running = pin!(running);
    poll_fn(|context| {
        ticks.store(0, Ordering::Relaxed);
        running.as_mut().poll(context)
    })
    .await
}
