//! The changes of the watched users, from `subscribe.feed`.

use std::time::Duration;

use rollcall_contract::guest::convert::all;
use rollcall_core::{Error, UserId};
use rollcall_functions::subscribe::Update;
use rollcall_wasi::sleep;

use super::running::Running;
use crate::{text, texts};

/// How many updates are read at once. Until then the feed holds the newest of each user.
const MAX_TAKEN: usize = 64;

/// Bounds on the pause before a feed that ended is started again, whatever it asks for: not at once, so that a feed that keeps
/// ending does not spin, and not late, because changes are delayed by it.
const PAUSE_MS: (u32, u32) = (200, 2000);

/// A feed. When it ends it is started again from the newest version.
pub(super) struct Feed {
    viewer: Option<String>,
    users: Vec<String>,
    /// Where to resume.
    version: u64,
    running: Option<Running>,
}

impl Feed {
    /// Starts the feed and reads the presence of every user, each once.
    pub(super) async fn begin(viewer: Option<&UserId>, users: &[UserId]) -> Result<(Self, Vec<Update>), Error> {
        let mut feed = Self { viewer: viewer.map(text), users: texts(users), version: 0, running: None };
        feed.run(None).await?;
        let mut all_users = Vec::with_capacity(users.len());
        // A feed without `since` begins with every user, in any number of parts.
        while all_users.len() < users.len() {
            match feed.take(users.len() - all_users.len()).await? {
                Some(updates) => all_users.extend(updates),
                None => return Err(feed.ended().await),
            }
        }
        Ok((feed, all_users))
    }

    /// The next updates. Fails if the feed cannot be started again.
    pub(super) async fn next(&mut self) -> Result<Vec<Update>, Error> {
        loop {
            if let Some(updates) = self.take(MAX_TAKEN).await? {
                return Ok(updates);
            }
            match self.ended().await {
                Error::Unavailable(after_ms) => {
                    let (least, most) = PAUSE_MS;
                    sleep(Duration::from_millis(after_ms.clamp(least, most).into())).await;
                    self.run(Some(self.version)).await?;
                }
                error => return Err(error),
            }
        }
    }

    async fn run(&mut self, since: Option<u64>) -> Result<(), Error> {
        self.running = Some(Running::start(&self.viewer, &self.users, since).await?);
        Ok(())
    }

    /// At most `most` updates at once; `None` if the stream ended.
    async fn take(&mut self, most: usize) -> Result<Option<Vec<Update>>, Error> {
        let Some(running) = &mut self.running else { return Ok(None) };
        let Some(updates) = running.take(most).await else { return Ok(None) };
        let updates: Vec<Update> = all(updates)?;
        self.version = updates.iter().map(|update| update.version).fold(self.version, u64::max);
        Ok(Some(updates))
    }

    /// Why the stream ended. Without a reason it may be started again at once.
    async fn ended(&mut self) -> Error {
        match self.running.take() {
            Some(running) => running.ended().await.map_or(Error::Unavailable(0), Error::from),
            None => Error::Unavailable(0),
        }
    }
}
