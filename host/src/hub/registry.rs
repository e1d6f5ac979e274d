//! The watchers of this worker and what they watch, the newest record of every watched user, and what each watcher has not received yet.
//!
//! Nothing here waits, and nothing is shared between threads. A user is in the registry for as long as a watcher watches
//! them. Fan-out is in `fan_out.rs`, typing in `typing.rs`, changes of visibility in `invalidation.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_store::Topic;
use slab::Slab;

use super::fan_out::{FanOut, Subject};
use super::payload_cache::{fingerprint, presence};
use super::queries::WatcherCounts;
use super::watched_conversation::WatchedConversation;
use super::watched_user::{WatchedUser, WatcherSlot};
use super::watcher::{ConversationTarget, UserTarget, Watcher};

/// When a user has a crowd.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowds {
    /// Above how many watchers, on all hosts.
    pub(super) above: u64,
    /// A crowd receives at most one update per user in this time.
    pub(super) every: Duration,
}

/// How much is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) watchers: i64,
    /// Watched users.
    pub(crate) users: i64,
    /// Watched conversations.
    pub(crate) conversations: i64,
}

/// Every watcher of this worker, and everything they watch.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(super) users: Slab<WatchedUser>,
    pub(super) users_by_id: HashMap<UserId, usize, foldhash::fast::RandomState>,
    pub(super) conversations: Slab<WatchedConversation>,
    pub(super) conversations_by_id: HashMap<ConversationId, usize, foldhash::fast::RandomState>,
    /// Conversations in which a user types.
    pub(super) typing_conversations: BTreeSet<usize>,
    /// No typing signal ends before this.
    pub(super) typing_ends: Option<Time>,
    pub(super) watchers: Slab<Watcher>,
    /// The watchers of each viewer.
    pub(super) viewers: HashMap<UserId, Vec<usize>, foldhash::fast::RandomState>,
    /// How many times visibility was invalidated.
    pub(super) invalidations: u64,
    /// Chunked fan-outs under way, at most one per subject.
    pub(super) fan_outs: VecDeque<FanOut>,
    /// Users of a crowd who changed before their interval was over, by when they are announced.
    pub(super) held: BTreeSet<(Instant, usize)>,
    pub(super) crowds: Crowds,
}

/// What was added to a watcher.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) users: Vec<AddedUser>,
    /// Indexes of conversation targets.
    pub(super) conversations: Vec<usize>,
    /// The topics among these that this worker is not known to be subscribed to.
    pub(super) topics: Vec<Topic>,
}

/// A user who was added to a watcher.
#[derive(Debug)]
pub(super) struct AddedUser {
    pub(super) user: UserId,
    /// The index of the watcher's target.
    pub(super) index: usize,
    /// How many messages had been received about the user: see [`WatchedUser::received`].
    pub(super) received: u64,
}

/// A user's entry in a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotEntry {
    pub(super) payload: Rc<str>,
    /// `None` if hidden, or if the time of the change is hidden.
    pub(super) published: Option<Published>,
}

impl Registry {
    pub(super) fn new(crowds: Crowds) -> Self {
        Self {
            users: Slab::new(),
            users_by_id: HashMap::default(),
            conversations: Slab::new(),
            conversations_by_id: HashMap::default(),
            typing_conversations: BTreeSet::new(),
            typing_ends: None,
            watchers: Slab::new(),
            viewers: HashMap::default(),
            invalidations: 0,
            fan_outs: VecDeque::new(),
            held: BTreeSet::new(),
            crowds,
        }
    }

    /// Adds a watcher that watches nothing yet.
    pub(super) fn add_watcher(&mut self, viewer: Option<UserId>) -> usize {
        let key = self.watchers.insert(Watcher { viewer: viewer.clone(), ..Watcher::default() });
        viewer.into_iter().for_each(|viewer| self.viewers.entry(viewer).or_default().push(key));
        key
    }

    /// Removes a watcher. Returns the topics that have no watcher any more.
    pub(super) fn remove_watcher(&mut self, watcher_id: usize) -> Vec<Topic> {
        let Some(removed) = self.watchers.try_remove(watcher_id) else { return Vec::new() };
        if let Some(viewer) = &removed.viewer
            && let Some(same) = self.viewers.get_mut(viewer)
        {
            same.retain(|key| *key != watcher_id);
            if same.is_empty() {
                self.viewers.remove(viewer);
            }
        }
        let mut idle = Vec::new();
        let users = removed.users.iter().filter_map(|(_, target)| self.remove_user_slot(target.user_key, target.slot));
        idle.extend(users);
        let conversations = removed.conversations.iter();
        idle.extend(
            conversations.filter_map(|(_, target)| self.remove_conversation_slot(target.conversation_key, target.slot)),
        );
        idle
    }

    /// How many users a watcher watches.
    pub(super) fn user_count(&self, watcher_id: usize) -> usize {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.users.len())
    }

    /// How many conversations a watcher watches.
    pub(super) fn conversation_count(&self, watcher_id: usize) -> usize {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.conversations.len())
    }

    /// The conversations a watcher watches.
    pub(super) fn conversations_of(&self, watcher_id: usize) -> Vec<ConversationId> {
        let targets = self.watchers.get(watcher_id).into_iter().flat_map(|watcher| watcher.conversations.iter());
        targets.filter_map(|(_, target)| Some(self.conversations.get(target.conversation_key)?.id.clone())).collect()
    }

    /// Adds users and conversations that the watcher does not watch yet. Nothing is sent about a user before
    /// [`Registry::admit`].
    pub(super) fn add(&mut self, watcher_id: usize, users: Vec<UserId>, conversations: Vec<ConversationId>) -> Added {
        let mut added = Added::default();
        users.into_iter().for_each(|user| self.add_user(watcher_id, user, &mut added));
        conversations.into_iter().for_each(|id| self.add_conversation(watcher_id, id, &mut added));
        added
    }

    fn add_user(&mut self, watcher_id: usize, user: UserId, added: &mut Added) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let key =
            *self.users_by_id.entry(user.clone()).or_insert_with(|| self.users.insert(WatchedUser::new(user.clone())));
        let Some(watched) = self.users.get_mut(key) else { return };
        if watcher.users.iter().any(|(_, target)| target.user_key == key) {
            return;
        }
        let index = watcher.users.vacant_key();
        let slot = watched.watchers.insert(WatcherSlot { watcher_id, index });
        watcher.users.insert(UserTarget::new(key, slot));
        if !watched.subscribed {
            added.topics.push(Topic::User(user.clone()));
        }
        added.users.push(AddedUser { user, index, received: watched.received });
    }

    fn add_conversation(&mut self, watcher_id: usize, id: ConversationId, added: &mut Added) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let insert = || self.conversations.insert(WatchedConversation::new(id.clone()));
        let key = *self.conversations_by_id.entry(id.clone()).or_insert_with(insert);
        let Some(watched) = self.conversations.get_mut(key) else { return };
        if watcher.conversations.iter().any(|(_, target)| target.conversation_key == key) {
            return;
        }
        let index = watcher.conversations.vacant_key();
        let slot = watched.watchers.insert(WatcherSlot { watcher_id, index });
        added.conversations.push(watcher.conversations.insert(ConversationTarget::new(key, slot)));
        if !watched.subscribed {
            added.topics.push(Topic::Conversation(id));
        }
    }

    /// The worker is subscribed to these topics, for as long as they are watched.
    pub(super) fn subscribed(&mut self, topics: &[Topic]) {
        for topic in topics {
            match topic {
                Topic::User(user) => {
                    let watched = self.users_by_id.get(user).and_then(|key| self.users.get_mut(*key));
                    watched.into_iter().for_each(|watched| watched.subscribed = true);
                }
                Topic::Conversation(id) => {
                    let watched = self.conversations_by_id.get(id).and_then(|key| self.conversations.get_mut(*key));
                    watched.into_iter().for_each(|watched| watched.subscribed = true);
                }
            }
        }
    }

    /// Removes what was added. Returns the topics that have no watcher any more.
    pub(super) fn undo(&mut self, watcher_id: usize, added: &Added) -> Vec<Topic> {
        let mut idle = Vec::new();
        for user in &added.users {
            idle.extend(self.remove_user_target(watcher_id, user.index));
        }
        for index in &added.conversations {
            idle.extend(self.remove_conversation_target(watcher_id, *index));
        }
        idle
    }

    /// Removes users and conversations from a watcher. Returns the topics that have no watcher any more.
    pub(super) fn remove(
        &mut self,
        watcher_id: usize,
        users: &[UserId],
        conversations: &[ConversationId],
    ) -> Vec<Topic> {
        let mut idle = Vec::new();
        for key in users.iter().filter_map(|user| self.users_by_id.get(user).copied()).collect::<Vec<_>>() {
            let watcher = self.watchers.get(watcher_id);
            let index = watcher.and_then(|watcher| watcher.users.iter().find(|(_, target)| target.user_key == key));
            if let Some(index) = index.map(|(index, _)| index) {
                idle.extend(self.remove_user_target(watcher_id, index));
            }
        }
        for key in conversations.iter().filter_map(|id| self.conversations_by_id.get(id).copied()).collect::<Vec<_>>() {
            let targets = self.watchers.get(watcher_id).map(|watcher| &watcher.conversations);
            let index = targets.and_then(|targets| targets.iter().find(|(_, target)| target.conversation_key == key));
            if let Some(index) = index.map(|(index, _)| index) {
                idle.extend(self.remove_conversation_target(watcher_id, index));
            }
        }
        idle
    }

    fn remove_user_target(&mut self, watcher_id: usize, index: usize) -> Option<Topic> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let target = watcher.users.try_remove(index)?;
        watcher.digest ^= target.fingerprint;
        watcher.dirty_users.retain(|dirty| *dirty != index);
        self.remove_user_slot(target.user_key, target.slot)
    }

    fn remove_conversation_target(&mut self, watcher_id: usize, index: usize) -> Option<Topic> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let target = watcher.conversations.try_remove(index)?;
        watcher.dirty_conversations.retain(|dirty| *dirty != index);
        self.remove_conversation_slot(target.conversation_key, target.slot)
    }

    /// Removes a watcher of a user, and the user with the last one.
    fn remove_user_slot(&mut self, key: usize, slot: usize) -> Option<Topic> {
        let watched = self.users.get_mut(key)?;
        watched.watchers.try_remove(slot);
        if !watched.watchers.is_empty() {
            return None;
        }
        let watched = self.users.try_remove(key)?;
        self.users_by_id.remove(&watched.user);
        self.held.retain(|(_, held)| *held != key);
        self.fan_outs.retain(|fan_out| fan_out.subject != Subject::User(key));
        Some(Topic::User(watched.user))
    }

    /// Removes a watcher of a conversation, and the conversation with the last one.
    fn remove_conversation_slot(&mut self, key: usize, slot: usize) -> Option<Topic> {
        let watched = self.conversations.get_mut(key)?;
        watched.watchers.try_remove(slot);
        if !watched.watchers.is_empty() {
            return None;
        }
        let watched = self.conversations.try_remove(key)?;
        self.conversations_by_id.remove(&watched.id);
        self.typing_conversations.remove(&key);
        self.fan_outs.retain(|fan_out| fan_out.subject != Subject::Conversation(key));
        Some(Topic::Conversation(watched.id))
    }

    /// Admits an added user with what was read, as the viewer may see it, and the viewer's visibility. Returns the entry for
    /// the snapshot, which is newer than what was read if a message arrived meanwhile. A user is admitted again if the
    /// visibility changed during the read.
    pub(super) fn admit(
        &mut self,
        watcher_id: usize,
        added: &AddedUser,
        view: Option<&View>,
        visibility: Visibility,
        now: Instant,
    ) -> Option<SnapshotEntry> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let is_viewer = watcher.viewer.as_ref() == Some(&added.user);
        let target = watcher.users.get_mut(added.index)?;
        let watched = self.users.get_mut(target.user_key)?;
        // Only what a viewer with full visibility read can be shown to others.
        let mut is_new = false;
        if let (Some(view), Visibility { presence: true, last_seen: true }) = (view, visibility) {
            is_new = watched.apply_read(view.published.clone(), added.received);
        }
        let key = target.user_key;
        target.visibility = Some(visibility);
        target.shown = visibility.presence;
        target.sent.clone_from(&watched.newest);
        let newer = watched.newest.as_ref().filter(|newest| {
            !is_viewer
                && visibility.presence
                && view.is_none_or(|view| newest.published.version > view.published.version)
        });
        let published = match newer {
            Some(newest) => mask(newest.published.clone(), visibility),
            None => view.map(|view| view.published.clone()),
        };
        let fingerprint = fingerprint(&added.user, published.as_ref());
        watcher.digest ^= std::mem::replace(&mut target.fingerprint, fingerprint) ^ fingerprint;
        let payload = match newer.and_then(|newest| newest.payload(&added.user, visibility)) {
            Some(payload) => payload,
            None => presence(&added.user, view),
        };
        // Earlier watchers have not received what this read found.
        if is_new {
            self.announce(key, now);
        }
        // The time of going offline is the last seen: where that is hidden, whether it changed since must not show either.
        let published = published.filter(|published| visibility.last_seen || published.state != State::Offline);
        Some(SnapshotEntry { payload, published })
    }

    /// The combined fingerprint of everything sent to this watcher: see [`fingerprint`].
    pub(super) fn digest(&self, watcher_id: usize) -> u64 {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.digest)
    }

    /// How many pages of this size [`Registry::page_of_users`] has.
    pub(crate) fn page_count(&self, limit: usize) -> usize {
        self.users.capacity().div_ceil(limit).max(1)
    }

    /// A page of watched users, each with how many messages were received about them, and where the next page starts.
    pub(crate) fn page_of_users(&self, from: usize, limit: usize) -> (Vec<(UserId, u64)>, Option<usize>) {
        let end = self.users.capacity().min(from + limit);
        let users = (from..end).filter_map(|key| self.users.get(key));
        let page = users.map(|watched| (watched.user.clone(), watched.received)).collect();
        (page, (end < self.users.capacity()).then_some(end))
    }

    /// Those of these users who are watched, each with how many messages were received about them.
    pub(crate) fn watched_users(&self, users: Vec<UserId>) -> Vec<(UserId, u64)> {
        let received = |user: &UserId| Some(self.users.get(*self.users_by_id.get(user)?)?.received);
        users.into_iter().filter_map(|user| received(&user).map(|received| (user, received))).collect()
    }

    /// Users with at least this many watchers on this worker, and how many they have.
    pub(crate) fn users_with_watchers(&self, at_least: usize) -> Vec<(UserId, u32)> {
        let users = self.users.iter().filter(|(_, watched)| watched.watchers.len() >= at_least);
        users.map(|(_, watched)| (watched.user.clone(), watched.watchers.len() as u32)).collect()
    }

    /// The users with the most watchers on this worker, in no particular order. Looks at every user once.
    pub(crate) fn most_watched(&self, limit: usize) -> Vec<UserId> {
        let mut most = BinaryHeap::with_capacity(limit + 1);
        for (_, watched) in &self.users {
            most.push(Reverse((watched.watchers.len(), Reverse(&watched.user))));
            if most.len() > limit {
                most.pop();
            }
        }
        most.into_iter().map(|Reverse((_, Reverse(user)))| user.clone()).collect()
    }

    /// How many watchers a user has on this worker, and on all hosts if that is counted.
    pub(crate) fn watcher_counts(&self, user: &UserId) -> WatcherCounts {
        let watched = self.users_by_id.get(user).and_then(|key| self.users.get(*key));
        let counts =
            |watched: &WatchedUser| WatcherCounts { here: watched.watchers.len() as u64, total: watched.total };
        watched.map(counts).unwrap_or_default()
    }

    /// Sets how many watchers a user has on all hosts.
    pub(crate) fn set_total(&mut self, user: &UserId, total: u64) {
        if let Some(watched) = self.users_by_id.get(user).and_then(|key| self.users.get_mut(*key)) {
            watched.total = total;
        }
    }

    /// Forgets the totals of users with fewer watchers on this worker: they are not counted.
    pub(crate) fn clear_totals(&mut self, fewer_than: usize) {
        let uncounted = self.users.iter_mut().filter(|(_, watched)| watched.watchers.len() < fewer_than);
        uncounted.for_each(|(_, watched)| watched.total = 0);
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            watchers: self.watchers.len() as i64,
            users: self.users.len() as i64,
            conversations: self.conversations.len() as i64,
        }
    }
}
