//! Typing in watched conversations: which signals are known, when they end, and which typists a watcher may see.

use std::collections::HashSet;

use rollcall_api::events;
use rollcall_core::{ConversationId, Time, UserId};
use rollcall_store::PublishedTyping;

use super::fan_out::{Collected, Subject};
use super::registry::Registry;
use super::watcher::Watcher;

/// Typists whose visibility one watcher remembers, unless more than that type.
const MAX_REMEMBERED: usize = 256;

/// Typists sent to a watcher for one conversation. A page cannot usefully show more.
const MAX_SHOWN: usize = 64;

impl Registry {
    /// Applies a typing signal that a topic published.
    pub(crate) fn receive_typing(&mut self, typing: &PublishedTyping) {
        let Some(key) = self.conversations_by_id.get(&typing.conversation).copied() else { return };
        if self.conversations.get_mut(key).is_some_and(|watched| watched.receive(typing)) {
            self.typists_changed(key);
        }
    }

    /// Applies the typists of a conversation. Whether this watcher may see them is checked before they are sent.
    pub(super) fn apply_unchecked_typists(
        &mut self,
        watcher_id: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.conversations_by_id.get(conversation).copied() else { return };
        if self.conversations.get_mut(key).is_some_and(|watched| watched.apply_read(typists)) {
            self.typists_changed(key);
        }
        self.recheck_typists(watcher_id);
    }

    /// Applies the typists of a conversation that this watcher may see and is being sent.
    pub(super) fn apply_typists(
        &mut self,
        watcher_id: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.conversations_by_id.get(conversation).copied() else { return };
        self.remember_visibility(watcher_id, typists.iter().map(|(user, _)| (user.clone(), true)).collect());
        if let Some(watcher) = self.watchers.get_mut(watcher_id) {
            let target = watcher.conversations.iter_mut().find(|(_, target)| target.conversation_key == key);
            target.into_iter().for_each(|(_, target)| target.sent.clone_from(&typists));
        }
        if self.conversations.get_mut(key).is_some_and(|watched| watched.apply_read(typists)) {
            self.typists_changed(key);
        }
    }

    /// No typing signal ends before this.
    pub(crate) fn typing_ends(&self) -> Option<Time> {
        self.typing_ends
    }

    /// Removes typing signals that have ended.
    pub(crate) fn expire_typing(&mut self, now: Time) {
        if self.typing_ends.is_none_or(|ends| ends > now) {
            return;
        }
        self.typing_ends = None;
        for key in std::mem::take(&mut self.typing_conversations) {
            let Some(watched) = self.conversations.get_mut(key) else { continue };
            if watched.expire(now) {
                self.typists_changed(key);
            } else {
                let ends = watched.first_end();
                self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
                self.typing_conversations.insert(key);
            }
        }
    }

    fn typists_changed(&mut self, key: usize) {
        let Some(watched) = self.conversations.get(key) else { return };
        if watched.typists.is_empty() {
            self.typing_conversations.remove(&key);
        } else {
            self.typing_conversations.insert(key);
        }
        let ends = watched.first_end();
        self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
        self.fan_out(Subject::Conversation(key));
    }

    /// Adds a watcher's typing updates to what is collected.
    pub(super) fn collect_typing(&mut self, watcher_id: usize, collected: &mut Collected) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        for index in std::mem::take(&mut watcher.dirty_conversations) {
            let Some(target) = watcher.conversations.get_mut(index) else { continue };
            target.is_dirty = false;
            let Some(watched) = self.conversations.get(target.conversation_key) else { continue };
            let (mut visible, unchecked_before) = (Vec::new(), collected.unchecked_typists.len());
            for (user, until) in watched.typists.iter().filter(|(user, _)| watcher.viewer.as_ref() != Some(user)) {
                if visible.len() + collected.unchecked_typists.len() - unchecked_before >= MAX_SHOWN {
                    break;
                }
                match watcher.visible_typists.get(user) {
                    Some(true) => visible.push((user.clone(), *until)),
                    Some(false) => {}
                    None => collected.unchecked_typists.push(user.clone()),
                }
            }
            let id = &watched.id;
            for (user, _) in target.sent.iter().filter(|(user, _)| !visible.iter().any(|(other, _)| other == user)) {
                collected.typing.push(events::typing(id, user, None));
            }
            for (user, until) in visible.iter().filter(|typist| !target.sent.contains(typist)) {
                collected.typing.push(events::typing(id, user, Some(*until)));
            }
            target.sent = visible;
        }
    }

    /// Applies which of these typists a watcher may see.
    pub(super) fn set_typist_visibility(&mut self, watcher_id: usize, typists: Vec<(UserId, bool)>) {
        self.remember_visibility(watcher_id, typists);
        self.recheck_typists(watcher_id);
    }

    /// Collects the watcher's conversations again.
    pub(super) fn recheck_typists(&mut self, watcher_id: usize) {
        self.watchers.get_mut(watcher_id).into_iter().for_each(Watcher::mark_conversations);
    }

    /// Remembers which typists a watcher may see. Above the limit, users who do not type at present are forgotten; never
    /// those who do, or they would be checked repeatedly.
    fn remember_visibility(&mut self, watcher_id: usize, typists: Vec<(UserId, bool)>) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        if watcher.visible_typists.len() + typists.len() > MAX_REMEMBERED {
            let conversations = watcher.conversations.iter();
            let watched = conversations.filter_map(|(_, target)| self.conversations.get(target.conversation_key));
            let typing: HashSet<&UserId> =
                watched.flat_map(|watched| watched.typists.iter().map(|(user, _)| user)).collect();
            watcher.visible_typists.retain(|user, _| typing.contains(user));
        }
        watcher.visible_typists.extend(typists);
    }
}
