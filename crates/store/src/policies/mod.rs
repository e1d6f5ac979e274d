//! The contract's `policy`, natively: restrictions, blocks, contacts and privacy settings.

pub(crate) mod encoding;
pub mod files;
mod local_copy;

use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, PolicyPage};
use tokio::sync::watch;

use crate::StoreFuture;

pub use local_copy::LocalCopy;

/// A store of policy. Every change is durable once it is answered.
pub trait PolicyStore: Send + Sync + 'static {
    /// The exact relations of a viewer to up to 10,000 subjects, in the order asked.
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>>;
    /// A user's own settings: privacy, contacts and blocks.
    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings>;
    /// One page of a snapshot of everything; the first is page 0.
    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage>;
    /// What changed since the cursor, about `limit` changes at most. An empty cursor asks for the newest cursor.
    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince>;
    /// Makes up to 1,024 changes, in order; the outcome of each.
    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>>;
    /// Changes when policy may have changed, here or on another host. A hint that may be lost: a reader also polls.
    fn invalidated(&self) -> watch::Receiver<u64>;
}
