//! A stream of changes, for functions on hosts without a hub.

use std::sync::Arc;

use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, PresenceChange, PresenceChanges};

use super::{Topic, TopicStore, TopicSubscription};

/// When the caller may open another stream: at once, because messages arrive again.
const RETRY_MS: u32 = 1;

/// The changes of some users. The stream ends when messages may have been lost; the caller must then read the users again.
#[derive(Debug)]
pub struct NativeChanges {
    subscription: TopicSubscription,
    waiting: Vec<Arc<PresenceChange>>,
    missed: bool,
}

impl NativeChanges {
    pub(crate) async fn begin(topics: &dyn TopicStore, users: Vec<UserId>) -> Result<Self, Error> {
        if users.len() > MAX_BATCH {
            return Err(Error::TooMany(MAX_BATCH as u32));
        }
        let subscription = topics.subscription();
        let watched: Vec<Topic> = users.into_iter().map(Topic::User).collect();
        subscription.watch(&watched).await?;
        Ok(Self { subscription, waiting: Vec::new(), missed: false })
    }
}

impl PresenceChanges for NativeChanges {
    async fn next(&mut self) -> Option<PresenceChange> {
        while self.waiting.is_empty() && !self.missed {
            let update = self.subscription.next().await;
            (self.waiting, self.missed) = (update.changes, update.missed);
        }
        let change = self.waiting.pop()?;
        Some(Arc::unwrap_or_clone(change))
    }

    async fn end(self) -> Result<(), Error> {
        if self.missed { Err(Error::Unavailable(RETRY_MS)) } else { Ok(()) }
    }
}
