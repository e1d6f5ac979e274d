//! Policy, in the same file as the archive.
//!
//! There is one log of changes, so a cursor is one number. Each row names the row before it. A reader whose row is
//! missing, because it was trimmed or because the file was restored from a backup, finds the chain broken and gets a gap.
//! Changes that another process makes to the file are seen by reads, but cause no invalidation here.

mod apply;
mod follow;
mod log;
mod numbers;
mod relations;
mod snapshot;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::SystemTime;

use rollcall_core::policy::{MAX_SUBJECTS, PolicyChange, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, MAX_BATCH, OwnSettings, PolicyPage, bounded};
use tokio::sync::watch;

use super::SqliteArchive;
use super::worker::Worker;
use crate::StoreFuture;
use crate::policies::PolicyStore;

/// The default number of log rows to keep. At a hundred changes a second, as in a large service, a reader may be away for
/// eight minutes. A row takes about 100 bytes, so the log takes about 5 MB.
pub const LOG_KEPT: u64 = 50_000;

/// Policy in a file. Clones share the file with the archive; dropping the last of them closes it.
#[derive(Debug, Clone)]
pub struct SqlitePolicies {
    /// In the order in which they are closed: see [`SqliteArchive`].
    reader: Arc<Worker>,
    writer: Arc<Worker>,
    shared: Arc<Shared>,
    log_kept: u64,
}

/// What all handles to one file share.
#[derive(Debug)]
pub(super) struct Shared {
    invalidated: watch::Sender<u64>,
    salt: u64,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { invalidated: watch::Sender::new(0), salt: RandomState::new().hash_one(0_u8) }
    }
}

impl SqliteArchive {
    /// The policy in this file.
    pub fn policies(&self) -> SqlitePolicies {
        self.policies_keeping(LOG_KEPT)
    }

    /// As [`Self::policies`], with a log of `log_kept` rows.
    pub fn policies_keeping(&self, log_kept: u64) -> SqlitePolicies {
        let (reader, writer) = (Arc::clone(&self.reader), Arc::clone(&self.writer));
        SqlitePolicies { reader, writer, shared: Arc::clone(&self.shared), log_kept }
    }
}

impl PolicyStore for SqlitePolicies {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        Box::pin(async move {
            bounded(subjects.len(), MAX_SUBJECTS)?;
            self.reader.ask(move |connection| relations::relations(connection, viewer.as_ref(), &subjects)).await
        })
    }

    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        Box::pin(self.reader.ask(move |connection| relations::settings_of(connection, &user)))
    }

    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        let salt = self.shared.salt;
        Box::pin(self.reader.ask(move |connection| snapshot::page(connection, page, salt)))
    }

    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        Box::pin(self.reader.ask(move |connection| follow::since(connection, &cursor, limit)))
    }

    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        Box::pin(async move {
            bounded(changes.len(), MAX_BATCH)?;
            let (now_us, kept) = (now_us(), self.log_kept);
            let applied = self.writer.ask(move |connection| apply::apply(connection, &changes, now_us, kept)).await?;
            if applied.changed {
                self.shared.invalidated.send_modify(|count| *count += 1);
            }
            Ok(applied.results)
        })
    }

    fn invalidated(&self) -> watch::Receiver<u64> {
        self.shared.invalidated.subscribe()
    }
}

/// Zero if the clock is before 1970: a row's number is then one more than that of the row before it.
fn now_us() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(0)
}
