//! A store of policy with a copy of its content on a local disk, so that a restart need not ask it for everything.
//!
//! Whatever passes through is written down: a snapshot as somebody reads it, then what came after it. Whoever loads
//! after a restart gets that, once the store has said that it can tell what came since; if it cannot, the copy is
//! worth nothing and the store is read. So the copy is never believed beyond what the store confirms, and a copy that
//! is lost, torn, damaged or of another store costs no more than having none.
//!
//! The page that is handed out from the copy may take back what an earlier one said: pages are to be applied in order.

mod disk;
mod frames;
mod image;
mod recording;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollcall_core::policy::{Change, Relation};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::{ChangesSince, Cursor, OwnSettings, Page};
use tokio::sync::watch;

use super::Policies;
use crate::Answer;
use disk::Disk;

/// Set in the numbers of pages that come from the copy. The store's own numbers are below.
const FROM_DISK: u32 = 1 << 31;

/// How much the store is asked for when it is asked whether it can tell what came after the copy.
const PROBE_LIMIT: u32 = 1024;

/// A store and its copy.
pub struct Copied {
    inner: Arc<dyn Policies>,
    /// Only ever locked where waiting for a disk is no harm.
    disk: Arc<Mutex<Disk>>,
    store_reads: AtomicU64,
    salt: u64,
}

impl Copied {
    /// Wraps a store. `identity` says which: a copy of another is not used. It reads the whole copy to check it, which
    /// takes a second for each gigabyte; a copy that cannot be used is as good as none.
    pub fn open(inner: Arc<dyn Policies>, path: impl Into<PathBuf>, identity: &str) -> Self {
        let disk = Arc::new(Mutex::new(Disk::open(path.into(), identity)));
        Self { inner, disk, store_reads: AtomicU64::new(0), salt: RandomState::new().hash_one(0_u8) }
    }

    /// How often the store itself was asked for a page or for what came after a cursor.
    pub fn store_reads(&self) -> u64 {
        self.store_reads.load(Ordering::Relaxed)
    }

    async fn page(&self, page: u32) -> Result<Page, Error> {
        let salt = self.salt;
        if page & FROM_DISK != 0 {
            // A copy that failed or was replaced half-way: whoever reads goes on with everything from the store. What
            // it has from the copy is older than that, and is put right by the changes since the copy's cursor.
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

    /// The first page of the copy, if there is one and the store can tell what came after it.
    async fn first_of_copy(&self) -> Result<Option<Page>, Error> {
        let Some((first, cursor)) = self.on_disk(|disk| disk.fresh()).await.flatten() else { return Ok(None) };
        let followed = self.ask_since(cursor.clone(), PROBE_LIMIT).await?;
        self.note(cursor, &followed).await;
        let salt = self.salt;
        match followed {
            ChangesSince::Changes(..) => Ok(self.on_disk(move |disk| disk.page(first, salt)).await.flatten()),
            ChangesSince::Gap => Ok(None),
        }
    }

    async fn page_of_store(&self, page: u32) -> Result<Page, Error> {
        // Before the store is asked: a page that was read before the recording began lacks what came in between.
        let ticket = self.on_disk(move |disk| disk.ticket(page)).await.flatten();
        self.store_reads.fetch_add(1, Ordering::Relaxed);
        let found = self.inner.snapshot(page).await?;
        if found.next.is_some_and(|next| next & FROM_DISK != 0) {
            return Err(Error::Other("a store with pages beyond 2^31 cannot be copied".to_owned()));
        }
        let found = Arc::new(found);
        let seen = Arc::clone(&found);
        self.on_disk(move |disk| match ticket {
            Some(ticket) => disk.record(ticket, &seen),
            None if page == 0 => disk.begin(&seen),
            None => {}
        })
        .await;
        Ok(Arc::unwrap_or_clone(found))
    }

    async fn follow(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        let followed = self.ask_since(cursor.clone(), limit).await?;
        if cursor.is_empty() {
            // It follows nothing.
            return Ok(followed);
        }
        if let Some(copy) = self.note(cursor, &followed).await {
            // Nobody follows from where the copy stands any more: it follows by itself. Nobody waits for that but the
            // one who asked, whose own answer is there already and stays good if this fails.
            if let Ok(followed) = self.ask_since(copy.clone(), PROBE_LIMIT).await {
                self.note(copy, &followed).await;
            }
        }
        Ok(followed)
    }

    async fn ask_since(&self, cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        self.store_reads.fetch_add(1, Ordering::Relaxed);
        self.inner.since(cursor, limit).await
    }

    /// Writes down what came after a cursor; the copy's own, if it was left behind there.
    async fn note(&self, asked: Cursor, followed: &ChangesSince) -> Option<Cursor> {
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

    /// Does something with the disk, where it holds up nobody else; none if the runtime is ending.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&mut Disk) -> T + Send + 'static) -> Option<T> {
        let disk = Arc::clone(&self.disk);
        tokio::task::spawn_blocking(move || work(&mut disk.lock())).await.ok()
    }
}

impl Policies for Copied {
    fn relations(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Answer<'_, Vec<Relation>> {
        self.inner.relations(viewer, subjects)
    }

    fn settings_of(&self, user: UserId) -> Answer<'_, OwnSettings> {
        self.inner.settings_of(user)
    }

    fn snapshot(&self, page: u32) -> Answer<'_, Page> {
        Box::pin(self.page(page))
    }

    fn since(&self, cursor: Cursor, limit: u32) -> Answer<'_, ChangesSince> {
        Box::pin(self.follow(cursor, limit))
    }

    fn apply_many(&self, changes: Vec<Change>) -> Answer<'_, Vec<Result<(), Error>>> {
        self.inner.apply_many(changes)
    }

    fn invalidated(&self) -> watch::Receiver<u64> {
        self.inner.invalidated()
    }
}
