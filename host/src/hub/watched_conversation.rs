//! A watched conversation: who types there, and who on this worker watches.

use rollcall_core::{ConversationId, Time, UserId};
use rollcall_store::Typed;
use slab::Slab;

use super::watched_user::WatcherSlot;

/// A watched conversation.
#[derive(Debug)]
pub(super) struct WatchedConversation {
    pub(super) conversation: ConversationId,
    /// Who types, and until when unless they go on.
    pub(super) typists: Vec<(UserId, Time)>,
    /// Whether the topic is known to be listened to.
    pub(super) subscribed: bool,
    pub(super) watchers: Slab<WatcherSlot>,
}

impl WatchedConversation {
    pub(super) fn new(conversation: ConversationId) -> Self {
        Self { conversation, typists: Vec::new(), subscribed: false, watchers: Slab::new() }
    }

    /// Takes what the topic tells. False: nothing changed by it.
    pub(super) fn receive(&mut self, typed: &Typed) -> bool {
        let slot = self.typists.iter().position(|(user, _)| *user == typed.user);
        match (slot.and_then(|slot| self.typists.get_mut(slot)), typed.until) {
            (Some((_, known)), Some(until)) => std::mem::replace(known, until) != until,
            (None, Some(until)) => {
                self.typists.push((typed.user.clone(), until));
                true
            }
            (Some(_), None) => {
                self.typists.retain(|(user, _)| *user != typed.user);
                true
            }
            (None, None) => false,
        }
    }

    /// Takes what was read: part of who types, for not everybody is shown to whoever read it. False: nothing changed by
    /// it.
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

    /// Forgets whose sign has ended. False: nobody's had.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = self.typists.len();
        self.typists.retain(|(_, until)| *until > now);
        self.typists.len() < before
    }
}
