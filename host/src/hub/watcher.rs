//! A watcher: what one connection watches, what it was sent, and which entries are marked as changed.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;

use rollcall_core::visibility::Visibility;
use rollcall_core::{Time, UserId};
use slab::Slab;

use super::payload_cache::CachedPayload;

/// A user that a watcher watches.
#[derive(Debug)]
pub(super) struct UserTarget {
    pub(super) user_key: usize,
    /// The watcher's slot in the user's list of watchers.
    pub(super) slot: usize,
    /// `None` until admitted.
    pub(super) visibility: Option<Visibility>,
    /// The newest record when the watcher was last sent one.
    pub(super) sent: Option<Rc<CachedPayload>>,
    /// The fingerprint of what was sent: see [`super::payload_cache::fingerprint`].
    pub(super) fingerprint: u64,
    /// Whether the watcher was sent a visible state, not that the user is hidden.
    pub(super) shown: bool,
    /// The invalidation that is not answered yet. Until then nothing is sent.
    pub(super) invalidated_at: Option<u64>,
    pub(super) is_dirty: bool,
}

impl UserTarget {
    /// A target that is not admitted yet.
    pub(super) fn new(user_key: usize, slot: usize) -> Self {
        Self {
            user_key,
            slot,
            visibility: None,
            sent: None,
            fingerprint: 0,
            shown: false,
            invalidated_at: None,
            is_dirty: false,
        }
    }
}

/// A conversation that a watcher watches.
#[derive(Debug)]
pub(super) struct ConversationTarget {
    pub(super) conversation_key: usize,
    /// The watcher's slot in the conversation's list of watchers.
    pub(super) slot: usize,
    /// The typists that were sent.
    pub(super) sent: Vec<(UserId, Time)>,
    pub(super) is_dirty: bool,
}

impl ConversationTarget {
    pub(super) fn new(conversation_key: usize, slot: usize) -> Self {
        Self { conversation_key, slot, sent: Vec::new(), is_dirty: false }
    }
}

/// One connection's subscription, as the registry keeps it.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// `None` for a service.
    pub(super) viewer: Option<UserId>,
    pub(super) users: Slab<UserTarget>,
    pub(super) conversations: Slab<ConversationTarget>,
    /// Marked user targets, each once.
    pub(super) dirty_users: Vec<usize>,
    /// Marked conversation targets, each once.
    pub(super) dirty_conversations: Vec<usize>,
    pub(super) waker: Option<Waker>,
    /// All fingerprints, combined by exclusive or.
    pub(super) digest: u64,
    /// Whether the viewer may see a typist, for those who were checked.
    pub(super) visible_typists: HashMap<UserId, bool>,
}

impl Watcher {
    /// Marks an admitted user target and wakes the connection.
    pub(super) fn mark_user(&mut self, index: usize) {
        let Some(target) = self.users.get_mut(index) else { return };
        if target.visibility.is_some() && !std::mem::replace(&mut target.is_dirty, true) {
            self.dirty_users.push(index);
            self.wake();
        }
    }

    /// Marks a conversation target and wakes the connection.
    pub(super) fn mark_conversation(&mut self, index: usize) {
        let Some(target) = self.conversations.get_mut(index) else { return };
        if !std::mem::replace(&mut target.is_dirty, true) {
            self.dirty_conversations.push(index);
            self.wake();
        }
    }

    /// Marks every conversation target and wakes the connection.
    pub(super) fn mark_conversations(&mut self) {
        let targets: Vec<usize> = self.conversations.iter().map(|(index, _)| index).collect();
        targets.into_iter().for_each(|index| self.mark_conversation(index));
    }

    pub(super) fn has_updates(&self) -> bool {
        !self.dirty_users.is_empty() || !self.dirty_conversations.is_empty()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
