//! What comes in, and who is to be told of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rollcall_api::events;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{ConversationId, Published, Time, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_store::Typed;
use slab::Slab;

use super::payload_cache::{fingerprint, presence};
use super::queries::Watched;
use super::registry::{CHUNK, Collected, FanOut, MAX_UNCHUNKED, Registry, Sizes, Subject};
use super::watched_conversation::WatchedConversation;
use super::watched_user::{WatchedUser, WatcherSlot};
use super::watcher::Watcher;

/// RestrictionCheck on typists that one watcher remembers, unless more than that type.
const MAX_REMEMBERED: usize = 256;

/// Typists whom a watcher is told of in one conversation: more at once nobody could read.
const MAX_SHOWN: usize = 64;

impl Registry {
    /// Takes what a topic tells of a watched.
    pub(super) fn receive(&mut self, change: &Change, now: Instant) {
        let Some(key) = self.users_by_id.get(&change.user).copied() else { return };
        if self.users.get_mut(key).is_some_and(|watched| watched.receive(&change.published)) {
            self.announce(key, now);
        }
    }

    /// Takes what was read of a watched, asked for when so much had been heard. True: somebody has to be told.
    pub(super) fn apply_read(&mut self, user: &UserId, published: Published, received: u64, now: Instant) -> bool {
        let Some(key) = self.users_by_id.get(user).copied() else { return false };
        let is_new = self.users.get_mut(key).is_some_and(|watched| watched.apply_read(published, received));
        if is_new {
            self.announce(key, now);
        }
        is_new
    }

    /// Marks everybody who watches this watched, at once or as soon as may be.
    pub(super) fn announce(&mut self, key: usize, now: Instant) {
        let Some(watched) = self.users.get_mut(key) else { return };
        if watched.total.max(watched.watchers.len() as u64) > self.crowds.above {
            if let Some(until) = watched.held_until.filter(|until| *until > now) {
                if !std::mem::replace(&mut watched.is_held, true) {
                    self.held.insert((until, key));
                }
                return;
            }
            watched.held_until = Some(now + self.crowds.every);
        }
        self.mark(Subject::User(key));
    }

    /// Marks everybody who watches this, at once if they are few.
    fn mark(&mut self, subject: Subject) {
        let Some(watchers) = slots(&self.users, &self.conversations, subject) else { return };
        if watchers.len() > MAX_UNCHUNKED {
            // One that is on its way is left to end, or those at its end would never be reached; then it goes round again.
            match self.fan_outs.iter_mut().find(|fan_out| fan_out.subject == subject) {
                Some(fan_out) => fan_out.again |= fan_out.from > 0,
                None => self.fan_outs.push_back(FanOut { subject, from: 0, again: false }),
            }
            return;
        }
        for (_, slot) in watchers {
            touch(&mut self.watchers, subject, *slot);
        }
    }

    /// Whether there are watchers still to be marked.
    pub(super) fn is_fanning_out(&self) -> bool {
        !self.fan_outs.is_empty()
    }

    /// Marks the next slice of watchers.
    pub(super) fn fan_out_chunk(&mut self) {
        let Some(mut fan_out) = self.fan_outs.pop_front() else { return };
        let Some(watchers) = slots(&self.users, &self.conversations, fan_out.subject) else { return };
        let end = watchers.capacity().min(fan_out.from + CHUNK);
        for slot in (fan_out.from..end).filter_map(|index| watchers.get(index)) {
            touch(&mut self.watchers, fan_out.subject, *slot);
        }
        fan_out.from = end;
        if end >= watchers.capacity() {
            if !std::mem::take(&mut fan_out.again) {
                return;
            }
            fan_out.from = 0;
        }
        self.fan_outs.push_back(fan_out);
    }

    /// When somebody who is held may be told of.
    pub(super) fn next_release(&self) -> Option<Instant> {
        self.held.first().map(|(at, _)| *at)
    }

    /// Tells of those who were held until now.
    pub(super) fn release(&mut self, now: Instant) {
        while let Some((at, key)) = self.held.first().copied()
            && at <= now
        {
            self.held.remove(&(at, key));
            if let Some(watched) = self.users.get_mut(key) {
                watched.is_held = false;
            }
            self.announce(key, now);
        }
    }

    /// Takes what a topic tells of somebody typing.
    pub(super) fn receive_typing(&mut self, typed: &Typed) {
        let Some(key) = self.conversations_by_id.get(&typed.conversation).copied() else { return };
        if self.conversations.get_mut(key).is_some_and(|conversation| conversation.receive(typed)) {
            self.typists_changed(key);
        }
    }

    /// Takes who types in a conversation without saying who of them this watcher may see: it is asked when it is told.
    pub(super) fn apply_unchecked_typists(
        &mut self,
        watcher_id: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.conversations_by_id.get(conversation).copied() else { return };
        if self.conversations.get_mut(key).is_some_and(|conversation| conversation.apply_read(typists)) {
            self.typists_changed(key);
        }
        self.recheck_typists(watcher_id);
    }

    /// Takes who types in a conversation as far as this watcher may see, and as it is told at this moment.
    pub(super) fn apply_typists(
        &mut self,
        watcher_id: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.conversations_by_id.get(conversation).copied() else { return };
        self.remember(watcher_id, typists.iter().map(|(user, _)| (user.clone(), true)).collect());
        if let Some(watcher) = self.watchers.get_mut(watcher_id) {
            let target = watcher.conversation_targets.iter_mut().find(|(_, target)| target.conversation_key == key);
            target.into_iter().for_each(|(_, target)| target.sent.clone_from(&typists));
        }
        if self.conversations.get_mut(key).is_some_and(|conversation| conversation.apply_read(typists)) {
            self.typists_changed(key);
        }
    }

    /// Before this no sign of typing ends by itself; then it is worth looking.
    pub(super) fn typing_ends(&self) -> Option<Time> {
        self.typing_ends
    }

    /// Forgets signs of typing that have ended.
    pub(super) fn expire_typing(&mut self, now: Time) {
        if self.typing_ends.is_none_or(|ends| ends > now) {
            return;
        }
        self.typing_ends = None;
        for key in std::mem::take(&mut self.typing_conversations) {
            let Some(conversation) = self.conversations.get_mut(key) else { continue };
            let changed = conversation.expire(now);
            if changed {
                self.typists_changed(key);
            } else {
                let ends = conversation.typists.iter().map(|(_, until)| *until).min();
                self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
                self.typing_conversations.insert(key);
            }
        }
    }

    /// Who types somewhere has changed.
    fn typists_changed(&mut self, key: usize) {
        let Some(conversation) = self.conversations.get(key) else { return };
        if conversation.typists.is_empty() {
            self.typing_conversations.remove(&key);
        } else {
            self.typing_conversations.insert(key);
        }
        let ends = conversation.typists.iter().map(|(_, until)| *until).min();
        self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
        self.mark(Subject::Conversation(key));
    }

    /// Whether there is something to tell this watcher.
    pub(super) fn has_updates(&self, watcher_id: usize) -> bool {
        self.watchers.get(watcher_id).is_some_and(Watcher::has_updates)
    }

    /// Ready when there is something to tell this watcher, or when it is gone.
    pub(super) fn poll_updates(&mut self, watcher_id: usize, context: &Context<'_>) -> Poll<()> {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return Poll::Ready(()) };
        if watcher.has_updates() {
            return Poll::Ready(());
        }
        if !watcher.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            watcher.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Takes everything that there is to tell this watcher: of each watched what is newest, and no more than that.
    pub(super) fn collect(&mut self, watcher_id: usize) -> Collected {
        let mut collected = Collected::default();
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return collected };
        for index in std::mem::take(&mut watcher.dirty) {
            let Some(target) = watcher.targets.get_mut(index) else { continue };
            target.is_dirty = false;
            let Some(watched) = self.users.get(target.user_key) else { continue };
            // What is told of whoever is doubted is decided with the verdict.
            let Some(visibility) = target.visibility.filter(|_| target.invalidated_at.is_none()) else { continue };
            if !visibility.presence && std::mem::take(&mut target.shown) {
                collected.presences.push(presence(&watched.user, None));
                let fingerprint = fingerprint(&watched.user, None);
                watcher.digest ^= std::mem::replace(&mut target.fingerprint, fingerprint) ^ fingerprint;
            }
            let Some(newest) = &watched.newest else { continue };
            if target.sent.as_ref().is_some_and(|sent| Rc::ptr_eq(sent, newest)) {
                continue;
            }
            target.sent = Some(Rc::clone(newest));
            let fingerprint = visible_fingerprint(&watched.user, &newest.published, visibility);
            let before = std::mem::replace(&mut target.fingerprint, fingerprint);
            watcher.digest ^= before ^ fingerprint;
            if watcher.viewer.as_ref() == Some(&watched.user) {
                collected.viewer_changed = true;
            } else if let Some(text) = newest.payload(&watched.user, visibility) {
                // What looks the same to this viewer is no news, and that there was some could be just what is hidden.
                if !std::mem::replace(&mut target.shown, true) || before != fingerprint {
                    collected.presences.push(text);
                }
            }
        }
        self.collect_typing(watcher_id, &mut collected);
        collected
    }

    fn collect_typing(&mut self, watcher_id: usize, collected: &mut Collected) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        for index in std::mem::take(&mut watcher.dirty_conversations) {
            let Some(target) = watcher.conversation_targets.get_mut(index) else { continue };
            target.is_dirty = false;
            let Some(conversation) = self.conversations.get(target.conversation_key) else { continue };
            let (mut seen, asked_before) = (Vec::new(), collected.unchecked_typists.len());
            for (user, until) in conversation.typists.iter().filter(|(user, _)| watcher.viewer.as_ref() != Some(user)) {
                if seen.len() + collected.unchecked_typists.len() - asked_before >= MAX_SHOWN {
                    break;
                }
                match watcher.typist_visibility.get(user) {
                    Some(true) => seen.push((user.clone(), *until)),
                    Some(false) => {}
                    None => collected.unchecked_typists.push(user.clone()),
                }
            }
            let name = &conversation.conversation;
            for (user, _) in target.sent.iter().filter(|(user, _)| !seen.iter().any(|(other, _)| other == user)) {
                collected.typing.push(events::typing(name, user, None));
            }
            for (user, until) in seen.iter().filter(|typist| !target.sent.contains(typist)) {
                collected.typing.push(events::typing(name, user, Some(*until)));
            }
            target.sent = seen;
        }
    }

    /// Takes whether a watcher may see these typists.
    pub(super) fn set_typist_visibility(&mut self, watcher_id: usize, typists: Vec<(UserId, bool)>) {
        self.remember(watcher_id, typists);
        self.recheck_typists(watcher_id);
    }

    /// Asks again who of the typists may be seen.
    pub(super) fn recheck_typists(&mut self, watcher_id: usize) {
        self.watchers.get_mut(watcher_id).into_iter().for_each(Watcher::mark_conversations);
    }

    /// Remembers whether a watcher may see these typists, and forgets those who do not type, where there are many: what is
    /// asked for at this moment is never forgotten, or it would be asked for for ever.
    fn remember(&mut self, watcher_id: usize, typists: Vec<(UserId, bool)>) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        if watcher.typist_visibility.len() + typists.len() > MAX_REMEMBERED {
            let conversations = watcher
                .conversation_targets
                .iter()
                .filter_map(|(_, target)| self.conversations.get(target.conversation_key));
            let now: HashSet<&UserId> =
                conversations.flat_map(|conversation| conversation.typists.iter().map(|(user, _)| user)).collect();
            watcher.typist_visibility.retain(|user, _| now.contains(user));
        }
        watcher.typist_visibility.extend(typists);
    }

    /// What all that this watcher was told comes to: see [`fingerprint`].
    pub(super) fn digest(&self, watcher_id: usize) -> u64 {
        self.watchers.get(watcher_id).map_or(0, |watcher| watcher.digest)
    }

    /// Tells whoever watches this watched and was not told of what is newest.
    pub(super) fn announce_again(&mut self, user: &UserId, now: Instant) {
        if let Some(key) = self.users_by_id.get(user).copied() {
            self.announce(key, now);
        }
    }

    /// A watcher could not be told of this watched after all.
    pub(super) fn mark_unsent(&mut self, watcher_id: usize, user: &UserId) {
        let (Some(watcher), Some(key)) = (self.watchers.get_mut(watcher_id), self.users_by_id.get(user)) else {
            return;
        };
        let target = watcher.targets.iter_mut().find(|(_, target)| target.user_key == *key);
        if let Some((_, target)) = target {
            target.sent = None;
            watcher.digest ^= std::mem::take(&mut target.fingerprint);
        }
    }

    /// How many pages of so many people there are: see [`Registry::page`].
    pub(super) fn page_count(&self, limit: usize) -> usize {
        self.users.capacity().div_ceil(limit).max(1)
    }

    /// A few of the people who are watched, each with how much was heard of them, and where to go on.
    pub(super) fn page_of_users(&self, from: usize, limit: usize) -> (Vec<(UserId, u64)>, Option<usize>) {
        let end = self.users.capacity().min(from + limit);
        let users = (from..end).filter_map(|key| self.users.get(key));
        let page = users.map(|watched| (watched.user.clone(), watched.received)).collect();
        (page, (end < self.users.capacity()).then_some(end))
    }

    /// These people, each with how much was heard of them, if they are watched.
    pub(super) fn watched_users(&self, users: Vec<UserId>) -> Vec<(UserId, u64)> {
        let received = |user: &UserId| Some(self.users.get(*self.users_by_id.get(user)?)?.received);
        users.into_iter().filter_map(|user| received(&user).map(|received| (user, received))).collect()
    }

    /// People with at least so many watchers on this worker, and how many they have.
    pub(super) fn popular(&self, at_least: usize) -> Vec<(UserId, u32)> {
        let users = self.users.iter().filter(|(_, watched)| watched.watchers.len() >= at_least);
        users.map(|(_, watched)| (watched.user.clone(), watched.watchers.len() as u32)).collect()
    }

    /// Whom most watch on this worker, in no particular order. It looks at everybody once.
    pub(super) fn most_watched(&self, limit: usize) -> Vec<UserId> {
        let mut most = BinaryHeap::with_capacity(limit + 1);
        for (_, watched) in &self.users {
            most.push(Reverse((watched.watchers.len(), Reverse(&watched.user))));
            if most.len() > limit {
                most.pop();
            }
        }
        most.into_iter().map(|Reverse((_, Reverse(user)))| user.clone()).collect()
    }

    /// How many watch this watched on this worker, and on all hosts if that is counted.
    pub(super) fn watched(&self, user: &UserId) -> Watched {
        let watched = self.users_by_id.get(user).and_then(|key| self.users.get(*key));
        let counts = |watched: &WatchedUser| Watched { here: watched.watchers.len() as u64, total: watched.total };
        watched.map(counts).unwrap_or_default()
    }

    /// How many watch this watched on all hosts.
    pub(super) fn set_total(&mut self, user: &UserId, total: u64) {
        if let Some(watched) = self.users_by_id.get(user).and_then(|key| self.users.get_mut(*key)) {
            watched.total = total;
        }
    }

    /// Of whoever has fewer watchers than that on this worker, nobody counts how many there are elsewhere.
    pub(super) fn clear_totals(&mut self, fewer_than: usize) {
        let few = self.users.iter_mut().filter(|(_, watched)| watched.watchers.len() < fewer_than);
        few.for_each(|(_, watched)| watched.total = 0);
    }

    /// How much is watched.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            watchers: self.watchers.len() as i64,
            users: self.users.len() as i64,
            conversations: self.conversations.len() as i64,
        }
    }
}

/// The places of everybody who watches this.
fn slots<'a>(
    users: &'a Slab<WatchedUser>,
    conversations: &'a Slab<WatchedConversation>,
    subject: Subject,
) -> Option<&'a Slab<WatcherSlot>> {
    match subject {
        Subject::User(key) => users.get(key).map(|watched| &watched.watchers),
        Subject::Conversation(key) => conversations.get(key).map(|conversation| &conversation.watchers),
    }
}

/// Marks one watcher.
fn touch(watchers: &mut Slab<Watcher>, subject: Subject, slot: WatcherSlot) {
    let Some(watcher) = watchers.get_mut(slot.watcher_id) else { return };
    match subject {
        Subject::User(_) => watcher.mark(slot.index),
        Subject::Conversation(_) => watcher.mark_conversation(slot.index),
    }
}

/// The fingerprint of what a viewer with this much visibility sees of a presence.
pub(super) fn visible_fingerprint(user: &UserId, published: &Published, visibility: Visibility) -> u64 {
    fingerprint(user, mask(published.clone(), visibility).as_ref())
}
