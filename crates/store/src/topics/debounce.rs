//! Signs of typing that came too fast: when to look at them again. Plain data; whoever has a clock and a thread drives
//! it.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use rollcall_core::{ConversationId, UserId};

/// The most that wait at once. Whoever comes beyond that is not looked at again: what was told of them ends by itself.
const MAX_WAITING: usize = 65_536;

/// Who typed where.
pub type Place = (ConversationId, UserId);

/// What is to be looked at again, and when: each place once.
#[derive(Debug, Default)]
pub struct Debounce {
    due: BTreeSet<(Instant, Place)>,
    waiting: HashSet<Place>,
}

impl Debounce {
    /// Looks at this place after so long, unless it is going to be looked at anyway. True: it is the first of all to
    /// come.
    pub fn add(&mut self, place: Place, now: Instant, after: Duration) -> bool {
        if self.waiting.len() >= MAX_WAITING || !self.waiting.insert(place.clone()) {
            return false;
        }
        let at = now + after;
        let is_first = self.next().is_none_or(|next| at < next);
        self.due.insert((at, place));
        is_first
    }

    /// When the next is due; none: nothing waits.
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes what is due, the earliest first, and no more than this.
    pub fn take(&mut self, now: Instant, limit: usize) -> Vec<Place> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && self.next().is_some_and(|next| next <= now)
            && let Some((_, place)) = self.due.pop_first()
        {
            self.waiting.remove(&place);
            taken.push(place);
        }
        taken
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        (ConversationId::parse("c").unwrap(), UserId::parse(name).unwrap())
    }

    #[test]
    fn each_place_waits_once_and_comes_when_it_is_due() {
        let (mut debounce, now, ms) = (Debounce::default(), Instant::now(), Duration::from_millis);
        assert!(debounce.add(place("bob"), now, ms(500)));
        assert!(!debounce.add(place("bob"), now, ms(100)), "one at a time");
        assert!(!debounce.add(place("eve"), now, ms(700)));
        assert!(debounce.add(place("ann"), now, ms(200)));
        assert!(debounce.take(now + ms(199), 9).is_empty());
        assert_eq!(debounce.take(now + ms(600), 9), [place("ann"), place("bob")]);
        assert_eq!(debounce.next(), Some(now + ms(700)));
        assert_eq!(debounce.take(now + ms(900), 0), []);
        assert!(!debounce.add(place("bob"), now, ms(800)), "it may come again");
        assert_eq!(debounce.take(now + ms(900), 1), [place("eve")]);
        assert_eq!(debounce.take(now + ms(900), 1), [place("bob")]);
    }

    #[test]
    fn no_more_wait_than_the_bound() {
        let (mut debounce, now) = (Debounce::default(), Instant::now());
        for index in 0..MAX_WAITING + 5 {
            debounce.add(place(&format!("user-{index}")), now, Duration::ZERO);
        }
        assert_eq!(debounce.take(now, usize::MAX).len(), MAX_WAITING);
    }
}
