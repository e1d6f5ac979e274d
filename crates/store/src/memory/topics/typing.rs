//! Typing records, in parts with a lock each. Signals are published under the lock, so that they arrive in order.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rollcall_core::typing::{MAX_TYPISTS, TypingAction, TypingRecord};
use rollcall_core::{ConversationId, Span, Time, UserId};
use rollcall_functions::capabilities::Typist;

use super::PruneThreshold;
use crate::clock::Clock;
use crate::topics::PublishedTyping;
use crate::topics::debounce::TypingKey;
use crate::topics::dispatcher::Dispatcher;

/// The number of parts: several times the number of cores.
const PARTS: usize = 64;

/// The typing records of all conversations.
pub(super) struct TypingRecords {
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
}

#[derive(Default)]
struct Part {
    conversations: HashMap<ConversationId, HashMap<UserId, TypingRecord>, RandomState>,
    /// The number of records, in all conversations.
    count: usize,
    prune_threshold: PruneThreshold,
}

impl TypingRecords {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    /// Stores a signal and publishes it, or returns after how long to flush it.
    pub(super) fn signal(&self, key: &TypingKey, lasts: Span, clock: &Clock, dispatcher: &Dispatcher) -> Option<Span> {
        let mut part = self.part(&key.0).lock();
        // Read under the lock, so that times are in the order of the signals.
        let now = clock.now();
        part.prune(now);
        let action = part.record(key, now, lasts)?.signal(now, lasts);
        apply_action(key, action, dispatcher)
    }

    /// Publishes a debounced signal, or returns after how long to flush it again.
    pub(super) fn flush(&self, key: &TypingKey, clock: &Clock, dispatcher: &Dispatcher) -> Option<Span> {
        let mut part = self.part(&key.0).lock();
        let action = part.conversations.get_mut(&key.0)?.get_mut(&key.1)?.flush(clock.now());
        apply_action(key, action, dispatcher)
    }

    /// The typists of a conversation, sorted by id.
    pub(super) fn typists(&self, conversation: &ConversationId, now: Time) -> Vec<Typist> {
        let part = self.part(conversation).lock();
        let Some(there) = part.conversations.get(conversation) else { return Vec::new() };
        let typist = |(user, record): (&UserId, &TypingRecord)| {
            Some(Typist { user: user.clone(), until: record.types_until(now)? })
        };
        let mut typists: Vec<Typist> = there.iter().filter_map(typist).collect();
        typists.sort_unstable_by(|one, other| one.user.cmp(&other.user));
        typists
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder is below what it was divided by")]
    fn part(&self, conversation: &ConversationId) -> &Mutex<Part> {
        &self.parts[self.hasher.hash_one(conversation) as usize % PARTS]
    }
}

impl Part {
    /// The record of a user in a conversation, created if needed; `None` if there is nothing to store.
    fn record(&mut self, (conversation, user): &TypingKey, now: Time, lasts: Span) -> Option<&mut TypingRecord> {
        if !self.conversations.contains_key(conversation) {
            if lasts == Span(0) {
                return None;
            }
            self.conversations.insert(conversation.clone(), HashMap::new());
        }
        let there = self.conversations.get_mut(conversation)?;
        if !there.contains_key(user) {
            let before = there.len();
            if before >= MAX_TYPISTS {
                there.retain(|_, record| record.forget_at() > now);
            }
            self.count -= before - there.len();
            if lasts == Span(0) || there.len() >= MAX_TYPISTS {
                return None;
            }
            there.insert(user.clone(), TypingRecord::default());
            self.count += 1;
        }
        there.get_mut(user)
    }

    /// Drops expired records, if there are enough records to be worth it.
    fn prune(&mut self, now: Time) {
        if self.prune_threshold.is_exceeded_by(self.count) {
            self.conversations.retain(|_, there| {
                there.retain(|_, record| record.forget_at() > now);
                !there.is_empty()
            });
            self.count = self.conversations.values().map(HashMap::len).sum();
            self.prune_threshold.reset(self.count);
        }
    }
}

/// Publishes if the record says so. Returns after how long to flush.
fn apply_action((conversation, user): &TypingKey, action: TypingAction, dispatcher: &Dispatcher) -> Option<Span> {
    match action {
        TypingAction::Nothing => None,
        TypingAction::Flush(after) => Some(after),
        TypingAction::Publish(until) => {
            dispatcher.publish_typing(PublishedTyping {
                conversation: conversation.clone(),
                user: user.clone(),
                until,
            });
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn key(conversation: &str, user: &str) -> TypingKey {
        (ConversationId::parse(conversation).unwrap(), UserId::parse(user).unwrap())
    }

    #[test]
    fn expired_records_are_pruned() {
        let (records, dispatcher) = (TypingRecords::new(), Dispatcher::new());
        let clock = Clock::manual(Time(1_700_000_000_000));
        for index in 0..100_000 {
            records.signal(
                &key(&format!("c-{}", index / 10), &format!("user-{index}")),
                Span(5000),
                &clock,
                &dispatcher,
            );
            clock.advance(Span(1));
        }
        // Five thousand are live; each part may hold a few more.
        let kept: usize = records.parts.iter().map(|part| part.lock().count).sum();
        assert!(kept <= 2 * 5_000 + PARTS * (super::super::MIN_PRUNE_THRESHOLD + 1), "{kept}");
        let counted = |part: &Mutex<Part>| part.lock().conversations.values().map(HashMap::len).sum::<usize>();
        assert_eq!(kept, records.parts.iter().map(counted).sum::<usize>());
    }

    #[test]
    fn stop_without_typing_stores_nothing() {
        let (records, dispatcher) = (TypingRecords::new(), Dispatcher::new());
        let clock = Clock::manual(Time(1_700_000_000_000));
        assert_eq!(records.signal(&key("c", "bob"), Span(0), &clock, &dispatcher), None);
        assert!(records.parts.iter().all(|part| part.lock().conversations.is_empty()));
    }
}
