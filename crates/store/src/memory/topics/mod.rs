//! Topics of the embedded store. A publication is delivered within the commit, because everything is in one process.
//!
//! Create it before the store and pass its publish hook: `Options { on_publish: Some(topics.publish_hook()), .. }`,
//! with the same clock. It needs no async runtime: it has one thread, for debounced typing signals, which the first of
//! them starts.

mod typing;
mod watchers;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rollcall_core::{ConversationId, Error, Published, Span, Time, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, TypingSignal, Typist, bounded};

use super::PublishHook;
use crate::StoreFuture;
use crate::clock::Clock;
use crate::topics::debounce::{Debounce, TypingKey};
use crate::topics::dispatcher::Dispatcher;
use crate::topics::{Topic, TopicSource, TopicStore, TopicSubscription};

use typing::TypingRecords;
use watchers::Watchers;

/// The most keys that are flushed at once, so that callers do not wait long for the lock.
const MAX_FLUSH: usize = 1024;

/// Topics of the embedded store. Clones share them.
#[derive(Clone)]
pub struct LocalTopics(Arc<Inner>);

struct Inner {
    dispatcher: Arc<Dispatcher>,
    records: TypingRecords,
    watchers: Watchers,
    clock: Clock,
    timer: Arc<Timer>,
}

/// The schedule of the thread.
#[derive(Default)]
struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimerState {
    debounce: Debounce,
    runs: bool,
    ended: bool,
}

impl LocalTopics {
    /// Topics without subscriptions, on the store's clock.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner {
            dispatcher: Arc::new(Dispatcher::new()),
            records: TypingRecords::new(),
            watchers: Watchers::default(),
            clock,
            timer: Arc::default(),
        }))
    }

    /// The store's publish hook, which publishes to these topics.
    pub fn publish_hook(&self) -> PublishHook {
        let dispatcher = Arc::clone(&self.0.dispatcher);
        Arc::new(move |user: &UserId, published: &Published| dispatcher.publish(user, published))
    }
}

impl Inner {
    fn record(self: &Arc<Self>, signal: TypingSignal) {
        let key = (signal.conversation, signal.user);
        if let Some(after) = self.records.signal(&key, signal.lasts, &self.clock, &self.dispatcher) {
            self.schedule_flush(key, after);
        }
    }

    fn flush(self: &Arc<Self>, key: TypingKey) {
        if let Some(after) = self.records.flush(&key, &self.clock, &self.dispatcher) {
            self.schedule_flush(key, after);
        }
    }

    fn schedule_flush(self: &Arc<Self>, key: TypingKey, after: Span) {
        let mut state = self.timer.state.lock();
        let is_first = state.debounce.add(key, Instant::now(), Duration::from_millis(after.0));
        if !state.runs {
            state.runs = self.start_thread();
        } else if is_first {
            self.timer.changed.notify_one();
        }
    }

    /// Returns false if the thread could not be started; the next debounced signal tries again.
    fn start_thread(self: &Arc<Self>) -> bool {
        let (timer, topics) = (Arc::clone(&self.timer), Arc::downgrade(self));
        let started = std::thread::Builder::new().name("typing".to_owned()).spawn(move || timer.run(&topics));
        started
            .inspect_err(|error| tracing::error!(%error, "Cannot start the typing thread; the next signal tries again"))
            .is_ok()
    }
}

impl Timer {
    fn run(&self, topics: &Weak<Inner>) {
        while let Some(keys) = self.wait() {
            let Some(topics) = topics.upgrade() else { return };
            keys.into_iter().for_each(|key| topics.flush(key));
        }
    }

    /// Waits until a flush is due; `None` once the topics are dropped.
    fn wait(&self) -> Option<Vec<TypingKey>> {
        let mut state = self.state.lock();
        while !state.ended {
            let now = Instant::now();
            let due = state.debounce.take(now, MAX_FLUSH);
            if !due.is_empty() {
                return Some(due);
            }
            match state.debounce.next() {
                Some(next) => {
                    self.changed.wait_until(&mut state, next);
                }
                None => self.changed.wait(&mut state),
            }
        }
        None
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timer.state.lock().ended = true;
        self.timer.changed.notify_one();
    }
}

impl TopicSource for Inner {
    fn subscribe(&self, _topics: Vec<Topic>) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn release(&self, _topics: Vec<Topic>) {}
    fn received_until(&self) -> Time {
        self.clock.now()
    }
}

impl TopicStore for LocalTopics {
    fn subscription(&self) -> TopicSubscription {
        TopicSubscription::new(Arc::clone(&self.0.dispatcher), Arc::clone(&self.0) as Arc<dyn TopicSource>)
    }
    fn set_typing(&self, signals: Vec<TypingSignal>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(async move {
            bounded(signals.len(), MAX_BATCH)?;
            let outcomes = vec![Ok(()); signals.len()];
            signals.into_iter().for_each(|signal| self.0.record(signal));
            Ok(outcomes)
        })
    }
    fn typists(&self, conversations: Vec<ConversationId>) -> StoreFuture<'_, Vec<Result<Vec<Typist>, Error>>> {
        Box::pin(async move {
            bounded(conversations.len(), MAX_BATCH)?;
            let now = self.0.clock.now();
            Ok(conversations.iter().map(|conversation| Ok(self.0.records.typists(conversation, now))).collect())
        })
    }
    fn count_watchers(&self, worker: &str, counts: Vec<(UserId, u32)>) -> StoreFuture<'_, Vec<u64>> {
        let worker = worker.to_owned();
        Box::pin(async move { Ok(self.0.watchers.count(&worker, counts, self.0.clock.now())) })
    }
    fn now(&self) -> Time {
        self.0.clock.now()
    }
}

impl fmt::Debug for LocalTopics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTopics").finish_non_exhaustive()
    }
}

/// A collection of up to this many entries is never pruned.
const MIN_PRUNE_THRESHOLD: usize = 256;

/// When to prune expired entries from a collection: whenever it has doubled since the last time. So pruning costs as much
/// as adding, and expired entries take no more memory than live ones.
#[derive(Debug)]
struct PruneThreshold {
    above: usize,
}

impl Default for PruneThreshold {
    fn default() -> Self {
        Self { above: MIN_PRUNE_THRESHOLD }
    }
}

impl PruneThreshold {
    fn is_exceeded_by(&self, count: usize) -> bool {
        count > self.above
    }

    fn reset(&mut self, left: usize) {
        self.above = (left * 2).max(MIN_PRUNE_THRESHOLD);
    }
}
