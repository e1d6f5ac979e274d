//! The store's time is Redis's. A node keeps how far its own clock is from that, so that asking for the time is not a
//! round trip, and a node whose clock is an hour off harms nobody.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use rollcall_core::Time;

use rollcall_store::Clock;

/// Redis's time as this node knows it. It never goes backwards while the process runs, also if the server changes.
#[derive(Debug)]
pub(super) struct RedisTime {
    /// A test's clock, if there is one: then that is the time.
    manual: Option<Clock>,
    started: Instant,
    /// Redis's time at `started`, in microseconds.
    at_start_us: AtomicI64,
    /// The latest time that was told.
    told_us: AtomicU64,
}

/// When a question was sent and answered, in microseconds since the start of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) sent_us: i64,
    pub(super) answered_us: i64,
}

impl RedisTime {
    pub(super) fn new(manual: Option<Clock>) -> Self {
        Self { manual, started: Instant::now(), at_start_us: AtomicI64::new(0), told_us: AtomicU64::new(0) }
    }

    /// The store's time in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        if let Some(clock) = &self.manual {
            return clock.now().0.saturating_mul(1000);
        }
        let now = self.at_start_us.load(Ordering::SeqCst).saturating_add(self.ticks_us()).max(0) as u64;
        self.told_us.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// The store's time.
    pub(super) fn now(&self) -> Time {
        Time(self.now_us() / 1000)
    }

    /// How long the clock runs, in microseconds.
    pub(super) fn ticks_us(&self) -> i64 {
        self.started.elapsed().as_micros() as i64
    }

    /// Takes a sample: Redis said `said_us` at some instant between question and answer. While what is known agrees
    /// with that it stays, because a sample is only as good as its round trip was short; else it is moved until it
    /// agrees.
    pub(super) fn sample(&self, said_us: i64, asked: Asked) {
        let (earliest, latest) = (said_us - asked.answered_us, said_us - asked.sent_us);
        let known = self.at_start_us.load(Ordering::SeqCst);
        let better = if known == 0 { (earliest + latest) / 2 } else { known.clamp(earliest, latest.max(earliest)) };
        self.at_start_us.store(better, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollcall_core::Span;

    const NOON_US: i64 = 1_700_000_000_000_000;

    #[test]
    fn the_first_sample_sets_the_time_and_a_wide_one_does_not_move_it() {
        let time = RedisTime::new(None);
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 10 });
        let known = time.at_start_us.load(Ordering::SeqCst);
        assert_eq!(known, NOON_US - 5);
        time.sample(NOON_US + 400_000, Asked { sent_us: 0, answered_us: 900_000 });
        assert_eq!(time.at_start_us.load(Ordering::SeqCst), known);
        time.sample(NOON_US + 2_000, Asked { sent_us: 1_000, answered_us: 1_010 });
        assert_eq!(time.at_start_us.load(Ordering::SeqCst), NOON_US + 990, "no further than it must");
    }

    #[test]
    fn time_never_goes_back() {
        let time = RedisTime::new(None);
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 0 });
        let before = time.now_us();
        time.sample(NOON_US - 3_600_000_000, Asked { sent_us: 0, answered_us: 0 });
        assert!(time.now_us() >= before);
    }

    #[test]
    fn a_test_may_bring_its_own_clock() {
        let clock = Clock::manual(Time(5));
        let time = RedisTime::new(Some(clock.clone()));
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 0 });
        clock.advance(Span(2));
        assert_eq!((time.now(), time.now_us()), (Time(7), 7_000));
    }
}
