//! One call of `subscribe.feed`, as a stream.

use rollcall_contract::guest::wit::{subscribe as wit, types};
use rollcall_core::Error;
use wit_bindgen::{FutureReader, StreamReader, StreamResult};

/// A feed that was started.
pub(super) struct Running {
    updates: StreamReader<types::Update>,
    why: FutureReader<Result<(), types::Error>>,
}

impl Running {
    pub(super) async fn start(viewer: &Option<String>, users: &[String], since: Option<u64>) -> Result<Self, Error> {
        let (updates, why) = wit::feed(viewer.clone(), users.to_vec(), since).await?;
        Ok(Self { updates, why })
    }

    /// At most `most` updates; `None` if the stream ended.
    pub(super) async fn take(&mut self, most: usize) -> Option<Vec<types::Update>> {
        let (status, updates) = self.updates.read(Vec::with_capacity(most)).await;
        match status {
            StreamResult::Complete(_) => Some(updates),
            StreamResult::Dropped | StreamResult::Cancelled => None,
        }
    }

    /// Why the stream ended.
    pub(super) async fn ended(self) -> Option<types::Error> {
        drop(self.updates);
        self.why.await.err()
    }
}
