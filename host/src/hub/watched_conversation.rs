//! A watched conversation: who types in it, and its watchers on this worker.

use rollcall_core::{ConversationId, Time, UserId};
use rollcall_store::PublishedTyping;
use slab::Slab;

use super::watched_user::WatcherSlot;

/// A watched conversation.
#[derive(Debug)]
pub(super) struct WatchedConversation {
    pub(super) id: ConversationId,
    /// Who types, and when the signal ends.
    pub(super) typists: Vec<(UserId, Time)>,
    /// Whether this worker is subscribed to the topic.
    pub(super) subscribed: bool,
    pub(super) watchers: Slab<WatcherSlot>,
}

impl WatchedConversation {
    pub(super) fn new(id: ConversationId) -> Self {
        Self { id, typists: Vec::new(), subscribed: false, watchers: Slab::new() }
    }

    /// Applies a published signal. Returns false if it changes nothing.
    pub(super) fn receive(&mut self, typing: &PublishedTyping) -> bool {
        let slot = self.typists.iter().position(|(user, _)| *user == typing.user);
        match (slot.and_then(|slot| self.typists.get_mut(slot)), typing.until) {
            (Some((_, known)), Some(until)) => std::mem::replace(known, until) != until,
            (None, Some(until)) => {
                self.typists.push((typing.user.clone(), until));
                true
            }
            (Some(_), None) => {
                self.typists.retain(|(user, _)| *user != typing.user);
                true
            }
            (None, None) => false,
        }
    }

    /// Applies a read, which has only the typists visible to the reader. Returns false if it changes nothing.
    pub(super) fn apply_read(&mut self, typists: Vec<(UserId, Time)>) -> bool {
        let mut changed = false;
        for (user, until) in typists {
            match self.typists.iter_mut().find(|(known, _)| *known == user) {
                Some((_, known)) if *known >= until => {}
                Some((_, known)) => {
                    *known = until;
                    changed = true;
                }
                None => {
                    self.typists.push((user, until));
                    changed = true;
                }
            }
        }
        changed
    }

    /// Removes signals that have ended. Returns false if none had.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = self.typists.len();
        self.typists.retain(|(_, until)| *until > now);
        self.typists.len() < before
    }

    /// When the first signal ends.
    pub(super) fn first_end(&self) -> Option<Time> {
        self.typists.iter().map(|(_, until)| *until).min()
    }
}
