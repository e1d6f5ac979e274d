//! A watcher: one connection's eyes. What it was told of each person, and of whom there is something new.
//!
//! There is no queue. Of each person there is a mark that something changed, and what is told is what is newest when
//! the connection can take it; so a connection that reads slowly costs no more memory than one that reads at once.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;

use rollcall_core::visibility::Visibility;
use rollcall_core::{Time, UserId};
use slab::Slab;

use super::payload_cache::CachedPayload;

/// Somebody who is watched by one watcher.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) user_key: usize,
    /// Where the person keeps this watcher.
    pub(super) slot: usize,
    /// None: not admitted yet.
    pub(super) visibility: Option<Visibility>,
    /// What was newest when the watcher was last told.
    pub(super) sent: Option<Rc<CachedPayload>>,
    /// The fingerprint of what it was told: see [`super::payload_cache::fingerprint`].
    pub(super) fingerprint: u64,
    /// Whether it was told something that can be seen, and not that the person is hidden.
    pub(super) shown: bool,
    /// What the viewer may see may have changed, with this invalidation: nothing is told before it is asked anew.
    pub(super) invalidated_at: Option<u64>,
    pub(super) is_dirty: bool,
}

impl Target {
    /// Somebody who is not admitted yet.
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

/// A conversation that is watched by one watcher.
#[derive(Debug)]
pub(super) struct ConversationTarget {
    pub(super) conversation_key: usize,
    /// Where the room keeps this watcher.
    pub(super) slot: usize,
    /// Who types, as the watcher was told.
    pub(super) sent: Vec<(UserId, Time)>,
    pub(super) is_dirty: bool,
}

/// One connection's eyes.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// Through whose eyes; none: a service's.
    pub(super) viewer: Option<UserId>,
    pub(super) targets: Slab<Target>,
    pub(super) conversation_targets: Slab<ConversationTarget>,
    /// Targets to look at, each once.
    pub(super) dirty: Vec<usize>,
    /// Seats to look at, each once.
    pub(super) dirty_conversations: Vec<usize>,
    pub(super) waker: Option<Waker>,
    /// All traces together.
    pub(super) digest: u64,
    /// Which typists the viewer may see, as far as anybody asked.
    pub(super) typist_visibility: HashMap<UserId, bool>,
}

impl Watcher {
    /// Marks a target that is admitted, and wakes the connection.
    pub(super) fn mark(&mut self, index: usize) {
        let Some(target) = self.targets.get_mut(index) else { return };
        if target.visibility.is_some() && !std::mem::replace(&mut target.is_dirty, true) {
            self.dirty.push(index);
            self.wake();
        }
    }

    /// Marks a seat, and wakes the connection.
    pub(super) fn mark_conversation(&mut self, index: usize) {
        let Some(target) = self.conversation_targets.get_mut(index) else { return };
        if !std::mem::replace(&mut target.is_dirty, true) {
            self.dirty_conversations.push(index);
            self.wake();
        }
    }

    /// Marks every seat, and wakes the connection.
    pub(super) fn mark_conversations(&mut self) {
        let targets: Vec<usize> = self.conversation_targets.iter().map(|(index, _)| index).collect();
        targets.into_iter().for_each(|index| self.mark_conversation(index));
    }

    pub(super) fn has_updates(&self) -> bool {
        !self.dirty.is_empty() || !self.dirty_conversations.is_empty()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
