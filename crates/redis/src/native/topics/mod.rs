//! Topics in Redis: what any host publishes arrives at every host that watches.
//!
//! Every master gets one connection for subscriptions ([`Subscriber`](subscriber::Subscriber)); a topic is subscribed
//! to once, however many watchers it has here. The connections are opened with the first subscription.

mod cluster_subscriber;
mod push_handler;
mod subscriber;
mod typing_debounce;

use std::sync::{Arc, OnceLock};

use rollcall_core::{ConversationId, Error, Time, UserId};
use rollcall_functions::capabilities::{Typing, TypingSignal, Typist};
use tokio::runtime::Handle;

use super::{NativeRedis, NativeTransport, Task};
use rollcall_store::StoreFuture;
use rollcall_store::topics::{TopicSource, TopicStore, TopicSubscription, WATCHERS_TTL};

use cluster_subscriber::ClusterSubscriber;
use typing_debounce::TypingDebounce;

/// The tasks for topics. They run on the runtime that the store was opened on.
pub(super) struct TopicTasks {
    runtime: Handle,
    subscribers: OnceLock<(Arc<ClusterSubscriber>, Task)>,
    debounce: Arc<TypingDebounce>,
    flushing: OnceLock<Task>,
}

impl TopicTasks {
    /// Uses the runtime that it is called on.
    pub(super) fn new() -> Self {
        Self {
            runtime: Handle::current(),
            subscribers: OnceLock::new(),
            debounce: Arc::default(),
            flushing: OnceLock::new(),
        }
    }

    fn subscribers(&self, inner: &Arc<NativeTransport>) -> &Arc<ClusterSubscriber> {
        let (subscribers, _) = self.subscribers.get_or_init(|| {
            let subscribers = ClusterSubscriber::new(Arc::clone(inner), self.runtime.clone());
            let following = Task(self.runtime.spawn(Arc::clone(&subscribers).follow()));
            (subscribers, following)
        });
        subscribers
    }
}

impl Drop for TopicTasks {
    fn drop(&mut self) {
        // Subscriptions may outlive the store; the subscribers must not.
        if let Some((subscribers, _)) = self.subscribers.get() {
            subscribers.close();
        }
    }
}

impl TopicStore for NativeRedis {
    fn subscription(&self) -> TopicSubscription {
        let subscribers = self.topic_tasks.subscribers(&self.native);
        TopicSubscription::new(Arc::clone(subscribers.dispatcher()), Arc::clone(subscribers) as Arc<dyn TopicSource>)
    }
    fn set_typing(&self, signals: Vec<TypingSignal>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(async move { self.write_signals(&signals).await })
    }
    fn typists(&self, conversations: Vec<ConversationId>) -> StoreFuture<'_, Vec<Result<Vec<Typist>, Error>>> {
        Box::pin(self.store.typists(conversations))
    }
    fn count_watchers(&self, worker: &str, counts: Vec<(UserId, u32)>) -> StoreFuture<'_, Vec<u64>> {
        let worker = worker.to_owned();
        Box::pin(async move { self.store.sum_watchers(&worker, &counts, WATCHERS_TTL).await })
    }
    fn now(&self) -> Time {
        self.native.shared.time.now()
    }
}
