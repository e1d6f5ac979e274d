//! Fan-out: a change marks every watcher of its subject, and each connection collects its marked entries when it can write.
//!
//! There is no queue. A slow connection receives the newest state when it reads again, and costs no more memory than a
//! fast one. A subject with many watchers is fanned out in chunks, with other work in between.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{Published, UserId};
use rollcall_functions::capabilities::PresenceChange;
use slab::Slab;

use super::payload_cache::{fingerprint, looks_same, presence, same_visibility};
use super::registry::Registry;
use super::watched_conversation::WatchedConversation;
use super::watched_user::{WatchedUser, WatcherSlot};
use super::watcher::Watcher;

/// A subject with more watchers than this on one worker is fanned out in chunks.
pub(super) const MAX_UNCHUNKED: usize = 1000;

/// Watchers in a chunk. Writing to them takes a worker one or two milliseconds, for which every other task waits.
pub(super) const CHUNK: usize = 128;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    User(usize),
    Conversation(usize),
}

/// A chunked fan-out under way.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) subject: Subject,
    /// The first slot that is not marked yet.
    from: usize,
    /// The subject changed again after the first chunk: once more from the start.
    again: bool,
}

/// What is to be sent to a watcher, serialised, and what has to be checked first.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) presences: Vec<Rc<str>>,
    pub(super) typing: Vec<String>,
    /// The viewer's own record changed. They see more of it than others, so it is queried.
    pub(super) viewer_changed: bool,
    /// Typists whose visibility has to be checked.
    pub(super) unchecked_typists: Vec<UserId>,
}

impl Registry {
    /// Applies a change that a topic published.
    pub(crate) fn receive(&mut self, change: &PresenceChange, now: Instant) {
        let Some(key) = self.users_by_id.get(&change.user).copied() else { return };
        if self.users.get_mut(key).is_some_and(|watched| watched.receive(&change.published)) {
            self.announce(key, now);
        }
    }

    /// Applies a read record; `received` is the message count when the read began. Returns whether it changed anything.
    pub(super) fn apply_read(&mut self, user: &UserId, published: Published, received: u64, now: Instant) -> bool {
        let Some(key) = self.users_by_id.get(user).copied() else { return false };
        let is_new = self.users.get_mut(key).is_some_and(|watched| watched.apply_read(published, received));
        if is_new {
            self.announce(key, now);
        }
        is_new
    }

    /// Announces a user again to watchers who have not received the newest record.
    pub(crate) fn announce_again(&mut self, user: &UserId, now: Instant) {
        if let Some(key) = self.users_by_id.get(user).copied() {
            self.announce(key, now);
        }
    }

    /// Fans out a user's newest record, at once or, for a crowd, when its interval is over.
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
        self.fan_out(Subject::User(key));
    }

    /// Marks every watcher of a subject: at once, or in chunks if there are many.
    pub(super) fn fan_out(&mut self, subject: Subject) {
        let Some(watchers) = slots(&self.users, &self.conversations, subject) else { return };
        if watchers.len() > MAX_UNCHUNKED {
            // One under way continues, or the last watchers would never be reached; then it starts over.
            match self.fan_outs.iter_mut().find(|fan_out| fan_out.subject == subject) {
                Some(fan_out) => fan_out.again |= fan_out.from > 0,
                None => self.fan_outs.push_back(FanOut { subject, from: 0, again: false }),
            }
            return;
        }
        for (_, slot) in watchers {
            mark(&mut self.watchers, subject, *slot);
        }
    }

    /// Whether chunks are left.
    pub(crate) fn is_fanning_out(&self) -> bool {
        !self.fan_outs.is_empty()
    }

    /// Marks the next chunk of watchers.
    pub(crate) fn fan_out_chunk(&mut self) {
        let Some(mut fan_out) = self.fan_outs.pop_front() else { return };
        let Some(watchers) = slots(&self.users, &self.conversations, fan_out.subject) else { return };
        let end = watchers.capacity().min(fan_out.from + CHUNK);
        for slot in (fan_out.from..end).filter_map(|index| watchers.get(index)) {
            mark(&mut self.watchers, fan_out.subject, *slot);
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

    /// When the next held user is announced.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.held.first().map(|(at, _)| *at)
    }

    /// Announces the users who were held until now.
    pub(crate) fn release(&mut self, now: Instant) {
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

    pub(super) fn has_updates(&self, watcher_id: usize) -> bool {
        self.watchers.get(watcher_id).is_some_and(Watcher::has_updates)
    }

    /// Ready when the watcher has updates, or is gone.
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

    /// Takes a watcher's updates: the newest record of every marked user.
    pub(super) fn collect(&mut self, watcher_id: usize) -> Collected {
        let mut collected = Collected::default();
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return collected };
        for index in std::mem::take(&mut watcher.dirty_users) {
            let Some(target) = watcher.users.get_mut(index) else { continue };
            target.is_dirty = false;
            let Some(watched) = self.users.get(target.user_key) else { continue };
            // An invalidated target waits until its visibility is checked.
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
            let last_sent = target.sent.replace(Rc::clone(newest));
            let fingerprint = visible_fingerprint(&watched.user, &newest.published, visibility);
            let before = std::mem::replace(&mut target.fingerprint, fingerprint);
            watcher.digest ^= before ^ fingerprint;
            if watcher.viewer.as_ref() == Some(&watched.user) {
                collected.viewer_changed = true;
            } else if let Some(payload) = newest.payload(&watched.user, visibility) {
                // What looks the same to this viewer is not sent: that something changed may be just what is hidden. A
                // re-check that reads between a touch and its commit finds the new state early; the commit then only
                // adds its version.
                let was_read_early = same_visibility(before, fingerprint)
                    && last_sent.is_some_and(|last| looks_same(&last.published, &newest.published));
                let looks_new = before != fingerprint && !was_read_early;
                if !std::mem::replace(&mut target.shown, true) || looks_new {
                    collected.presences.push(payload);
                }
            }
        }
        self.collect_typing(watcher_id, &mut collected);
        collected
    }

    /// A collected record could not be sent after all.
    pub(super) fn mark_unsent(&mut self, watcher_id: usize, user: &UserId) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let Some(key) = self.users_by_id.get(user) else { return };
        let target = watcher.users.iter_mut().find(|(_, target)| target.user_key == *key);
        if let Some((_, target)) = target {
            target.sent = None;
            watcher.digest ^= std::mem::take(&mut target.fingerprint);
        }
    }
}

/// The watchers of a subject.
fn slots<'a>(
    users: &'a Slab<WatchedUser>,
    conversations: &'a Slab<WatchedConversation>,
    subject: Subject,
) -> Option<&'a Slab<WatcherSlot>> {
    match subject {
        Subject::User(key) => users.get(key).map(|watched| &watched.watchers),
        Subject::Conversation(key) => conversations.get(key).map(|watched| &watched.watchers),
    }
}

fn mark(watchers: &mut Slab<Watcher>, subject: Subject, slot: WatcherSlot) {
    let Some(watcher) = watchers.get_mut(slot.watcher_id) else { return };
    match subject {
        Subject::User(_) => watcher.mark_user(slot.index),
        Subject::Conversation(_) => watcher.mark_conversation(slot.index),
    }
}

/// The fingerprint of what a viewer with this visibility sees.
fn visible_fingerprint(user: &UserId, published: &Published, visibility: Visibility) -> u64 {
    fingerprint(user, mask(published.clone(), visibility).as_ref())
}
