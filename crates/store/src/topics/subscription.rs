//! A subscription: the topics it watches, and the mailbox of what arrived.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollcall_core::{Error, Time};

use super::dispatcher::Dispatcher;
use super::mailbox::Mailbox;
use super::{Topic, TopicSource, TopicUpdate};

/// A subscription to topics. Dropping it unwatches all of them.
pub struct TopicSubscription {
    mailbox: Arc<Mailbox>,
    dispatcher: Arc<Dispatcher>,
    source: Arc<dyn TopicSource>,
    watched: Mutex<HashMap<Topic, WatchState>>,
    received_until_ms: AtomicU64,
}

/// A topic that is watched, or that a call of [`TopicSubscription::watch`] waits for.
#[derive(Debug, Default)]
struct WatchState {
    /// Whether the source confirmed that messages arrive.
    confirmed: bool,
    /// How many calls wait for the confirmation.
    pending: u32,
}

/// The topics that a call of [`TopicSubscription::watch`] waits for. Its drop ends the call, also if the call is
/// cancelled.
struct PendingWatch<'a> {
    subscription: &'a TopicSubscription,
    topics: &'a [Topic],
    confirmed: bool,
}

impl TopicSubscription {
    /// A subscription that watches nothing yet.
    pub fn new(dispatcher: Arc<Dispatcher>, source: Arc<dyn TopicSource>) -> Self {
        let (mailbox, watched) = (Arc::default(), Mutex::default());
        Self { mailbox, dispatcher, source, watched, received_until_ms: AtomicU64::new(0) }
    }

    /// Also watches these topics. Returns once everything published from now on will arrive. Watching a topic again has no
    /// effect. On an error none of the new topics is watched.
    pub async fn watch(&self, topics: &[Topic]) -> Result<(), Error> {
        if topics.is_empty() {
            return Ok(());
        }
        let mut pending = self.begin_watch(topics);
        self.source.subscribe(topics.to_vec()).await?;
        pending.confirmed = true;
        Ok(())
    }

    /// Stops watching these topics: nothing about them arrives from now on.
    pub fn unwatch(&self, topics: &[Topic]) {
        let mut watched = self.watched.lock();
        let gone: Vec<Topic> = topics.iter().filter(|topic| watched.remove(topic).is_some()).cloned().collect();
        gone.iter().for_each(|topic| self.dispatcher.unsubscribe(topic, &self.mailbox));
        drop(watched);
        self.release(gone);
    }

    /// Waits for an update and returns everything that arrived, conflated: the newest version of each user and the
    /// newest signal of each typist. So memory is bounded by what is watched, however late this is called.
    pub async fn next(&self) -> TopicUpdate {
        self.mailbox.next().await
    }

    /// The instant of the store's clock before which everything published on the watched topics has arrived here, or
    /// [`TopicUpdate::missed`] has. It never goes back, and does not advance during an outage.
    ///
    /// It is compared with the instant of a publication, not with its version: a version is the instant of the decision, a
    /// round trip or more before, so that a version older than this may still arrive.
    pub fn received_until(&self) -> Time {
        let now = self.source.received_until();
        Time(self.received_until_ms.fetch_max(now.0, Ordering::SeqCst).max(now.0))
    }

    /// Subscribes to the topics at the dispatcher.
    fn begin_watch<'a>(&'a self, topics: &'a [Topic]) -> PendingWatch<'a> {
        let mut watched = self.watched.lock();
        for topic in topics {
            let known = match watched.get_mut(topic) {
                Some(known) => known,
                None => {
                    self.dispatcher.subscribe(topic, &self.mailbox);
                    watched.entry(topic.clone()).or_default()
                }
            };
            known.pending += 1;
        }
        PendingWatch { subscription: self, topics, confirmed: false }
    }

    fn release(&self, topics: Vec<Topic>) {
        if !topics.is_empty() {
            self.source.release(topics);
        }
    }
}

impl Drop for PendingWatch<'_> {
    fn drop(&mut self) {
        let mut watched = self.subscription.watched.lock();
        let mut gone = Vec::new();
        for topic in self.topics {
            // The topic was unwatched in the meantime.
            let Some(known) = watched.get_mut(topic) else { continue };
            known.pending = known.pending.saturating_sub(1);
            known.confirmed |= self.confirmed;
            if !known.confirmed && known.pending == 0 {
                watched.remove(topic);
                self.subscription.dispatcher.unsubscribe(topic, &self.subscription.mailbox);
                gone.push(topic.clone());
            }
        }
        drop(watched);
        self.subscription.release(gone);
    }
}

impl Drop for TopicSubscription {
    fn drop(&mut self) {
        let topics: Vec<Topic> = self.watched.get_mut().drain().map(|(topic, _)| topic).collect();
        topics.iter().for_each(|topic| self.dispatcher.unsubscribe(topic, &self.mailbox));
        self.release(topics);
    }
}

impl fmt::Debug for TopicSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicSubscription").field("watched", &self.watched.lock().len()).finish_non_exhaustive()
    }
}
