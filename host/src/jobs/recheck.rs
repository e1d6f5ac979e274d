//! Reads watched users again: after messages may have been lost, periodically, and when what was shown was not published
//! yet.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rollcall_core::Error;

use super::Exit;
use crate::hub::{Hub, PAGE};

/// The pause before users who could not be read are read again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// Reads every watched user whenever the subscription reports that messages may have been lost.
pub(super) async fn after_loss(hub: Rc<Hub>) -> Exit {
    loop {
        hub.missed.notified().await;
        read_all(&hub).await;
    }
}

/// Reads every watched user, until none of the reads fails.
async fn read_all(hub: &Hub) {
    loop {
        let began = hub.topics.now();
        let mut failed = None;
        let mut from = Some(0);
        while let Some(start) = from {
            let (users, next) = hub.registry.borrow().page_of_users(start, PAGE);
            failed = hub.read_again(users).await.err().or(failed);
            from = next;
        }
        match failed {
            None => return hub.all_read_since(began),
            Some(Error::Unavailable(_)) => tokio::time::sleep(RETRY).await,
            Some(error) => {
                return tracing::error!(%error, "Cannot read watched users after a loss; leaving it to the re-check");
            }
        }
    }
}

/// Reads every watched user once per interval, a page at a time, in case a loss went unnoticed.
pub(super) async fn periodic(hub: Rc<Hub>) -> Exit {
    loop {
        let began = hub.topics.now();
        let pause = hub.options.recheck.div_f64(hub.registry.borrow().page_count(PAGE) as f64);
        let mut failed = false;
        let mut from = Some(0);
        while let Some(start) = from {
            tokio::time::sleep(pause).await;
            let (users, next) = hub.registry.borrow().page_of_users(start, PAGE);
            // A page that could not be read is read in the next round.
            failed |= hub.read_again(users).await.is_err();
            from = next;
        }
        if !failed {
            hub.all_read_since(began);
        }
    }
}

/// Reads users again who were shown in a state that was derived and not yet published.
pub(super) async fn unpublished(hub: Rc<Hub>) -> Exit {
    loop {
        let Some(first) = hub.unpublished.borrow().front().map(|(at, _)| *at) else {
            hub.unpublished_added.notified().await;
            continue;
        };
        tokio::time::sleep_until(first.into()).await;
        let now = Instant::now();
        let mut users = Vec::new();
        while users.len() < PAGE && hub.unpublished.borrow().front().is_some_and(|(at, _)| *at <= now) {
            users.extend(hub.unpublished.borrow_mut().pop_front().map(|(_, user)| user));
        }
        let watched = hub.registry.borrow().watched_users(users.clone());
        // A failed read is left to the periodic re-check.
        let _ = hub.read_again(watched).await;
        let mut registry = hub.registry.borrow_mut();
        users.iter().for_each(|user| registry.announce_again(user, now));
    }
}
