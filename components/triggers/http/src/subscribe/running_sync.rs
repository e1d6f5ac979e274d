//! One call of `subscribe.feed`, pulled while nothing else of the stream can continue.

use rollcall_contract::guest::wit::{subscribe as wit, types};
use rollcall_core::Error;
use rollcall_wasi::idle;

/// A feed that was started.
pub(super) struct Running {
    updates: wit::UpdateStream,
    why: Option<types::Error>,
}

impl Running {
    pub(super) async fn start(viewer: &Option<String>, users: &[String], since: Option<u64>) -> Result<Self, Error> {
        Ok(Self { updates: wit::feed(viewer.as_deref(), users, since)?, why: None })
    }

    /// Waits for updates; `None` if the stream ended. The feed says how many it returns at once.
    ///
    /// A call blocks the instance. So it is made when all that is left to wait for are timers, and lasts until the first of them.
    pub(super) async fn take(&mut self, _most: usize) -> Option<Vec<types::Update>> {
        loop {
            let wait_ms = u32::try_from(idle().await.as_millis()).unwrap_or(u32::MAX);
            match self.updates.next(wait_ms) {
                Ok(updates) if updates.is_empty() => {}
                Ok(updates) => return Some(updates),
                Err(why) => {
                    self.why = Some(why);
                    return None;
                }
            }
        }
    }

    /// Why the stream ended.
    pub(super) async fn ended(self) -> Option<types::Error> {
        self.why
    }
}
