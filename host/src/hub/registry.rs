//! Who watches whom on this worker, what is newest about each, and what each watcher has not been told yet.
//!
//! Nothing here waits and nothing here is shared between threads. A watched is here for as long as somebody watches.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_store::Topic;
use slab::Slab;

use super::payload_cache::fingerprint;
use super::watched_conversation::WatchedConversation;
use super::watched_user::{WatchedUser, WatcherSlot};
use super::watcher::{ConversationTarget, Target, Watcher};

/// What more than this watch on one worker is told in slices, with everything else in between.
pub(super) const MAX_UNCHUNKED: usize = 1000;

/// Watchers in a slice: what they are told takes a worker a millisecond or two to write, and so long anybody else waits.
pub(super) const CHUNK: usize = 128;

/// When too many watch somebody for every change to be told at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowds {
    /// Above how many watchers, on all hosts.
    pub(super) above: u64,
    /// How often such a watched is told of at most.
    pub(super) every: Duration,
}

/// How much is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Watchers.
    pub(crate) watchers: i64,
    /// People watched.
    pub(crate) users: i64,
    /// Conversations watched.
    pub(crate) conversations: i64,
}

/// Everybody who watches, and everybody and everything watched.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) users: Slab<WatchedUser>,
    pub(super) users_by_id: HashMap<UserId, usize, foldhash::fast::RandomState>,
    pub(super) conversations: Slab<WatchedConversation>,
    pub(super) conversations_by_id: HashMap<ConversationId, usize, foldhash::fast::RandomState>,
    /// Rooms in which somebody types.
    pub(super) typing_conversations: BTreeSet<usize>,
    /// No sign of typing ends before this.
    pub(super) typing_ends: Option<Time>,
    pub(super) watchers: Slab<Watcher>,
    /// Watchers by through whose eyes they see.
    pub(super) viewers: HashMap<UserId, Vec<usize>, foldhash::fast::RandomState>,
    /// How often anything was doubted.
    pub(super) invalidations: u64,
    /// Where some watchers have been marked and some not, each once.
    pub(super) fan_outs: VecDeque<FanOut>,
    /// People who changed while they are held, by when they may be told of.
    pub(super) held: BTreeSet<(Instant, usize)>,
    pub(super) crowds: Crowds,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    User(usize),
    Conversation(usize),
}

/// How far the watchers of somebody, or of a conversation, have been marked.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) subject: Subject,
    /// From which place on they have not.
    pub(super) from: usize,
    /// There was another change after it began, so that it has to go round once more.
    pub(super) again: bool,
}

/// What a watcher has begun to watch.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// The targets, each with how much was heard of its watched so far.
    pub(super) targets: Vec<AddedUser>,
    pub(super) conversation_targets: Vec<usize>,
    /// Of these, what nobody on this worker is known to listen to.
    pub(super) topics: Vec<Topic>,
}

/// Somebody whom a watcher has begun to watch.
#[derive(Debug)]
pub(super) struct AddedUser {
    pub(super) user: UserId,
    pub(super) index: usize,
    pub(super) received: u64,
}

/// What a watcher is to be told.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// ConnectedDevices, as text.
    pub(super) presences: Vec<Rc<str>>,
    /// Signs of typing, as text.
    pub(super) typing: Vec<String>,
    /// The viewer itself changed, of which it may see more than others: to be asked for.
    pub(super) viewer_changed: bool,
    /// Typists of whom it is not known whether the viewer may see them: to be asked for.
    pub(super) unchecked_typists: Vec<UserId>,
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

    /// A new watcher, who watches nobody yet.
    pub(super) fn enter(&mut self, viewer: Option<UserId>) -> usize {
        let key = self.watchers.insert(Watcher { viewer: viewer.clone(), ..Watcher::default() });
        viewer.into_iter().for_each(|viewer| self.viewers.entry(viewer).or_default().push(key));
        key
    }

    /// A watcher goes. Answers what nobody watches any more.
    pub(super) fn leave(&mut self, watcher_id: usize) -> Vec<Topic> {
        let Some(gone) = self.watchers.try_remove(watcher_id) else { return Vec::new() };
        if let Some(viewer) = &gone.viewer
            && let Some(same) = self.viewers.get_mut(viewer)
        {
            same.retain(|key| *key != watcher_id);
            if same.is_empty() {
                self.viewers.remove(viewer);
            }
        }
        let mut idle = Vec::new();
        idle.extend(gone.targets.iter().filter_map(|(_, target)| self.remove_watcher(target.user_key, target.slot)));
        idle.extend(
            gone.conversation_targets
                .iter()
                .filter_map(|(_, target)| self.remove_conversation_watcher(target.conversation_key, target.slot)),
        );
        idle
    }

    /// How many people a watcher watches.
    pub(super) fn watching(&self, watcher_id: usize) -> usize {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.targets.len())
    }

    /// How many conversations a watcher watches.
    pub(super) fn watched_conversations(&self, watcher_id: usize) -> usize {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.conversation_targets.len())
    }

    /// The conversations that a watcher watches.
    pub(super) fn conversations(&self, watcher_id: usize) -> Vec<ConversationId> {
        let targets = self.watchers.get(watcher_id).into_iter().flat_map(|watcher| watcher.conversation_targets.iter());
        targets
            .filter_map(|(_, target)| Some(self.conversations.get(target.conversation_key)?.conversation.clone()))
            .collect()
    }

    /// Puts people and conversations under a watcher's eyes, except those that are there. Nothing is told of them before
    /// they are admitted, but they stay.
    pub(super) fn add(&mut self, watcher_id: usize, users: Vec<UserId>, conversations: Vec<ConversationId>) -> Added {
        let mut added = Added::default();
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return added };
        for user in users {
            let key = match self.users_by_id.get(&user) {
                Some(key) => *key,
                None => {
                    let key = self.users.insert(WatchedUser::new(user.clone()));
                    self.users_by_id.insert(user.clone(), key);
                    key
                }
            };
            let Some(watched) = self.users.get_mut(key) else { continue };
            if watcher.targets.iter().any(|(_, target)| target.user_key == key) {
                continue;
            }
            let index = watcher.targets.vacant_key();
            let slot = watched.watchers.insert(WatcherSlot { watcher_id, index });
            watcher.targets.insert(Target::new(key, slot));
            if !watched.subscribed {
                added.topics.push(Topic::Person(user.clone()));
            }
            added.targets.push(AddedUser { user, index, received: watched.received });
        }
        for conversation in conversations {
            let key = match self.conversations_by_id.get(&conversation) {
                Some(key) => *key,
                None => {
                    let key = self.conversations.insert(WatchedConversation::new(conversation.clone()));
                    self.conversations_by_id.insert(conversation.clone(), key);
                    key
                }
            };
            let Some(watched) = self.conversations.get_mut(key) else { continue };
            if watcher.conversation_targets.iter().any(|(_, target)| target.conversation_key == key) {
                continue;
            }
            let index = watcher.conversation_targets.vacant_key();
            let slot = watched.watchers.insert(WatcherSlot { watcher_id, index });
            added.conversation_targets.push(watcher.conversation_targets.insert(ConversationTarget {
                conversation_key: key,
                slot,
                sent: Vec::new(),
                is_dirty: false,
            }));
            if !watched.subscribed {
                added.topics.push(Topic::Conversation(conversation));
            }
        }
        added
    }

    /// These topics are listened to, for as long as anybody watches.
    pub(super) fn subscribed(&mut self, topics: &[Topic]) {
        for topic in topics {
            match topic {
                Topic::Person(user) => {
                    let watched = self.users_by_id.get(user).and_then(|key| self.users.get_mut(*key));
                    watched.into_iter().for_each(|watched| watched.subscribed = true);
                }
                Topic::Conversation(conversation) => {
                    let conversation =
                        self.conversations_by_id.get(conversation).and_then(|key| self.conversations.get_mut(*key));
                    conversation.into_iter().for_each(|conversation| conversation.subscribed = true);
                }
            }
        }
    }

    /// Takes what was added away again. Answers what nobody watches any more.
    pub(super) fn undo(&mut self, watcher_id: usize, added: &Added) -> Vec<Topic> {
        let mut idle = Vec::new();
        for added_user in &added.targets {
            idle.extend(self.drop_target(watcher_id, added_user.index));
        }
        for target in &added.conversation_targets {
            idle.extend(self.drop_conversation_target(watcher_id, *target));
        }
        idle
    }

    /// Takes people and conversations from under a watcher's eyes. Answers what nobody watches any more.
    pub(super) fn remove(
        &mut self,
        watcher_id: usize,
        users: &[UserId],
        conversations: &[ConversationId],
    ) -> Vec<Topic> {
        let mut idle = Vec::new();
        let Some(watcher) = self.watchers.get(watcher_id) else { return idle };
        let users = users.iter().filter_map(|user| self.users_by_id.get(user));
        let at =
            |key: &usize| watcher.targets.iter().find(|(_, target)| target.user_key == *key).map(|(index, _)| index);
        let targets: Vec<usize> = users.filter_map(at).collect();
        let conversations = conversations.iter().filter_map(|conversation| self.conversations_by_id.get(conversation));
        let at = |key: &usize| {
            watcher
                .conversation_targets
                .iter()
                .find(|(_, target)| target.conversation_key == *key)
                .map(|(index, _)| index)
        };
        let conversation_targets: Vec<usize> = conversations.filter_map(at).collect();
        targets.into_iter().for_each(|index| idle.extend(self.drop_target(watcher_id, index)));
        conversation_targets
            .into_iter()
            .for_each(|index| idle.extend(self.drop_conversation_target(watcher_id, index)));
        idle
    }

    fn drop_target(&mut self, watcher_id: usize, index: usize) -> Option<Topic> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let target = watcher.targets.try_remove(index)?;
        watcher.digest ^= target.fingerprint;
        watcher.dirty.retain(|dirty| *dirty != index);
        self.remove_watcher(target.user_key, target.slot)
    }

    fn drop_conversation_target(&mut self, watcher_id: usize, index: usize) -> Option<Topic> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let target = watcher.conversation_targets.try_remove(index)?;
        watcher.dirty_conversations.retain(|dirty| *dirty != index);
        self.remove_conversation_watcher(target.conversation_key, target.slot)
    }

    /// Somebody watches this watched no longer.
    fn remove_watcher(&mut self, key: usize, slot: usize) -> Option<Topic> {
        let watched = self.users.get_mut(key)?;
        watched.watchers.try_remove(slot);
        if !watched.watchers.is_empty() {
            return None;
        }
        let watched = self.users.try_remove(key)?;
        self.users_by_id.remove(&watched.user);
        self.held.retain(|(_, held)| *held != key);
        self.fan_outs.retain(|fan_out| fan_out.subject != Subject::User(key));
        Some(Topic::Person(watched.user))
    }

    /// Somebody watches this conversation no longer.
    fn remove_conversation_watcher(&mut self, key: usize, slot: usize) -> Option<Topic> {
        let conversation = self.conversations.get_mut(key)?;
        conversation.watchers.try_remove(slot);
        if !conversation.watchers.is_empty() {
            return None;
        }
        let conversation = self.conversations.try_remove(key)?;
        self.conversations_by_id.remove(&conversation.conversation);
        self.typing_conversations.remove(&key);
        self.fan_outs.retain(|fan_out| fan_out.subject != Subject::Conversation(key));
        Some(Topic::Conversation(conversation.conversation))
    }

    /// Admits a target: what was read of it, as the viewer may see it, and how much of the rest the viewer may see. Answers
    /// what to show, which is newer if news came meanwhile. It may be admitted again, if what the viewer may see has changed.
    pub(super) fn admit(
        &mut self,
        watcher_id: usize,
        added_user: &AddedUser,
        view: Option<&View>,
        visibility: Visibility,
        now: Instant,
    ) -> Option<SnapshotEntry> {
        let watcher = self.watchers.get_mut(watcher_id)?;
        let viewer_changed = watcher.viewer.as_ref() == Some(&added_user.user);
        let target = watcher.targets.get_mut(added_user.index)?;
        let watched = self.users.get_mut(target.user_key)?;
        // Only whoever may see everything brings what everybody can be told.
        let mut is_new = false;
        if let (Some(view), Visibility { presence: true, last_seen: true }) = (view, visibility) {
            is_new = watched.apply_read(view.published.clone(), added_user.received);
        }
        let key = target.user_key;
        target.visibility = Some(visibility);
        target.shown = visibility.presence;
        target.sent.clone_from(&watched.newest);
        let newer = watched.newest.as_ref().filter(|newest| {
            !viewer_changed
                && visibility.presence
                && view.is_none_or(|view| newest.published.version > view.published.version)
        });
        let published = match newer {
            Some(newest) => mask(newest.published.clone(), visibility),
            None => view.map(|view| view.published.clone()),
        };
        let fingerprint = fingerprint(&added_user.user, published.as_ref());
        watcher.digest ^= std::mem::replace(&mut target.fingerprint, fingerprint) ^ fingerprint;
        let text = match newer.and_then(|newest| newest.payload(&added_user.user, visibility)) {
            Some(text) => text,
            None => super::payload_cache::presence(&added_user.user, view),
        };
        // Those who watched before have not been told of what the newcomer found.
        if is_new {
            self.announce(key, now);
        }
        // When somebody went offline is when they were last seen: where that is hidden, nobody learns whether it is since.
        let published = published.filter(|published| visibility.last_seen || published.state != State::Offline);
        Some(SnapshotEntry { text, published })
    }
}

/// What a watcher is shown of somebody at first.
#[derive(Debug)]
pub(super) struct SnapshotEntry {
    pub(super) text: Rc<str>,
    /// None: hidden, or so that nobody may learn when it came about.
    pub(super) published: Option<Published>,
}
