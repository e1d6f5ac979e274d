//! Live watchers are looked at anew when who may see whom has changed: whoever may no longer see is told so at once, and
//! whoever may again is told how things stand.
//!
//! Those concerned are doubted the moment it is heard of, and from then on nothing is told of them; so the change is in force
//! on this worker before anybody is asked what it comes to.

use std::pin::pin;

use futures::StreamExt;
use futures::future::OptionFuture;
use futures::stream::iter;
use rollcall_core::UserId;
use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::visibility::Visibility;
use tokio::sync::mpsc;

use super::Hub;
use super::invalidation::{RecheckItem, Rechecks};
use super::recheck::{PAGE, RETRY};
use crate::jobs::policy_sync::Invalidated;

/// Viewers asked about at once for one change: a part of what an instance has in flight, with room for others.
const AT_ONCE: usize = 16;

impl Hub {
    /// Looks at everybody anew whom a change concerns, for ever. One look at a time: what is doubted meanwhile is looked at
    /// after that, and what is doubted twice, once.
    pub(super) async fn reconsider(&self, mut invalidated: mpsc::UnboundedReceiver<Invalidated>) {
        let mut waiting = Rechecks::new();
        let mut under_way = pin!(None);
        loop {
            if under_way.is_none() && !waiting.is_empty() {
                under_way.set(Some(self.settle(std::mem::take(&mut waiting))));
            }
            tokio::select! {
                biased;
                Some(Invalidated { invalidations, done }) = invalidated.recv() => {
                    let rechecks = self.registry.borrow_mut().invalidate(&invalidations);
                    // Whoever waits for the change knows by this that it is in force here.
                    drop(done);
                    self.enqueue(&mut waiting, rechecks);
                }
                Some(()) = OptionFuture::from(under_way.as_mut().as_pin_mut()) => under_way.set(None),
                // Nothing changes any more, and nothing is left to be looked at.
                else => return,
            }
        }
    }

    /// Adds doubts to those that wait, without those that they replace.
    fn enqueue(&self, waiting: &mut Rechecks, rechecks: Rechecks) {
        let registry = self.registry.borrow();
        for (viewer, more) in rechecks {
            let item = waiting.entry(viewer).or_default();
            item.retain(|item| registry.is_current(item));
            item.extend(more);
        }
    }

    /// Asks what everybody concerned may see, and reads those who can be seen again.
    async fn settle(&self, rechecks: Rechecks) {
        let asked = iter(rechecks).map(|(viewer, item)| self.recheck_viewer(viewer, item));
        let unknown: Vec<Vec<UserId>> = asked.buffer_unordered(AT_ONCE).collect().await;
        self.read_newly_visible(unknown.concat()).await;
    }

    /// Asks what one viewer may see of these. Answers whom it may see without their being known here.
    async fn recheck_viewer(&self, viewer: Option<UserId>, mut item: Vec<RecheckItem>) -> Vec<UserId> {
        item.retain(|item| self.registry.borrow().is_current(item));
        let mut unknown = Vec::new();
        for item in item.chunks(MAX_SUBJECTS) {
            let users: Vec<UserId> = item.iter().map(|item| item.user.clone()).collect();
            let verdicts = self.visibilities_with_retry(viewer.as_ref(), users).await;
            let mut registry = self.registry.borrow_mut();
            for (item, verdict) in item.iter().zip(verdicts) {
                if registry.resolve(viewer.as_ref(), item, verdict) {
                    unknown.push(item.user.clone());
                }
            }
        }
        unknown
    }

    /// RestrictionCheck, however long it takes. Until then nothing is told of those whom they are about.
    async fn visibilities_with_retry(&self, viewer: Option<&UserId>, users: Vec<UserId>) -> Vec<Visibility> {
        let mut failing = false;
        loop {
            match self.functions.verdicts(viewer.cloned(), users.clone()).await {
                Ok(verdicts) => return verdicts,
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(
                        "a watcher is told nothing of whom a change concerns until it can be asked: {error}"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Reads those who can be seen again and of whom nothing is known, because nobody here could see them.
    async fn read_newly_visible(&self, mut users: Vec<UserId>) {
        users.sort_unstable();
        users.dedup();
        for users in users.chunks(PAGE) {
            let people = self.registry.borrow().watched_users(users.to_vec());
            if self.reread(people).await.is_err() {
                users.iter().for_each(|user| self.recheck_soon(user.clone()));
            }
        }
    }
}
