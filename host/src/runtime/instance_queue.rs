//! A instance queue: one warm instance of one function, fed with calls from one queue.
//!
//! Whatever is queued when the instance can take more is handed over together, so that single heartbeats that arrive
//! together become one batch, and one that arrives alone does not wait.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rollcall_core::Error;
use rollcall_functions::capabilities::MAX_BATCH;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;
use wasmtime::component::Accessor;
use wasmtime::{Engine, Result, Store, UpdateDeadline};

use super::limits::{MEMORY_LIMIT_BYTES, PATIENCE_TICKS};
use super::platform::{Platform, StoreData};

/// Calls in flight in one instance. A full batch takes a few hundred kilobytes of the instance's 64 MiB, so this many
/// fit with room to spare; behind them the queue grows, and behind that the edge refuses.
const MAX_IN_FLIGHT: usize = 32;

/// Calls waiting for one instance.
const MAX_QUEUED: usize = 16_384;

/// How long a caller waits.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call may be in flight before its instance is taken for stuck. Longer than any caller waits, and than a
/// store takes to say that it is away.
const STUCK_AFTER: Duration = Duration::from_secs(8);

/// How long to wait before an instance that could not even be made is tried again.
const BIRTH_PAUSE: Duration = Duration::from_millis(250);

/// When to come back after a function failed: its instance is being replaced, which takes a millisecond.
const RETRY_MS: u32 = 1000;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A function that a instance queue can keep warm.
pub(crate) trait Function: Sized + 'static {
    /// The function's name, as in `--component NAME=FILE`.
    const NAME: &'static str;
    /// One call of it, with the place for its answer.
    type Call: 'static;
    /// The function, ready to be instantiated.
    type Pre: Clone + 'static;

    /// The most memory that an instance may have.
    fn memory_limit(_platform: &Platform) -> usize {
        MEMORY_LIMIT_BYTES
    }

    /// Makes an instance.
    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self>;

    /// Puts together calls that the function can answer as one.
    fn gather(calls: Vec<Self::Call>) -> Vec<Self::Call> {
        calls
    }

    /// Makes a call and sends its answer. An error is a trap: the instance is lost.
    async fn serve(&self, accessor: &Accessor<StoreData>, call: Self::Call) -> Result<()>;
}

/// The sending end of a instance queue. Cheap to clone.
pub struct InstanceQueue<C> {
    calls: mpsc::Sender<C>,
}

impl<C> Clone for InstanceQueue<C> {
    fn clone(&self) -> Self {
        Self { calls: self.calls.clone() }
    }
}

impl<C: 'static> InstanceQueue<C> {
    /// Starts a instance queue on the current thread's local task set.
    pub(crate) fn start<F: Function<Call = C>>(engine: Engine, pre: F::Pre, platform: Platform) -> Self {
        let (instance_queue, queue) = Self::open();
        queue.serve::<F>(engine, pre, platform);
        instance_queue
    }

    /// Both ends of a instance queue that is yet to be started.
    pub(crate) fn open() -> (Self, Queue<C>) {
        let (calls, queue) = mpsc::channel(MAX_QUEUED);
        (Self { calls }, Queue(queue))
    }

    /// Makes a call and waits for its answer.
    pub(crate) async fn call<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Error> {
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.call_patiently(call)).await;
        // It is too slow.
        answer.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }

    /// Makes a call and waits for its answer for as long as the instance lives; one that is stuck does not live for long.
    pub(crate) async fn call_patiently<T>(&self, call: impl FnOnce(Reply<T>) -> C) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        if self.calls.try_send(call(reply)).is_err() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        // The instance was lost and took its calls along.
        answer.await.unwrap_or(Err(Error::Unavailable(RETRY_MS)))
    }
}

/// The receiving end of a instance queue.
pub(crate) struct Queue<C>(mpsc::Receiver<C>);

impl<C: 'static> Queue<C> {
    /// Serves the instance queue on the current thread's local task set.
    pub(crate) fn serve<F: Function<Call = C>>(self, engine: Engine, pre: F::Pre, platform: Platform) {
        let runner = InstanceRunner::<F> { engine, pre, platform };
        tokio::task::spawn_local(runner.keep(self.0));
    }
}

/// Makes one instance and lets it go again: whether a function can live at all.
pub(crate) async fn prove<F: Function>(engine: &Engine, pre: &F::Pre, platform: &Platform) -> Result<()> {
    let mut store = cell::<F>(engine, platform);
    let ticks = Arc::clone(&store.data().ticks);
    patient(&ticks, F::instantiate(pre, &mut store)).await?;
    Ok(())
}

/// A place for one instance, with its bounds.
fn cell<F: Function>(engine: &Engine, platform: &Platform) -> Store<StoreData> {
    let mut store = Store::new(engine, StoreData::new(platform.clone(), F::memory_limit(platform)));
    store.limiter(|cell| &mut cell.limits);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        if context.data().count_tick() > PATIENCE_TICKS {
            return Err(wasmtime::Error::msg("computed for too long without giving control back"));
        }
        Ok(UpdateDeadline::Continue(1))
    });
    store
}

/// Keeps one instance of a function warm, and replaces it when it is lost.
struct InstanceRunner<F: Function> {
    engine: Engine,
    pre: F::Pre,
    platform: Platform,
}

/// How an instance's life ended.
enum End {
    /// Nobody can call any more.
    Closed,
    /// A call did not come back.
    Stuck,
    /// It trapped, and took the calls it held along.
    Lost(wasmtime::Error),
    /// It could not even be made.
    Unborn(wasmtime::Error),
}

impl<F: Function> InstanceRunner<F> {
    async fn keep(self, mut queue: mpsc::Receiver<F::Call>) {
        loop {
            match self.live(&mut queue).await {
                End::Closed => return,
                End::Stuck => tracing::error!(function = F::NAME, "a call did not come back; replacing the instance"),
                End::Lost(trap) => tracing::error!(function = F::NAME, "replacing the instance: {trap:#}"),
                End::Unborn(error) => {
                    tracing::error!(function = F::NAME, "cannot make an instance: {error:#}");
                    // Whoever waits is told at once; whoever comes later may be luckier.
                    while queue.try_recv().is_ok() {}
                    tokio::time::sleep(BIRTH_PAUSE).await;
                }
            }
            self.platform.metrics.replaced(F::NAME);
        }
    }

    /// One instance's life.
    async fn live(&self, queue: &mut mpsc::Receiver<F::Call>) -> End {
        let mut store = cell::<F>(&self.engine, &self.platform);
        let ticks = Arc::clone(&store.data().ticks);
        let function = match patient(&ticks, F::instantiate(&self.pre, &mut store)).await {
            Ok(function) => function,
            Err(error) => return End::Unborn(error),
        };
        let watch = Watch { since: RefCell::default(), ticks: Arc::clone(&ticks) };
        let life = store.run_concurrent(async |accessor| self.feed(&function, accessor, queue, &watch).await);
        tokio::select! {
            end = patient(&ticks, life) => match end {
                Ok(Ok(())) => End::Closed,
                Ok(Err(trap)) | Err(trap) => End::Lost(trap),
            },
            () = watch.until_stuck() => End::Stuck,
        }
    }

    /// Hands calls over until there are no more, or until one of them traps.
    async fn feed(
        &self,
        function: &F,
        accessor: &Accessor<StoreData>,
        queue: &mut mpsc::Receiver<F::Call>,
        watch: &Watch,
    ) -> Result<()> {
        let mut waiting = VecDeque::new();
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < MAX_IN_FLIGHT
                && let Some(call) = waiting.pop_front()
            {
                in_flight.push(self.serve(function, accessor, call, watch));
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

    async fn serve(&self, function: &F, accessor: &Accessor<StoreData>, call: F::Call, watch: &Watch) -> Result<()> {
        let began = Instant::now();
        let place = watch.begin(began);
        let span = tracing::debug_span!("call", function = F::NAME);
        let served = function.serve(accessor, call).instrument(span).await;
        watch.end(place);
        if served.is_ok() {
            self.platform.metrics.called(F::NAME, began.elapsed());
        }
        served
    }
}

/// Watches over the calls in flight in one instance.
struct Watch {
    /// When each was handed over, by the order of handing over.
    since: RefCell<BTreeMap<u64, Instant>>,
    ticks: Arc<AtomicU32>,
}

impl Watch {
    fn begin(&self, at: Instant) -> u64 {
        let mut since = self.since.borrow_mut();
        let place = since.last_key_value().map_or(0, |(last, _)| last + 1);
        since.insert(place, at);
        place
    }

    /// A call came back, so the instance is making progress: it has its full patience for the next.
    fn end(&self, place: u64) {
        self.since.borrow_mut().remove(&place);
        self.ticks.store(0, Ordering::Relaxed);
    }

    /// Returns when the oldest call has been in flight for too long.
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

/// Runs an instance, giving it its full patience anew each time it gave control back.
async fn patient<T>(ticks: &AtomicU32, running: impl Future<Output = T>) -> T {
    let mut running = pin!(running);
    poll_fn(|context| {
        ticks.store(0, Ordering::Relaxed);
        running.as_mut().poll(context)
    })
    .await
}
