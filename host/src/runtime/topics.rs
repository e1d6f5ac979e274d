//! The contract's `topics` (changes and typing), over the store chosen at start.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rollcall_contract::host::convert::{all, each, replies};
use rollcall_contract::host::wit;
use rollcall_core::{ConversationId, Error};
use rollcall_functions::capabilities::{MAX_BATCH, PresenceChange};
use rollcall_store::{Topic, TopicSubscription, TopicUpdate};
use tokio::sync::oneshot;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, FutureReader, StreamProducer, StreamReader, StreamResult, VecBuffer};

use super::platform::{Access, Capabilities, StoreData, parsed, platform, timed};

/// The retry hint after changes may have been lost. The subscription works again by then.
const RETRY_MS: u32 = 100;

/// Changes as they come, and why they ended.
type ChangeStream = (StreamReader<wit::types::PresenceChange>, FutureReader<Result<(), wit::types::Error>>);

impl wit::topics::Host for StoreData {}

impl<T: 'static> wit::topics::HostWithStore<T> for Capabilities {
    async fn watch(accessor: &Access<T>, users: Vec<String>) -> Result<ChangeStream, wit::types::Error> {
        if users.len() > MAX_BATCH {
            return Err(wit::types::Error::TooMany(MAX_BATCH as u32));
        }
        let platform = platform(accessor);
        let topics: Vec<Topic> = parsed(users)?.into_iter().map(Topic::User).collect();
        let subscription = platform.topics.subscription();
        timed(&platform, "watch", subscription.watch(&topics)).await?;
        let (end, why) = oneshot::channel();
        // A stream that is dropped before it ended has no reason.
        let why = async { Ok::<_, wasmtime::Error>(why.await.unwrap_or(Ok(()))) };
        let producer =
            ChangeProducer { subscription: Arc::new(subscription), waiting: None, arrived: Vec::new(), end: Some(end) };
        let pair = accessor.with(|mut access| {
            let changes = StreamReader::new(&mut access, producer)?;
            Ok((changes, FutureReader::new(&mut access, why)?))
        });
        pair.map_err(|error: wasmtime::Error| wit::types::Error::Other(format!("{error:#}")))
    }

    async fn set_typing(
        accessor: &Access<T>,
        signals: Vec<wit::types::TypingSignal>,
    ) -> Result<Vec<Result<(), wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        Ok(replies(timed(&platform, "set_typing", platform.topics.set_typing(all(signals)?)).await?))
    }

    async fn typists(
        accessor: &Access<T>,
        conversations: Vec<String>,
    ) -> Result<Vec<Result<Vec<wit::types::Typist>, wit::types::Error>>, wit::types::Error> {
        let platform = platform(accessor);
        let conversations = conversations.into_iter().map(ConversationId::parse).collect::<Result<_, _>>()?;
        let found = timed(&platform, "typists", platform.topics.typists(conversations)).await?;
        Ok(found.into_iter().map(|typists| Ok(each(typists?))).collect())
    }
}

/// The source of a component's stream. While the component does not read, changes wait in the subscription's mailbox, which
/// keeps the newest per user. Dropping the stream drops the subscription.
struct ChangeProducer {
    subscription: Arc<TopicSubscription>,
    /// Kept while a read is cancelled, so that its result is not lost.
    waiting: Option<Pin<Box<dyn Future<Output = TopicUpdate> + Send>>>,
    arrived: Vec<wit::types::PresenceChange>,
    end: Option<oneshot::Sender<Result<(), wit::types::Error>>>,
}

impl ChangeProducer {
    /// Ready when changes arrived, or with `false` if some may have been lost.
    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while self.arrived.is_empty() {
            let subscription = &self.subscription;
            let waiting = self.waiting.get_or_insert_with(|| {
                let subscription = Arc::clone(subscription);
                Box::pin(async move { subscription.next().await })
            });
            let update = ready!(waiting.as_mut().poll(context));
            self.waiting = None;
            if update.missed {
                return Poll::Ready(false);
            }
            self.arrived = update.changes.iter().map(|change| PresenceChange::clone(change).into()).collect();
        }
        Poll::Ready(true)
    }
}

impl<D: 'static> StreamProducer<D> for ChangeProducer {
    type Item = wit::types::PresenceChange;
    type Buffer = VecBuffer<wit::types::PresenceChange>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, Self::Item, Self::Buffer>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        match self.poll_arrival(context) {
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
            Poll::Ready(false) => {
                if let Some(end) = self.end.take() {
                    let _ = end.send(Err(Error::Unavailable(RETRY_MS).into()));
                }
                Poll::Ready(Ok(StreamResult::Dropped))
            }
            Poll::Ready(true) => {
                // A read of zero items only asks whether there are some.
                if destination.remaining(store) != Some(0) {
                    destination.set_buffer(mem::take(&mut self.arrived).into());
                }
                Poll::Ready(Ok(StreamResult::Completed))
            }
        }
    }
}
