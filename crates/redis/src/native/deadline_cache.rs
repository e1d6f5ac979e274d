//! Cache of deadlines this process set recently; lets a beat skip the `ZADD`.
//!
//! It is a hint that may be wrong: what a beat finds says whether its session is due, and if it is not, the deadline is
//! set before the beat is answered. The hint has to be right often enough that this costs nothing, and wrong so rarely
//! that a process killed in the millisecond between the two leaves nothing behind: while a hint is valid, its session
//! cannot have been evicted. `docs/adr/0011-deadline-cache.md` has the whole argument.
//!
//! A hash table of fixed size, of lines with eight places: no lock, no growth, one cache miss. A user displaced from a
//! full line sends one more command.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rollcall_core::{Span, Time};

/// Lines of the table, of eight places each: one cache line of the processor. Two million places for a million users,
/// so that a line is rarely full; 16 MiB, allocated with the first beat.
const LINES: usize = 1 << 18;

/// Times are stored in tenths of a second: 13 years in 32 bits.
const UNIT_MS: u64 = 100;

/// One line. Each place has the time in its lower half and the upper half of the user's hash in its upper half; the
/// lower half of the hash selects the line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

/// The deadlines this process set recently.
pub(super) struct DeadlineCache {
    /// For how many units a hint is valid.
    valid_units: u32,
    /// Hints up to this instant, in milliseconds, are invalid.
    invalid_until_ms: AtomicU64,
    hasher: foldhash::fast::RandomState,
    lines: OnceLock<Box<[Line]>>,
}

impl DeadlineCache {
    /// `kept` is how long a session is kept after it went offline. The evicting host may have taken the time one
    /// response timeout before it looked, and a beat may reach the server one response timeout later; so a hint is
    /// valid for that much less.
    pub(super) fn new(kept: Span, response_timeout: Duration) -> Self {
        let margin_ms = (response_timeout.as_millis() as u64).saturating_mul(2).saturating_add(UNIT_MS);
        let valid_units = u32::try_from(kept.0.saturating_sub(margin_ms) / UNIT_MS).unwrap_or(u32::MAX);
        let hasher = foldhash::fast::RandomState::default();
        Self { valid_units, invalid_until_ms: AtomicU64::new(0), hasher, lines: OnceLock::new() }
    }

    /// A beat begun at this instant set the user's deadline.
    pub(super) fn note(&self, user: &str, begun: Time) {
        if self.valid_units == 0 {
            return;
        }
        let lines = self.lines.get_or_init(|| (0..LINES).map(|_| Line::default()).collect());
        let (Some(Line(places)), tag) = self.places(lines, user) else { return };
        let units = units(begun);
        let age = |kept: u64| units.wrapping_sub(kept as u32);
        // The user's own place, or an empty one, or the oldest.
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

    /// Whether the user is known to be in the due queue or the archive queue.
    pub(super) fn holds(&self, user: &str, now: Time) -> bool {
        let Some(lines) = self.lines.get() else { return false };
        let (Some(Line(places)), tag) = self.places(lines, user) else { return false };
        let invalid_until = Time(self.invalid_until_ms.load(Ordering::SeqCst));
        // The store's time may have been set back: then no hint is valid until it has caught up.
        if now <= invalid_until {
            return false;
        }
        let now = units(now);
        let since_invalid = now.wrapping_sub(units(invalid_until));
        let valid_units = self.valid_units.min(since_invalid);
        let kept = places.iter().map(|place| place.load(Ordering::Relaxed)).find(|kept| kept >> 32 == tag);
        kept.is_some_and(|kept| now.wrapping_sub(kept as u32) < valid_units)
    }

    /// Invalidates all hints up to this instant: the servers may have other data.
    pub(super) fn forget(&self, now: Time) {
        self.invalid_until_ms.fetch_max(now.0, Ordering::SeqCst);
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
        f.debug_struct("DeadlineCache").field("valid_units", &self.valid_units).finish_non_exhaustive()
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
    fn hint_expires_before_its_session_is_evicted() {
        let deadlines = deadlines();
        assert!(!deadlines.holds("bob", NOON));
        deadlines.note("bob", NOON);
        assert!(deadlines.holds("bob", NOON) && !deadlines.holds("eve", NOON));
        assert!(deadlines.holds("bob", NOON + Span(56_700)) && !deadlines.holds("bob", NOON + Span(56_900)));
        deadlines.note("bob", NOON + Span(56_900));
        assert!(deadlines.holds("bob", NOON + Span(60_000)), "a new hint replaces the old one");
    }

    #[test]
    fn short_eviction_disables_hints() {
        for kept in [Span(0), Span(200), Span(3_100)] {
            let deadlines = DeadlineCache::new(kept, ANSWER);
            deadlines.note("bob", NOON);
            assert!(!deadlines.holds("bob", NOON), "{kept:?}");
        }
    }

    #[test]
    fn hints_from_before_an_outage_are_invalid() {
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
    fn a_million_users_fit() {
        let deadlines = deadlines();
        let name = |user: u32| format!("6f9619ff-8b86-d011-b42d-{user:012}");
        (0..1_000_000).for_each(|user| deadlines.note(&name(user), NOON));
        let known = (0..1_000_000).filter(|user| deadlines.holds(&name(*user), NOON)).count();
        assert!(known > 970_000, "{known}");
        assert!(
            (1_000_000..1_100_000).all(|user| !deadlines.holds(&name(user), NOON)),
            "users never noted are not known"
        );
    }
}
