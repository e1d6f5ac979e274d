//! Who restricted, blocked, listed whom, and what each person lets others see: the contract's `policy`, natively.

mod copy;
pub mod files;
pub(crate) mod wire;

use rollcall_core::policy::{Change, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, Page};
use tokio::sync::watch;

use crate::Answer;

pub use copy::Copied;

/// Where policy is kept. Everything is durable once it is answered.
pub trait Policies: Send + Sync + 'static {
    /// How one viewer stands to these subjects, exactly, in the order asked. At most 10,000.
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>>;
    /// What a person set for themselves.
    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings>;
    /// One page of everything; the first is 0.
    fn snapshot(&self, page: u32) -> Answer<'_, Page>;
    /// What changed since the cursor, about so many changes at most. An empty cursor asks where the logs stand.
    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, ChangesSince>;
    /// Makes changes, in order; how each ended. At most 1,024.
    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>>;
    /// Moves when something may have changed, here or elsewhere: a hint that may be lost, so whoever follows also looks by
    /// itself from time to time.
    fn invalidated(&self) -> watch::Receiver<u64>;
}
