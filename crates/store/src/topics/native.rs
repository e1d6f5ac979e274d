//! A stream of changes, for functions on hosts without a hub.

use std::sync::Arc;

use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::{Change, Changes, MAX_BATCH};

use super::{Topic, TopicSubscription, Topics};

/// When the caller may open another stream: at once, because messages arrive again.
const RETRY_MS: u32 = 1;

/// The changes of some users. The stream ends when messages may have been lost; the caller must then read the users again.
#[derive(Debug)]
pub struct NativeChanges {
    subscription: TopicSubscription,
    waiting: Vec<Arc<Change>>,
    missed: bool,
}

impl NativeChanges {
    pub(crate) async fn begin(topics: &dyn Topics, users: Vec<UserId>) -> Result<Self, Error> {
        if users.len() > MAX_BATCH {
            return Err(Error::TooMany(MAX_BATCH as u32));
        }
        let subscription = topics.subscription();
        let watched: Vec<Topic> = users.into_iter().map(Topic::Person).collect();
        subscription.watch(&watched).await?;
        Ok(Self { subscription, waiting: Vec::new(), missed: false })
    }
}

impl Changes for NativeChanges {
    async fn next(&mut self) -> Option<Change> {
        while self.waiting.is_empty() && !self.missed {
            let news = self.subscription.next().await;
            (self.waiting, self.missed) = (news.changes, news.missed);
        }
        let change = self.waiting.pop()?;
        Some(Arc::unwrap_or_clone(change))
    }

    async fn end(self) -> Result<(), Error> {
        if self.missed { Err(Error::Unavailable(RETRY_MS)) } else { Ok(()) }
    }
}
