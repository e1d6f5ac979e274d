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

use super::Gateway;
use super::listening::{PAGE, RETRY};
use super::roster::{Doubtful, Doubts};
use crate::jobs::policy_sync::Invalidated;

/// Viewers asked about at once for one change: a part of what an instance has in flight, with room for others.
const AT_ONCE: usize = 16;

impl Gateway {
    /// Looks at everybody anew whom a change concerns, for ever. One look at a time: what is doubted meanwhile is looked at
    /// after that, and what is doubted twice, once.
    pub(super) async fn reconsider(&self, mut invalidated: mpsc::UnboundedReceiver<Invalidated>) {
        let mut waiting = Doubts::new();
        let mut under_way = pin!(None);
        loop {
            if under_way.is_none() && !waiting.is_empty() {
                under_way.set(Some(self.settle(std::mem::take(&mut waiting))));
            }
            tokio::select! {
                biased;
                Some(Invalidated { invalidations, done }) = invalidated.recv() => {
                    let doubts = self.roster.borrow_mut().doubt(&invalidations);
                    // Whoever waits for the change knows by this that it is in force here.
                    drop(done);
                    self.put_off(&mut waiting, doubts);
                }
                Some(()) = OptionFuture::from(under_way.as_mut().as_pin_mut()) => under_way.set(None),
                // Nothing changes any more, and nothing is left to be looked at.
                else => return,
            }
        }
    }

    /// Adds doubts to those that wait, without those that they replace.
    fn put_off(&self, waiting: &mut Doubts, doubts: Doubts) {
        let roster = self.roster.borrow();
        for (viewer, more) in doubts {
            let doubtful = waiting.entry(viewer).or_default();
            doubtful.retain(|doubtful| roster.is_open(doubtful));
            doubtful.extend(more);
        }
    }

    /// Asks what everybody concerned may see, and reads those who can be seen again.
    async fn settle(&self, doubts: Doubts) {
        let asked = iter(doubts).map(|(viewer, doubtful)| self.settle_doubts(viewer, doubtful));
        let unknown: Vec<Vec<UserId>> = asked.buffer_unordered(AT_ONCE).collect().await;
        self.meet(unknown.concat()).await;
    }

    /// Asks what one viewer may see of these. Answers whom it may see without their being known here.
    async fn settle_doubts(&self, viewer: Option<UserId>, mut doubtful: Vec<Doubtful>) -> Vec<UserId> {
        doubtful.retain(|doubtful| self.roster.borrow().is_open(doubtful));
        let mut unknown = Vec::new();
        for doubtful in doubtful.chunks(MAX_SUBJECTS) {
            let users: Vec<UserId> = doubtful.iter().map(|doubtful| doubtful.user.clone()).collect();
            let verdicts = self.sure_verdicts(viewer.as_ref(), users).await;
            let mut roster = self.roster.borrow_mut();
            for (doubtful, verdict) in doubtful.iter().zip(verdicts) {
                if roster.resolve(viewer.as_ref(), doubtful, verdict) {
                    unknown.push(doubtful.user.clone());
                }
            }
        }
        unknown
    }

    /// RestrictionCheck, however long it takes. Until then nothing is told of those whom they are about.
    async fn sure_verdicts(&self, viewer: Option<&UserId>, users: Vec<UserId>) -> Vec<Visibility> {
        let mut failing = false;
        loop {
            match self.function_handles.verdicts(viewer.cloned(), users.clone()).await {
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
    async fn meet(&self, mut users: Vec<UserId>) {
        users.sort_unstable();
        users.dedup();
        for users in users.chunks(PAGE) {
            let people = self.roster.borrow().present(users.to_vec());
            if self.reread(people).await.is_err() {
                users.iter().for_each(|user| self.doubt(user.clone()));
            }
        }
    }
}
