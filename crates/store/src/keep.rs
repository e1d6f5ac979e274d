//! What the embedded store needs in order to survive a restart: somebody who keeps people's choices as they are made,
//! and everything else when the process ends in good order.

use rollcall_core::{Choice, Session, Time, UserId};

use crate::Answer;

/// A person's setting to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Whose.
    pub user: UserId,
    /// The setting; none: forget it, it means nothing any more.
    pub choice: Option<Choice>,
    /// The last time seen, as it was told when the choice was made. One who is invisible is not archived while a device
    /// of theirs lives; without this, a kill would tell them from those who are gone.
    pub last_seen: Option<Time>,
}

/// Keeps people's choices, so that nobody who is invisible turns visible because a process was killed.
pub trait Keeper: Send + Sync + 'static {
    /// Keeps one choice, durably once this answers.
    ///
    /// The work is queued by the call, not by awaiting the answer, and what is queued first takes effect first: the
    /// store calls this while it holds the person's lock, so that what is kept follows what was committed. For the
    /// same reason the call itself must not wait.
    fn keep(&self, kept: Kept) -> Answer<'static, ()>;
}

/// What an earlier run left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// When the earlier run ended in good order; none: it was killed, and only choices are left of it.
    pub at: Option<Time>,
    /// What is left, in no particular order; nobody more than once.
    pub sessions: Vec<(UserId, Session)>,
}
