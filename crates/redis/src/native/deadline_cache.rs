//! Whom this process left due a moment ago, so that their next beat need not say it again.
//!
//! It is a hint that is allowed to be wrong: what a beat finds says whether its session is due, and if it is not, the
//! beat is not answered before that was put right. The hint is only there to be right so often that this costs nothing,
//! and to be wrong so seldom that a process killed in the millisecond between the two leaves nothing behind: for as
//! long as a hint is believed, nobody whom it is about can have been dropped. `docs/adr/0011-deadline-cache.md`
//! has the whole argument.
//!
//! A table of a fixed size, of which a person's hash names one line: no lock, no growth, and one cache miss. Who is
//! pushed out of a full line sends one more command.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rollcall_core::{Span, Time};

/// Lines of the table, of eight places each: a line of the processor's cache. Two million places for a million people,
/// so that hardly a line is ever full; 16 MiB, and none before the first beat.
const LINES: usize = 1 << 18;

/// Times are kept in tenths of a second, which are 13 years in 32 bits.
const UNIT_MS: u64 = 100;

/// One line. Each place has the time in its lower half, and of a person's hash, in its upper half, what did not name
/// the line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// Whom this process left due.
pub(super) struct DeadlineCache {
    /// For how many units a hint is believed.
    believed: u32,
    /// Everything up to this instant, in milliseconds, is forgotten.
    forgotten_ms: AtomicU64,
    hasher: foldhash::fast::RandomState,
    lines: OnceLock<Box<[Line]>>,
}

impl DeadlineCache {
    /// `kept` is how long a session is kept at least after it went offline. Whoever drops it may have taken the time as
    /// long before it looked as an answer may take, and a beat may reach the server as much later; so a hint is believed
    /// that much shorter.
    pub(super) fn new(kept: Span, response_timeout: Duration) -> Self {
        let margin_ms = (response_timeout.as_millis() as u64).saturating_mul(2).saturating_add(UNIT_MS);
        let believed = u32::try_from(kept.0.saturating_sub(margin_ms) / UNIT_MS).unwrap_or(u32::MAX);
        let hasher = foldhash::fast::RandomState::default();
        Self { believed, forgotten_ms: AtomicU64::new(0), hasher, lines: OnceLock::new() }
    }

    /// This person was left due by a beat that was begun at this instant.
    pub(super) fn note(&self, user: &str, begun: Time) {
        if self.believed == 0 {
            return;
        }
        let lines = self.lines.get_or_init(|| (0..LINES).map(|_| Line::default()).collect());
        let (Some(Line(places)), tag) = self.places(lines, user) else { return };
        let units = units(begun);
        let age = |kept: u64| units.wrapping_sub(kept as u32);
        // Their own place, or an empty one, or that of whoever is not believed soonest.
        let loaded = places.iter().map(|place| (place, place.load(Ordering::Relaxed)));
        let place = loaded.max_by_key(|(_, kept)| match *kept {
            kept if kept >> 32 == tag => u64::MAX,
            0 => u64::from(u32::MAX) + 1,
            kept => u64::from(age(kept)),
        });
        if let Some((place, _)) = place {
            place.store(tag << 32 | u64::from(units), Ordering::Relaxed);
        }
    }

    /// Whether this person is known to be due, or to wait for their eviction.
    pub(super) fn holds(&self, user: &str, now: Time) -> bool {
        let Some(lines) = self.lines.get() else { return false };
        let (Some(Line(places)), tag) = self.places(lines, user) else { return false };
        let forgotten = Time(self.forgotten_ms.load(Ordering::SeqCst));
        // The store's time may have been set back since: then nothing is believed until it has caught up.
        if now <= forgotten {
            return false;
        }
        let now = units(now);
        let since_forgotten = now.wrapping_sub(units(forgotten));
        let believed = self.believed.min(since_forgotten);
        let kept = places.iter().map(|place| place.load(Ordering::Relaxed)).find(|kept| kept >> 32 == tag);
        kept.is_some_and(|kept| now.wrapping_sub(kept as u32) < believed)
    }

    /// Nothing that was known at this instant is believed any longer: the data may be others.
    pub(super) fn forget(&self, now: Time) {
        self.forgotten_ms.fetch_max(now.0, Ordering::SeqCst);
    }

    fn places<'a>(&self, lines: &'a [Line], user: &str) -> (Option<&'a Line>, u64) {
        let hash = self.hasher.hash_one(user);
        // Zero is an empty place.
        (lines.get(hash as usize % LINES), (hash >> 32).max(1))
    }
}

fn units(time: Time) -> u32 {
    (time.0 / UNIT_MS) as u32
}

impl std::fmt::Debug for DeadlineCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadlineCache").field("believed", &self.believed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time(1_700_000_000_000);
    const ANSWER: Duration = Duration::from_millis(1500);

    fn deadlines() -> DeadlineCache {
        DeadlineCache::new(Span::seconds(60), ANSWER)
    }

    #[test]
    fn a_hint_is_believed_for_less_than_a_session_is_kept() {
        let deadlines = deadlines();
        assert!(!deadlines.holds("bob", NOON));
        deadlines.note("bob", NOON);
        assert!(deadlines.holds("bob", NOON) && !deadlines.holds("eve", NOON));
        assert!(deadlines.holds("bob", NOON + Span(56_700)) && !deadlines.holds("bob", NOON + Span(56_900)));
        deadlines.note("bob", NOON + Span(56_900));
        assert!(deadlines.holds("bob", NOON + Span(60_000)), "a new one takes the place of the old");
    }

    #[test]
    fn where_sessions_are_hardly_kept_nothing_is_believed() {
        for kept in [Span(0), Span(200), Span(3_100)] {
            let deadlines = DeadlineCache::new(kept, ANSWER);
            deadlines.note("bob", NOON);
            assert!(!deadlines.holds("bob", NOON), "{kept:?}");
        }
    }

    #[test]
    fn what_was_known_before_an_outage_is_not_believed_after_it() {
        let deadlines = deadlines();
        deadlines.note("bob", NOON);
        deadlines.forget(NOON + Span(500));
        deadlines.note("eve", NOON + Span(400));
        assert!(!deadlines.holds("bob", NOON + Span(500)));
        assert!(!deadlines.holds("eve", NOON + Span(900)), "begun before, answered after");
        deadlines.note("bob", NOON + Span(700));
        assert!(deadlines.holds("bob", NOON + Span(800)));
    }

    #[test]
    fn a_million_people_have_room() {
        let deadlines = deadlines();
        let name = |person: u32| format!("6f9619ff-8b86-d011-b42d-{person:012}");
        (0..1_000_000).for_each(|person| deadlines.note(&name(person), NOON));
        let known = (0..1_000_000).filter(|person| deadlines.holds(&name(*person), NOON)).count();
        assert!(known > 970_000, "{known}");
        assert!((1_000_000..1_100_000).all(|person| !deadlines.holds(&name(person), NOON)), "and no stranger is known");
    }
}
