//! The hub: connections that stay. Whoever watches is told within milliseconds, and a live connection is a heartbeat.
//!
//! Each worker has its own. What is published arrives at the worker's tap, `listening` takes it to the [`Registry`], and
//! that marks who has to be told; a connection takes what is newest when it can. Of a person whom thousands watch on one
//! worker there is one subscription on this host, one copy of the text, and one mark per watcher.
//!
//! Deliberately absent: a queue per connection, a replay log (the newest state is all there is to replay), and any
//! decision about who may see whom: that comes from the functions, with every admission and whenever it changes.

mod connection;
mod connection_heartbeats;
mod fan_out;
mod handshake;
mod invalidation;
mod payload_cache;
mod queries;
mod recheck;
mod registry;
mod socket;
mod sse;
mod visibility_recheck;
mod watched_conversation;
mod watched_user;
mod watcher;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rollcall_api::{Access, EventId, Limits, events};
use rollcall_core::visibility::{SURELY_PUBLISHED, may_be_since};
use rollcall_core::{ConversationId, Error, Published, Span, Time, UserId};
use rollcall_functions::subscribe::Place;
use rollcall_store::{Tap, Topic, Topics};
use tokio::sync::{Notify, mpsc};

use crate::jobs::policy_sync::Invalidated;
use crate::runtime::Functions;
use connection::RETRY_MS;
use connection_heartbeats::ConnectionHeartbeats;
use registry::{Added, Crowds, Registry};

pub(crate) use connection::{UpgradedConnection, retry_ms};
pub(crate) use connection_heartbeats::ConnectedDevices;
pub(crate) use handshake::handshake;
pub(crate) use queries::{HubQuery, Hubs};
pub(crate) use registry::Sizes;

/// How often what a newcomer is shown is read again because it changed what the viewer may see of them.
const MAX_READINGS: usize = 16;

/// How the hub behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HubOptions {
    /// How often everybody who is watched is read again, in case something was lost that nobody noticed.
    pub(crate) recheck: Duration,
    /// How many watchers, on all hosts, are a crowd.
    pub(crate) crowd: u64,
    /// How often a crowd is told of one person.
    pub(crate) crowd_interval: Duration,
}

/// One worker's hub.
pub(crate) struct Hub {
    pub(crate) functions: Functions,
    pub(crate) access: Arc<Access>,
    pub(crate) limits: Limits,
    options: HubOptions,
    registry: RefCell<Registry>,
    topics: Arc<dyn Topics>,
    tap: Tap,
    heartbeats: Rc<ConnectionHeartbeats>,
    /// People to be read again soon, because what was shown of them was not published yet.
    unpublished: RefCell<VecDeque<(Instant, UserId)>>,
    /// There is somebody to be read again soon.
    unpublished_added: Notify,
    /// Something may have been lost.
    missed: Notify,
    /// Something became known in another way than by a topic.
    invalidated: Notify,
    /// Everybody who is watched has been read since then. It never goes back.
    sure_until: Cell<Time>,
    /// How many watchers, people and conversations the metrics know of.
    reported: Cell<Sizes>,
}

impl Hub {
    pub(crate) fn new(
        functions: Functions,
        access: Arc<Access>,
        limits: Limits,
        options: HubOptions,
        present: ConnectedDevices,
    ) -> Rc<Self> {
        let topics = Arc::clone(&functions.platform.topics);
        let sure_until = topics.now();
        let crowds = Crowds { above: options.crowd, every: options.crowd_interval };
        Rc::new(Self {
            tap: topics.tap(),
            topics,
            functions,
            access,
            limits,
            options,
            registry: RefCell::new(Registry::new(crowds)),
            heartbeats: Rc::new(ConnectionHeartbeats::new(present)),
            unpublished: RefCell::default(),
            unpublished_added: Notify::new(),
            missed: Notify::new(),
            invalidated: Notify::new(),
            sure_until: Cell::new(sure_until),
            reported: Cell::default(),
        })
    }

    /// Everything that goes on although no connection asks for it, for ever.
    pub(crate) async fn run(
        &self,
        invalidated: mpsc::UnboundedReceiver<Invalidated>,
        queries: mpsc::UnboundedReceiver<HubQuery>,
    ) {
        let attend = self.heartbeats.keep(&self.functions);
        let reconsider = self.reconsider(invalidated);
        let repair = async { tokio::join!(self.repair(), self.recheck_unpublished(), self.recheck()) };
        tokio::join!(self.listen(), repair, reconsider, self.count(), attend, self.answer(queries));
    }

    /// Returns when the store knows of every connection what it should.
    pub(crate) async fn settled(&self) {
        self.heartbeats.settled().await;
    }

    /// A new pair of eyes, which watch nobody yet.
    pub(crate) fn subscription(self: &Rc<Self>, viewer: Option<UserId>) -> Subscription {
        let key = self.registry.borrow_mut().enter(viewer.clone());
        self.report();
        Subscription { hub: Rc::clone(self), key, viewer }
    }

    /// Lets the metrics know how much is watched.
    fn report(&self) {
        let sizes = self.registry.borrow().sizes();
        self.functions.platform.metrics.hub.watching(self.reported.replace(sizes), sizes);
    }

    /// From where to resume after all that this watcher was told.
    ///
    /// Everything published before is among it: everybody who is watched was read since, so that not even what was lost on
    /// the way is missing; less what a call takes between its decision and its publication, and what a crowd waits.
    fn resume_point(&self, watcher: usize) -> EventId {
        let crowd = Span(self.options.crowd_interval.as_millis() as u64);
        let sure = self.sure_until.get().0.saturating_sub(SURELY_PUBLISHED.0 + crowd.0);
        EventId { version: sure * 1000, digest: Some(self.registry.borrow().digest(watcher)) }
    }

    /// Whether this may have come about after the resume point. Of whoever is hidden nobody learns.
    fn is_since(&self, published: Option<&Published>, since: &EventId) -> bool {
        let rules = &self.functions.platform.rules;
        published.is_none_or(|published| may_be_since(published, since.version, self.topics.now(), rules))
    }
}

/// One connection's eyes. Dropping it lets go of everything it watches.
pub(crate) struct Subscription {
    hub: Rc<Hub>,
    key: usize,
    viewer: Option<UserId>,
}

/// What a watcher is told.
#[derive(Debug, Default)]
struct Updates {
    presences: Vec<Rc<str>>,
    typing: Vec<String>,
}

impl Subscription {
    /// Begins to watch people and conversations, beside those watched already. Answers the snapshot: all of them, or what
    /// changed since. On an error nothing is watched that was not before.
    pub(crate) async fn watch(
        &self,
        users: Vec<UserId>,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let hub = &self.hub;
        let limit = hub.functions.platform.rules.watch_limit;
        let (watching, watched_conversations) = {
            let registry = hub.registry.borrow();
            (registry.watching(self.key), registry.watched_conversations(self.key))
        };
        let added = hub.registry.borrow_mut().add(self.key, users, conversations.clone());
        // The function says so too, but there is no need to listen to anybody before that.
        let most = (watching + added.targets.len()).max(watched_conversations + added.conversation_targets.len());
        let admitted = match most > limit as usize {
            true => Err(Error::TooMany(limit)),
            false => self.admit(&added, watching as u32, conversations, since).await,
        };
        if admitted.is_err() {
            self.let_go(hub.registry.borrow_mut().undo(self.key, &added));
        }
        hub.report();
        admitted
    }

    async fn admit(
        &self,
        added: &Added,
        watching: u32,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let hub = &self.hub;
        // First listen, then read: what changes in between is heard.
        if !added.topics.is_empty() {
            hub.tap.watch(&added.topics).await?;
            hub.registry.borrow_mut().subscribed(&added.topics);
        }
        let (mut shown, typing) = self.read_while_still(added, watching, conversations).await?;
        let digest = hub.registry.borrow().digest(self.key);
        // To whoever sees more or less of somebody than before, everything is told.
        let since =
            since.filter(|since| since.digest.is_none_or(|before| payload_cache::same_visibility(before, digest)));
        if let Some(since) = since {
            let unchanged = since.digest == Some(digest);
            shown.retain(|shown| !unchanged && hub.is_since(shown.published.as_ref(), &since));
        }
        let presences = shown.iter().map(|shown| &*shown.text);
        Ok(events::snapshot(presences, typing.iter().map(String::as_str), since.is_some()))
    }

    /// Reads what there is to show. If meanwhile it changed what this viewer may see of those, it is read again.
    async fn read_while_still(
        &self,
        added: &Added,
        watching: u32,
        conversations: Vec<ConversationId>,
    ) -> Result<(Vec<registry::SnapshotEntry>, Vec<String>), Error> {
        for _ in 0..MAX_READINGS {
            self.hub.registry.borrow_mut().clear_invalidated(self.key, added);
            let shown = self.read(added, watching).await?;
            let typing = self.read_typing(added, conversations.clone()).await?;
            if !self.hub.registry.borrow().was_invalidated(self.key, added) {
                return Ok((shown, typing));
            }
        }
        Err(Error::Unavailable(*RETRY_MS.start() as u32))
    }

    /// Asks what the viewer may see of those who were added.
    async fn read(&self, added: &Added, watching: u32) -> Result<Vec<registry::SnapshotEntry>, Error> {
        let hub = &self.hub;
        let users: Vec<UserId> = added.targets.iter().map(|added_user| added_user.user.clone()).collect();
        if users.is_empty() {
            return Ok(Vec::new());
        }
        let places = hub.functions.open(self.viewer.clone(), watching, users).await?;
        let mut shown = Vec::with_capacity(places.len());
        for (added_user, place) in added.targets.iter().zip(places) {
            let Place { view, visibility, settled } = place?;
            if !settled {
                hub.recheck_soon(added_user.user.clone());
            }
            let now = Instant::now();
            shown.extend(hub.registry.borrow_mut().admit(self.key, added_user, view.as_ref(), visibility, now));
        }
        hub.invalidated.notify_one();
        Ok(shown)
    }

    /// Asks who types where it was added, as far as the viewer may see.
    async fn read_typing(&self, added: &Added, conversations: Vec<ConversationId>) -> Result<Vec<String>, Error> {
        if added.conversation_targets.is_empty() {
            return Ok(Vec::new());
        }
        let hub = &self.hub;
        let invalidations = hub.registry.borrow().invalidations();
        let rooms = hub.functions.typists(self.viewer.clone(), conversations.clone()).await?;
        let is_current = hub.registry.borrow().invalidations() == invalidations;
        let mut typing = Vec::new();
        for (conversation, typists) in conversations.iter().zip(rooms) {
            let typists: Vec<(UserId, Time)> = typists?.into_iter().map(|typist| (typist.user, typist.until)).collect();
            if !is_current {
                // Who of them may be seen may have changed since it was asked: they are told of in a moment, if so.
                hub.registry.borrow_mut().apply_unchecked_typists(self.key, conversation, typists);
                continue;
            }
            typing.extend(typists.iter().map(|(user, until)| events::typing(conversation, user, Some(*until))));
            hub.registry.borrow_mut().apply_typists(self.key, conversation, typists);
        }
        hub.invalidated.notify_one();
        Ok(typing)
    }

    /// Watches these no longer.
    pub(crate) fn unwatch(&self, users: &[UserId], conversations: &[ConversationId]) {
        self.let_go(self.hub.registry.borrow_mut().remove(self.key, users, conversations));
        self.hub.report();
    }

    /// The conversations that are watched.
    fn conversations(&self) -> Vec<ConversationId> {
        self.hub.registry.borrow().conversations(self.key)
    }

    fn let_go(&self, idle: Vec<Topic>) {
        if !idle.is_empty() {
            self.hub.tap.unwatch(&idle);
        }
    }

    /// Whether there is something to tell.
    fn has_updates(&self) -> bool {
        self.hub.registry.borrow().has_updates(self.key)
    }

    /// Returns when there is something to tell.
    async fn updated(&self) {
        poll_fn(|context| self.hub.registry.borrow_mut().poll_updates(self.key, context)).await;
    }

    /// Takes all that there is to tell.
    async fn news(&self) -> Updates {
        let mut news = Updates::default();
        let functions = &self.hub.functions;
        // Once for what is known, and once more for whom had to be asked about.
        for _ in 0..2 {
            let collected = self.hub.registry.borrow_mut().collect(self.key);
            news.presences.extend(collected.presences);
            news.typing.extend(collected.typing);
            if let (true, Some(viewer)) = (collected.viewer_changed, &self.viewer) {
                // One sees more of oneself than others do.
                let own = functions.look_up(Some(viewer.clone()), vec![viewer.clone()]).await;
                match own.ok().and_then(|answers| answers.into_iter().next()).and_then(Result::ok) {
                    Some(view) => news.presences.push(payload_cache::presence(viewer, view.as_ref())),
                    None => {
                        self.hub.registry.borrow_mut().mark_unsent(self.key, viewer);
                        self.hub.recheck_soon(viewer.clone());
                    }
                }
            }
            if collected.unchecked_typists.is_empty() {
                return news;
            }
            let invalidations = self.hub.registry.borrow().invalidations();
            let Ok(verdicts) = functions.verdicts(self.viewer.clone(), collected.unchecked_typists.clone()).await
            else {
                return news;
            };
            if self.hub.registry.borrow().invalidations() != invalidations {
                // It may have changed since it was asked.
                self.hub.registry.borrow_mut().recheck_typists(self.key);
                return news;
            }
            let judged =
                collected.unchecked_typists.into_iter().zip(verdicts).map(|(user, verdict)| (user, verdict.presence));
            self.hub.registry.borrow_mut().set_typist_visibility(self.key, judged.collect());
        }
        news
    }

    /// From where to resume after all that was told so far, as a client keeps it.
    fn id(&self) -> String {
        self.hub.resume_point(self.key).to_string()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.let_go(self.hub.registry.borrow_mut().leave(self.key));
        self.hub.report();
    }
}
