//! Checks visibility again after an invalidation. A watcher that may no longer see a user receives that at once; one
//! that may again receives the user's state.
//!
//! The affected entries are invalidated before the check, and nothing is pushed for them until its result is
//! there. So a change is in force on this worker as soon as it was received.

use std::pin::pin;
use std::rc::Rc;

use futures::StreamExt;
use futures::future::OptionFuture;
use futures::stream::iter;
use rollcall_core::UserId;
use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::visibility::Visibility;
use tokio::sync::{Mutex, mpsc};

use super::Exit;
use super::policy_sync::Invalidated;
use super::recheck::RETRY;
use crate::hub::{Hub, PAGE, RecheckItem, Rechecks};

/// Viewers checked concurrently: half of what an instance has in flight, so other calls get through.
const MAX_CONCURRENT: usize = 16;

/// One re-check runs at a time. What is invalidated meanwhile is checked afterwards; an entry that is invalidated twice
/// is checked once.
pub(super) async fn run(hub: Rc<Hub>, invalidated: Rc<Mutex<mpsc::UnboundedReceiver<Invalidated>>>) -> Exit {
    let mut invalidated = invalidated.lock().await;
    // After a restart: what the run before had not finished.
    let mut queued = hub.registry.borrow().unresolved();
    let mut running = pin!(None);
    loop {
        if running.is_none() && !queued.is_empty() {
            running.set(Some(recheck(&hub, std::mem::take(&mut queued))));
        }
        tokio::select! {
            biased;
            Some(Invalidated { invalidations, done }) = invalidated.recv() => {
                let rechecks = hub.registry.borrow_mut().invalidate(&invalidations);
                // Tells policy sync that the change is in force on this worker.
                drop(done);
                enqueue(&hub, &mut queued, rechecks);
            }
            Some(()) = OptionFuture::from(running.as_mut().as_pin_mut()) => running.set(None),
            // The channel is closed and nothing is left to do.
            else => return Exit::Closed,
        }
    }
}

/// Adds items to the queue, and removes those they replace.
fn enqueue(hub: &Hub, queued: &mut Rechecks, rechecks: Rechecks) {
    let registry = hub.registry.borrow();
    for (viewer, more) in rechecks {
        let items = queued.entry(viewer).or_default();
        items.retain(|item| registry.is_current(item));
        items.extend(more);
    }
}

async fn recheck(hub: &Hub, rechecks: Rechecks) {
    let asked = iter(rechecks).map(|(viewer, items)| recheck_viewer(hub, viewer, items));
    let unread: Vec<Vec<UserId>> = asked.buffer_unordered(MAX_CONCURRENT).collect().await;
    read_newly_visible(hub, unread.concat()).await;
}

/// Checks what one viewer may see. Returns users who are visible now and whose state this worker has never read.
async fn recheck_viewer(hub: &Hub, viewer: Option<UserId>, mut items: Vec<RecheckItem>) -> Vec<UserId> {
    items.retain(|item| hub.registry.borrow().is_current(item));
    let mut unread = Vec::new();
    for items in items.chunks(MAX_SUBJECTS) {
        let users: Vec<UserId> = items.iter().map(|item| item.user.clone()).collect();
        let visibilities = ask_until_answered(hub, viewer.as_ref(), users).await;
        let mut registry = hub.registry.borrow_mut();
        for (item, visibility) in items.iter().zip(visibilities) {
            if registry.resolve(viewer.as_ref(), item, visibility) {
                unread.push(item.user.clone());
            }
        }
    }
    unread
}

/// Retries for as long as it takes: until then nothing is pushed about these users.
async fn ask_until_answered(hub: &Hub, viewer: Option<&UserId>, users: Vec<UserId>) -> Vec<Visibility> {
    let mut failing = false;
    loop {
        match hub.functions.visibilities(viewer.cloned(), users.clone()).await {
            Ok(visibilities) => return visibilities,
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::warn!(%error, users = users.len(), "Visibility check failed; pushing nothing, retrying");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads users whose state is unknown here because no watcher on this worker could see them before.
async fn read_newly_visible(hub: &Hub, mut users: Vec<UserId>) {
    users.sort_unstable();
    users.dedup();
    for users in users.chunks(PAGE) {
        let watched = hub.registry.borrow().watched_users(users.to_vec());
        if hub.read_again(watched).await.is_err() {
            users.iter().for_each(|user| hub.recheck_soon(user.clone()));
        }
    }
}
