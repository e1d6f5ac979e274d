//! A policy store with a local copy of its content, so that a restart does not read everything from the store.
//!
//! Everything that passes through is written to disk: a snapshot as a reader loads it, then the changes after it. A reader
//! that loads after a restart gets the copy if the store still has the changes since the copy's cursor; otherwise the copy
//! is dropped and the store is read. So the copy is never trusted beyond what the store confirms. A copy that is lost, torn,
//! damaged or of another store costs no more than having none.
//!
//! A page from the copy may undo what an earlier page said: pages must be applied in order.

mod database;
mod disk;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollcall_core::policy::{PolicyChange, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, PolicyPage};
use tokio::sync::watch;

use super::PolicyStore;
use crate::StoreFuture;
use disk::Disk;

/// Set in the numbers of pages that come from the copy. The store's page numbers are below.
const FROM_COPY: u32 = 1 << 31;

/// How many changes are requested from the store to find out whether it still has the changes after the copy.
const PROBE_LIMIT: u32 = 1024;

/// A policy store and the local copy of its content.
pub struct LocalCopy {
    store: Arc<dyn PolicyStore>,
    /// Locked only on threads that may wait for a disk.
    disk: Arc<Mutex<Disk>>,
    store_reads: AtomicU64,
    salt: u64,
}

impl LocalCopy {
    /// Wraps a store. `identity` names the store: a copy of another is not used. This reads and verifies the whole copy,
    /// about a second per gigabyte; a copy that cannot be used is treated as none.
    pub fn open(store: Arc<dyn PolicyStore>, path: impl Into<PathBuf>, identity: &str) -> Self {
        let disk = Arc::new(Mutex::new(Disk::open(path.into(), identity)));
        Self { store, disk, store_reads: AtomicU64::new(0), salt: RandomState::new().hash_one(0_u8) }
    }

    /// How often a page or changes were read from the store itself.
    pub fn store_reads(&self) -> u64 {
        self.store_reads.load(Ordering::Relaxed)
    }

    async fn page(&self, page: u32) -> Result<PolicyPage, Error> {
        let salt = self.salt;
        if page & FROM_COPY != 0 {
            // If the copy failed or was replaced while it was read, the reader continues with all of the store. What it has
            // from the copy is older, and is corrected by the changes since the copy's cursor.
            return match self.on_disk(move |disk| disk.page(page, salt)).await.flatten() {
                Some(page) => Ok(page),
                None => self.page_of_store(0).await,
            };
        }
        if page == 0
            && let Some(page) = self.first_of_copy().await?
        {
            return Ok(page);
        }
        self.page_of_store(page).await
    }

    /// The first page of the copy, if there is one and the store still has the changes after it.
    async fn first_of_copy(&self) -> Result<Option<PolicyPage>, Error> {
        let Some((first, cursor)) = self.on_disk(|disk| disk.fresh()).await.flatten() else { return Ok(None) };
        let followed = self.ask_since(cursor.clone(), PROBE_LIMIT).await?;
        self.record(cursor, &followed).await;
        let salt = self.salt;
        match followed {
            ChangesSince::Changes(..) => Ok(self.on_disk(move |disk| disk.page(first, salt)).await.flatten()),
            ChangesSince::Gap => Ok(None),
        }
    }

    async fn page_of_store(&self, page: u32) -> Result<PolicyPage, Error> {
        // Before the store is read: a page that was read before the recording began lacks the changes in between.
        let ticket = self.on_disk(move |disk| disk.ticket(page)).await.flatten();
        self.store_reads.fetch_add(1, Ordering::Relaxed);
        let found = self.store.snapshot(page).await?;
        if found.next.is_some_and(|next| next & FROM_COPY != 0) {
            return Err(Error::Other("a store with page numbers of 2^31 and more cannot be copied".to_owned()));
        }
        let found = Arc::new(found);
        let recorded = Arc::clone(&found);
        self.on_disk(move |disk| match ticket {
            Some(ticket) => disk.record(ticket, &recorded),
            None if page == 0 => disk.begin(&recorded),
            None => {}
        })
        .await;
        Ok(Arc::unwrap_or_clone(found))
    }

    async fn follow(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        let followed = self.ask_since(cursor.clone(), limit).await?;
        if cursor.is_empty() {
            // The caller only wanted the newest cursor.
            return Ok(followed);
        }
        if let Some(behind) = self.record(cursor, &followed).await {
            // No reader follows the copy's cursor any more, so update the copy here. The caller waits, but its own
            // answer is complete and does not depend on this.
            if let Ok(followed) = self.ask_since(behind.clone(), PROBE_LIMIT).await {
                self.record(behind, &followed).await;
            }
        }
        Ok(followed)
    }

    async fn ask_since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        self.store_reads.fetch_add(1, Ordering::Relaxed);
        self.store.since(cursor, limit).await
    }

    /// Writes down what came after a cursor. Returns the copy's cursor if the copy was left behind.
    async fn record(&self, asked: Cursor, followed: &ChangesSince) -> Option<Cursor> {
        match followed {
            ChangesSince::Changes(changes, after) if changes.is_empty() && *after == asked => None,
            ChangesSince::Changes(changes, after) => {
                let (changes, after) = (changes.clone(), after.clone());
                self.on_disk(move |disk| disk.append(&asked, &changes, after)).await.flatten()
            }
            ChangesSince::Gap => {
                self.on_disk(move |disk| disk.forget(&asked)).await;
                None
            }
        }
    }

    /// Runs work that may wait for the disk on a thread for that; `None` if the runtime is shutting down.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&mut Disk) -> T + Send + 'static) -> Option<T> {
        let disk = Arc::clone(&self.disk);
        tokio::task::spawn_blocking(move || work(&mut disk.lock())).await.ok()
    }
}

impl PolicyStore for LocalCopy {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> StoreFuture<'_, Vec<Relation>> {
        self.store.relations(viewer, subjects)
    }

    fn settings_of(&self, user: UserId) -> StoreFuture<'_, OwnSettings> {
        self.store.settings_of(user)
    }

    fn snapshot(&self, page: u32) -> StoreFuture<'_, PolicyPage> {
        Box::pin(self.page(page))
    }

    fn since(&self, cursor: Cursor, limit: u32) -> StoreFuture<'_, ChangesSince> {
        Box::pin(self.follow(cursor, limit))
    }

    fn apply_many(&self, changes: Vec<PolicyChange>) -> StoreFuture<'_, Vec<Result<(), Error>>> {
        self.store.apply_many(changes)
    }

    fn invalidated(&self) -> watch::Receiver<u64> {
        self.store.invalidated()
    }
}
