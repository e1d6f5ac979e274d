//! The hub: one worker's watchers, and the newest record of every user they watch. A change reaches its watchers within
//! milliseconds, and an open connection is a heartbeat.
//!
//! Topic messages arrive at the worker's subscription; `jobs/topic_dispatch.rs` takes them to the [`Registry`], which marks
//! every watcher concerned. A connection sends the newest state when it can write. For a user with thousands of watchers
//! on one worker there is one subscription per host, one serialised payload and one mark per watcher.
//!
//! Deliberately absent: a queue per connection, a replay log (there is only the newest state to replay), and any decision
//! about visibility: the functions make it, at every admission and after every invalidation.

mod connection;
mod connection_heartbeats;
mod fan_out;
mod handshake;
mod invalidation;
mod payload_cache;
mod queries;
mod registry;
mod socket;
mod sse;
mod subscription;
mod typing;
mod watched_conversation;
mod watched_user;
mod watcher;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_api::{Access, EventId, Limits};
use rollcall_core::visibility::{MAX_PUBLISH_DELAY, may_have_changed_since};
use rollcall_core::{Error, Published, Span, Time, UserId};
use rollcall_store::{TopicStore, TopicSubscription};
use tokio::sync::Notify;

use crate::runtime::Functions;
use connection_heartbeats::ConnectionHeartbeats;
use registry::{Crowds, Registry};
use subscription::Subscription;

pub(crate) use connection::{UpgradedConnection, retry_ms};
pub(crate) use connection_heartbeats::ConnectedDevices;
pub(crate) use handshake::handshake;
pub(crate) use invalidation::{RecheckItem, Rechecks};
pub(crate) use queries::{HubQuery, Hubs};
pub(crate) use registry::Sizes;

/// Users read again in one call.
pub(crate) const PAGE: usize = 500;

/// When a user is read again whose state was shown before it was published: settling takes at most a second.
const RECHECK_UNPUBLISHED_AFTER: Duration = Duration::from_millis(1500);

/// The settings of a hub.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HubOptions {
    /// How often every watched user is read again, in case a loss went unnoticed.
    pub(crate) recheck: Duration,
    /// Above how many watchers, on all hosts, a user has a crowd.
    pub(crate) crowd: u64,
    /// A crowd receives at most one update per user in this time.
    pub(crate) crowd_interval: Duration,
}

/// One worker's hub.
pub(crate) struct Hub {
    pub(crate) functions: Functions,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: Limits,
    pub(crate) options: HubOptions,
    pub(crate) registry: RefCell<Registry>,
    pub(crate) topics: Arc<dyn TopicStore>,
    pub(crate) topic_subscription: TopicSubscription,
    pub(crate) heartbeats: Rc<ConnectionHeartbeats>,
    /// Users to read again soon, because the state shown was not published yet.
    pub(crate) unpublished: RefCell<VecDeque<(Instant, UserId)>>,
    /// A user was added to `unpublished`.
    pub(crate) unpublished_added: Notify,
    /// Topic messages may have been lost.
    pub(crate) missed: Notify,
    /// A read or an admission changed the registry: there may be something to fan out or a new time to wake up at.
    pub(crate) changed: Notify,
    /// Every watched user was read after this instant. It only rises.
    all_read_since: Cell<Time>,
    /// The sizes that the metrics contain.
    reported: Cell<Sizes>,
}

impl Hub {
    pub(crate) fn new(
        functions: Functions,
        access: Arc<Access>,
        limits: Limits,
        options: HubOptions,
        connected_devices: ConnectedDevices,
    ) -> Rc<Self> {
        let topics = Arc::clone(&functions.platform.topics);
        let all_read_since = Cell::new(topics.now());
        let crowds = Crowds { above: options.crowd, every: options.crowd_interval };
        Rc::new(Self {
            topic_subscription: topics.subscription(),
            topics,
            functions,
            access,
            limits,
            options,
            registry: RefCell::new(Registry::new(crowds)),
            heartbeats: Rc::new(ConnectionHeartbeats::new(connected_devices)),
            unpublished: RefCell::default(),
            unpublished_added: Notify::new(),
            missed: Notify::new(),
            changed: Notify::new(),
            all_read_since,
            reported: Cell::default(),
        })
    }

    /// Returns when every queued beat and departure is in the store.
    pub(crate) async fn settled(&self) {
        self.heartbeats.settled().await;
    }

    /// A subscription that watches nothing yet.
    fn subscription(self: &Rc<Self>, viewer: Option<UserId>) -> Subscription {
        let key = self.registry.borrow_mut().add_watcher(viewer.clone());
        self.report();
        Subscription::new(Rc::clone(self), key, viewer)
    }

    /// Updates the metrics with how much is watched.
    fn report(&self) {
        let sizes = self.registry.borrow().sizes();
        self.functions.platform.metrics.hub.watching(self.reported.replace(sizes), sizes);
    }

    /// Reads a user again in a moment.
    pub(crate) fn recheck_soon(&self, user: UserId) {
        self.unpublished.borrow_mut().push_back((Instant::now() + RECHECK_UNPUBLISHED_AFTER, user));
        self.unpublished_added.notify_one();
    }

    /// Reads these users and announces what differs. Each comes with how many messages had been received about them.
    pub(crate) async fn read_again(&self, watched: Vec<(UserId, u64)>) -> Result<(), Error> {
        if watched.is_empty() {
            return Ok(());
        }
        let users = watched.iter().map(|(user, _)| user.clone()).collect();
        let answers = self.functions.look_up(None, users).await?;
        let now = Instant::now();
        let mut changes = 0;
        let mut failed = None;
        for ((user, received), answer) in watched.into_iter().zip(answers) {
            match answer {
                Ok(Some(view)) => {
                    let is_new = self.registry.borrow_mut().apply_read(&user, view.published, received, now);
                    changes += usize::from(is_new);
                }
                // A service sees every user but the restricted, and about those nothing is pushed.
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        if changes > 0 {
            self.changed.notify_one();
            self.functions.platform.metrics.hub.recheck_changes(changes);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every watched user was read after this instant.
    pub(crate) fn all_read_since(&self, began: Time) {
        self.all_read_since.set(self.all_read_since.get().max(began));
    }

    /// Where a watcher resumes after everything sent to it so far.
    ///
    /// Every watched user was read after `all_read_since`, so even what was lost on the way is included. Subtracted are the
    /// time between a decision and its publication, and the time an update for a crowd is held.
    fn resume_point(&self, watcher_id: usize) -> EventId {
        let crowd = Span(self.options.crowd_interval.as_millis() as u64);
        let read_since = self.all_read_since.get().0.saturating_sub(MAX_PUBLISH_DELAY.0 + crowd.0);
        EventId { version: read_since * 1000, digest: Some(self.registry.borrow().digest(watcher_id)) }
    }

    /// Whether this may have been published after the resume point. A hidden user always counts as changed, so that the
    /// answer reveals nothing.
    fn may_have_changed_since(&self, published: Option<&Published>, since: &EventId) -> bool {
        let rules = &self.functions.platform.rules;
        published.is_none_or(|published| may_have_changed_since(published, since.version, self.topics.now(), rules))
    }
}
