//! A subscription: what one connection watches, and what is to be sent to it.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Instant;

use rollcall_api::{EventId, events};
use rollcall_core::{ConversationId, Error, Time, UserId};
use rollcall_functions::subscribe::InitialPresence;
use rollcall_store::Topic;

use super::Hub;
use super::connection::RETRY_MS;
use super::payload_cache::{presence, same_visibility};
use super::registry::{Added, SnapshotEntry};

/// How often the snapshot is read again because visibility changed while it was read.
const MAX_READS: usize = 16;

/// What one connection watches. Dropping it removes the watcher.
pub(super) struct Subscription {
    hub: Rc<Hub>,
    key: usize,
    viewer: Option<UserId>,
}

/// What is to be sent to a watcher, serialised.
#[derive(Debug, Default)]
pub(super) struct Updates {
    pub(super) presences: Vec<Rc<str>>,
    pub(super) typing: Vec<String>,
}

impl Subscription {
    pub(super) fn new(hub: Rc<Hub>, key: usize, viewer: Option<UserId>) -> Self {
        Self { hub, key, viewer }
    }

    /// Adds users and conversations. Returns the snapshot: all of them, or what changed since. On an error nothing was
    /// added.
    pub(super) async fn watch(
        &self,
        users: Vec<UserId>,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let hub = &self.hub;
        let limit = hub.functions.platform.rules.watch_limit;
        let (users_before, conversations_before) = {
            let registry = hub.registry.borrow();
            (registry.user_count(self.key), registry.conversation_count(self.key))
        };
        let added = hub.registry.borrow_mut().add(self.key, users, conversations.clone());
        // The function checks the limit too; checking first avoids needless subscriptions.
        let most = (users_before + added.users.len()).max(conversations_before + added.conversations.len());
        let admitted = match most > limit as usize {
            true => Err(Error::TooMany(limit)),
            false => self.admit(&added, users_before as u32, conversations, since).await,
        };
        if admitted.is_err() {
            self.unsubscribe(hub.registry.borrow_mut().undo(self.key, &added));
        }
        hub.report();
        admitted
    }

    async fn admit(
        &self,
        added: &Added,
        users_before: u32,
        conversations: Vec<ConversationId>,
        since: Option<EventId>,
    ) -> Result<String, Error> {
        let hub = &self.hub;
        // Subscribe first, then read: a change in between is received.
        if !added.topics.is_empty() {
            hub.topic_subscription.watch(&added.topics).await?;
            hub.registry.borrow_mut().subscribed(&added.topics);
        }
        let (mut entries, typing) = self.read_consistently(added, users_before, conversations).await?;
        let digest = hub.registry.borrow().digest(self.key);
        // A client whose visibility of any user changed receives everything.
        let since = since.filter(|since| since.digest.is_none_or(|before| same_visibility(before, digest)));
        if let Some(since) = since {
            let unchanged = since.digest == Some(digest);
            entries.retain(|entry| !unchanged && hub.may_have_changed_since(entry.published.as_ref(), &since));
        }
        let presences = entries.iter().map(|entry| &*entry.payload);
        Ok(events::snapshot(presences, typing.iter().map(String::as_str), since.is_some()))
    }

    /// Reads the snapshot, and again if visibility of an added user was invalidated meanwhile.
    async fn read_consistently(
        &self,
        added: &Added,
        users_before: u32,
        conversations: Vec<ConversationId>,
    ) -> Result<(Vec<SnapshotEntry>, Vec<String>), Error> {
        for _ in 0..MAX_READS {
            self.hub.registry.borrow_mut().clear_invalidated(self.key, added);
            let entries = self.read(added, users_before).await?;
            let typing = self.read_typing(added, conversations.clone()).await?;
            if !self.hub.registry.borrow().was_invalidated(self.key, added) {
                return Ok((entries, typing));
            }
        }
        Err(Error::Unavailable(*RETRY_MS.start() as u32))
    }

    /// Reads the added users as the viewer may see them.
    async fn read(&self, added: &Added, users_before: u32) -> Result<Vec<SnapshotEntry>, Error> {
        let hub = &self.hub;
        let users: Vec<UserId> = added.users.iter().map(|added| added.user.clone()).collect();
        if users.is_empty() {
            return Ok(Vec::new());
        }
        let answers = hub.functions.open(self.viewer.clone(), users_before, users).await?;
        let mut entries = Vec::with_capacity(answers.len());
        for (added, answer) in added.users.iter().zip(answers) {
            let InitialPresence { view, visibility, settled } = answer?;
            if !settled {
                hub.recheck_soon(added.user.clone());
            }
            let now = Instant::now();
            entries.extend(hub.registry.borrow_mut().admit(self.key, added, view.as_ref(), visibility, now));
        }
        hub.changed.notify_one();
        Ok(entries)
    }

    /// Reads who types in the added conversations, as far as the viewer may see.
    async fn read_typing(&self, added: &Added, conversations: Vec<ConversationId>) -> Result<Vec<String>, Error> {
        if added.conversations.is_empty() {
            return Ok(Vec::new());
        }
        let hub = &self.hub;
        let invalidations = hub.registry.borrow().invalidations();
        let answers = hub.functions.typists(self.viewer.clone(), conversations.clone()).await?;
        let is_current = hub.registry.borrow().invalidations() == invalidations;
        let mut typing = Vec::new();
        for (conversation, typists) in conversations.iter().zip(answers) {
            let typists: Vec<(UserId, Time)> = typists?.into_iter().map(|typist| (typist.user, typist.until)).collect();
            if !is_current {
                // Visibility may have changed since the call: the typists are checked again before they are sent.
                hub.registry.borrow_mut().apply_unchecked_typists(self.key, conversation, typists);
                continue;
            }
            typing.extend(typists.iter().map(|(user, until)| events::typing(conversation, user, Some(*until))));
            hub.registry.borrow_mut().apply_typists(self.key, conversation, typists);
        }
        hub.changed.notify_one();
        Ok(typing)
    }

    pub(super) fn unwatch(&self, users: &[UserId], conversations: &[ConversationId]) {
        self.unsubscribe(self.hub.registry.borrow_mut().remove(self.key, users, conversations));
        self.hub.report();
    }

    /// The watched conversations.
    pub(super) fn conversations(&self) -> Vec<ConversationId> {
        self.hub.registry.borrow().conversations_of(self.key)
    }

    fn unsubscribe(&self, idle: Vec<Topic>) {
        if !idle.is_empty() {
            self.hub.topic_subscription.unwatch(&idle);
        }
    }

    pub(super) fn has_updates(&self) -> bool {
        self.hub.registry.borrow().has_updates(self.key)
    }

    /// Returns when there is something to send.
    pub(super) async fn updated(&self) {
        poll_fn(|context| self.hub.registry.borrow_mut().poll_updates(self.key, context)).await;
    }

    /// Takes everything there is to send.
    pub(super) async fn take_updates(&self) -> Updates {
        let mut updates = Updates::default();
        let functions = &self.hub.functions;
        // The second pass adds typists whose visibility had to be checked in the first.
        for _ in 0..2 {
            let collected = self.hub.registry.borrow_mut().collect(self.key);
            updates.presences.extend(collected.presences);
            updates.typing.extend(collected.typing);
            if let (true, Some(viewer)) = (collected.viewer_changed, &self.viewer) {
                // A user sees more of themselves than others do, so the shared payload does not serve.
                let own = functions.look_up(Some(viewer.clone()), vec![viewer.clone()]).await;
                match own.ok().and_then(|answers| answers.into_iter().next()).and_then(Result::ok) {
                    Some(view) => updates.presences.push(presence(viewer, view.as_ref())),
                    None => {
                        self.hub.registry.borrow_mut().mark_unsent(self.key, viewer);
                        self.hub.recheck_soon(viewer.clone());
                    }
                }
            }
            if collected.unchecked_typists.is_empty() {
                return updates;
            }
            let invalidations = self.hub.registry.borrow().invalidations();
            let typists = collected.unchecked_typists;
            let Ok(visibilities) = functions.visibilities(self.viewer.clone(), typists.clone()).await else {
                return updates;
            };
            if self.hub.registry.borrow().invalidations() != invalidations {
                // Visibility may have changed since the call.
                self.hub.registry.borrow_mut().recheck_typists(self.key);
                return updates;
            }
            let visible = typists.into_iter().zip(visibilities).map(|(user, visibility)| (user, visibility.presence));
            self.hub.registry.borrow_mut().set_typist_visibility(self.key, visible.collect());
        }
        updates
    }

    /// The event id from which the client resumes after everything sent so far.
    pub(super) fn resume_id(&self) -> String {
        self.hub.resume_point(self.key).to_string()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.unsubscribe(self.hub.registry.borrow_mut().remove_watcher(self.key));
        self.hub.report();
    }
}
