//! Changes one by one, as functions take them that have no hub.

use std::sync::Arc;

use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::{Change, Changes, MAX_BATCH};

use super::{Topic, TopicSubscription, Topics};

/// When whoever lost the stream may open another: at once, because listening works again.
const AGAIN_MS: u32 = 1;

/// What changes about some people. It ends when something may have been lost: then whoever reads it must read them anew.
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
        let people: Vec<Topic> = users.into_iter().map(Topic::Person).collect();
        subscription.watch(&people).await?;
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
        if self.missed { Err(Error::Unavailable(AGAIN_MS)) } else { Ok(()) }
    }
}
