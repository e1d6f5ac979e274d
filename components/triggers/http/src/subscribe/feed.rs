//! What changes of the people whom a stream watches, as `subscribe` feeds it.

use std::time::Duration;

use rollcall_core::{Error, UserId};
use wasip3::wit_bindgen::{FutureReader, StreamReader, StreamResult};

use crate::clock::wait;
use crate::codec::{Update, error_in, names_out, update_in, viewer_out};
use crate::wit::subscribe as wit;
use crate::wit::types;

/// How many changes are taken at once; a feed holds the newest of each person until they are.
const MAX_TAKEN: usize = 64;

/// How long before a feed that ended is begun again, whatever it says itself: not at once, or one that keeps ending would
/// be all that is done; and not late, for what changes meanwhile is waited for.
const PAUSE_MS: (u32, u32) = (200, 2000);

/// A feed. It is begun anew when it ends, and goes on from what was heard.
pub(super) struct Feed {
    viewer: Option<String>,
    users: Vec<String>,
    /// From where to be fed again.
    heard: u64,
    running: Option<Running>,
}

/// One call of the function.
struct Running {
    updates: StreamReader<wit::Update>,
    why: FutureReader<Result<(), types::Error>>,
}

impl Feed {
    /// Begins to be fed; answers everybody as they stand, each once.
    pub(super) async fn begin(viewer: Option<&UserId>, users: &[UserId]) -> Result<(Self, Vec<Update>), Error> {
        let mut feed = Self { viewer: viewer_out(viewer), users: names_out(users), heard: 0, running: None };
        feed.run(None).await?;
        let mut everybody = Vec::with_capacity(users.len());
        // A feed from nowhere begins with everybody, in as many parts as it likes.
        while everybody.len() < users.len() {
            match feed.take(users.len() - everybody.len()).await? {
                Some(updates) => everybody.extend(updates),
                None => return Err(feed.ended().await),
            }
        }
        Ok((feed, everybody))
    }

    /// What changed next. The error is why nothing can be had any more.
    pub(super) async fn next(&mut self) -> Result<Vec<Update>, Error> {
        loop {
            if let Some(updates) = self.take(MAX_TAKEN).await? {
                return Ok(updates);
            }
            match self.ended().await {
                Error::Unavailable(after_ms) => {
                    let (least, most) = PAUSE_MS;
                    wait(Duration::from_millis(after_ms.clamp(least, most).into())).await;
                    self.run(Some(self.heard)).await?;
                }
                error => return Err(error),
            }
        }
    }

    async fn run(&mut self, since: Option<u64>) -> Result<(), Error> {
        let (updates, why) = wit::feed(self.viewer.clone(), self.users.clone(), since).await.map_err(error_in)?;
        self.running = Some(Running { updates, why });
        Ok(())
    }

    /// At most so many updates; none: there are no more.
    async fn take(&mut self, most: usize) -> Result<Option<Vec<Update>>, Error> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let (status, updates) = running.updates.read(Vec::with_capacity(most)).await;
        if let StreamResult::Dropped | StreamResult::Cancelled = status {
            return Ok(None);
        }
        let updates: Vec<Update> = updates.into_iter().map(update_in).collect::<Result<_, _>>()?;
        self.heard = updates.iter().map(|update| update.version).fold(self.heard, u64::max);
        Ok(Some(updates))
    }

    /// Why there are no more. One that ended without a reason may be begun again at once.
    async fn ended(&mut self) -> Error {
        match self.running.take() {
            Some(Running { updates, why }) => {
                drop(updates);
                why.await.err().map_or(Error::Unavailable(0), error_in)
            }
            None => Error::Unavailable(0),
        }
    }
}
