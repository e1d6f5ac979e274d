//! Debounces typing signals: when to flush those that came too fast. Plain data; the caller provides the clock and the
//! thread.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use rollcall_core::{ConversationId, UserId};

/// The most signals that wait. Further ones are not flushed: what was published about them expires.
const MAX_WAITING: usize = 65_536;

/// A user who types in a conversation.
pub type TypingKey = (ConversationId, UserId);

/// The keys to flush, by instant; each at most once.
#[derive(Debug, Default)]
pub struct Debounce {
    due: BTreeSet<(Instant, TypingKey)>,
    waiting: HashSet<TypingKey>,
}

impl Debounce {
    /// Schedules a flush, unless the key has one. Returns whether it is now the earliest of all.
    pub fn add(&mut self, key: TypingKey, now: Instant, after: Duration) -> bool {
        if self.waiting.len() >= MAX_WAITING || !self.waiting.insert(key.clone()) {
            return false;
        }
        let at = now + after;
        let is_first = self.next().is_none_or(|next| at < next);
        self.due.insert((at, key));
        is_first
    }

    /// When the next flush is due; `None` if nothing waits.
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes up to `limit` keys whose flush is due, the earliest first.
    pub fn take(&mut self, now: Instant, limit: usize) -> Vec<TypingKey> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && self.next().is_some_and(|next| next <= now)
            && let Some((_, key)) = self.due.pop_first()
        {
            self.waiting.remove(&key);
            taken.push(key);
        }
        taken
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn key(name: &str) -> TypingKey {
        (ConversationId::parse("c").unwrap(), UserId::parse(name).unwrap())
    }

    #[test]
    fn each_key_waits_once_until_due() {
        let (mut debounce, now, ms) = (Debounce::default(), Instant::now(), Duration::from_millis);
        assert!(debounce.add(key("bob"), now, ms(500)));
        assert!(!debounce.add(key("bob"), now, ms(100)), "one at a time");
        assert!(!debounce.add(key("eve"), now, ms(700)));
        assert!(debounce.add(key("ann"), now, ms(200)));
        assert!(debounce.take(now + ms(199), 9).is_empty());
        assert_eq!(debounce.take(now + ms(600), 9), [key("ann"), key("bob")]);
        assert_eq!(debounce.next(), Some(now + ms(700)));
        assert_eq!(debounce.take(now + ms(900), 0), []);
        assert!(!debounce.add(key("bob"), now, ms(800)), "it may come again");
        assert_eq!(debounce.take(now + ms(900), 1), [key("eve")]);
        assert_eq!(debounce.take(now + ms(900), 1), [key("bob")]);
    }

    #[test]
    fn waiting_keys_are_limited() {
        let (mut debounce, now) = (Debounce::default(), Instant::now());
        for index in 0..MAX_WAITING + 5 {
            debounce.add(key(&format!("user-{index}")), now, Duration::ZERO);
        }
        assert_eq!(debounce.take(now, usize::MAX).len(), MAX_WAITING);
    }
}
