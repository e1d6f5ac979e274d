//! What the embedded store needs to survive a restart: choices are stored as they are made, everything else at shutdown.

use rollcall_core::{Choice, Session, Time, UserId};

use crate::StoreFuture;

/// A user's choice to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChoice {
    /// The user.
    pub user: UserId,
    /// The choice; `None` deletes it, because it has no effect any more.
    pub choice: Option<Choice>,
    /// The last seen that was published when the choice was made. An invisible user is not archived while a device lives;
    /// without this, a killed process would make them differ from users who are gone.
    pub last_seen: Option<Time>,
}

/// Stores choices, so that an invisible user does not turn visible when the process is killed.
pub trait ChoiceStore: Send + Sync + 'static {
    /// Stores one choice, durably once this answers.
    ///
    /// The call itself queues the write, not the await, and writes take effect in the order of the calls: the store calls
    /// this while it holds the user's lock, so that the stored order is the committed one. So the call must not block.
    fn store(&self, choice: StoredChoice) -> StoreFuture<'static, ()>;
}

/// What an earlier run saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SavedSessions {
    /// When the earlier run shut down; `None` if it was killed, and only choices are left.
    pub at: Option<Time>,
    /// The sessions, in no particular order, one per user.
    pub sessions: Vec<(UserId, Session)>,
}
