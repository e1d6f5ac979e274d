//! The store's time is Redis's. A host keeps the offset of its own clock, so that reading the time is not a round trip
//! and a host whose clock is an hour off does no harm.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use rollcall_core::Time;

use rollcall_store::Clock;

/// Redis's time as this host knows it. It never goes backwards while the process runs, even if the server changes.
#[derive(Debug)]
pub(super) struct RedisTime {
    /// A test's clock, used instead of Redis's time.
    manual: Option<Clock>,
    started: Instant,
    /// Redis's time at `started`, in microseconds.
    at_start_us: AtomicI64,
    /// The latest time returned.
    latest_us: AtomicU64,
}

/// When a request was sent and answered, in microseconds since the start of the clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) sent_us: i64,
    pub(super) answered_us: i64,
}

impl RedisTime {
    pub(super) fn new(manual: Option<Clock>) -> Self {
        Self { manual, started: Instant::now(), at_start_us: AtomicI64::new(0), latest_us: AtomicU64::new(0) }
    }

    /// The store's time in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        if let Some(clock) = &self.manual {
            return clock.now().0.saturating_mul(1000);
        }
        let now = self.at_start_us.load(Ordering::SeqCst).saturating_add(self.ticks_us()).max(0) as u64;
        self.latest_us.fetch_max(now, Ordering::SeqCst).max(now)
    }

    /// The store's time.
    pub(super) fn now(&self) -> Time {
        Time(self.now_us() / 1000)
    }

    /// How long the clock has been running, in microseconds.
    pub(super) fn ticks_us(&self) -> i64 {
        self.started.elapsed().as_micros() as i64
    }

    /// Takes a sample: Redis's time was `redis_us` at some instant between request and reply. The known offset stays
    /// while it agrees with the sample, because a sample is only as precise as its round trip is short; otherwise it
    /// moves just far enough to agree.
    pub(super) fn sample(&self, redis_us: i64, asked: Asked) {
        let (earliest, latest) = (redis_us - asked.answered_us, redis_us - asked.sent_us);
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
    fn wide_sample_does_not_move_the_time() {
        let time = RedisTime::new(None);
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 10 });
        let known = time.at_start_us.load(Ordering::SeqCst);
        assert_eq!(known, NOON_US - 5);
        time.sample(NOON_US + 400_000, Asked { sent_us: 0, answered_us: 900_000 });
        assert_eq!(time.at_start_us.load(Ordering::SeqCst), known);
        time.sample(NOON_US + 2_000, Asked { sent_us: 1_000, answered_us: 1_010 });
        assert_eq!(time.at_start_us.load(Ordering::SeqCst), NOON_US + 990, "moved no further than needed");
    }

    #[test]
    fn time_never_goes_backwards() {
        let time = RedisTime::new(None);
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 0 });
        let before = time.now_us();
        time.sample(NOON_US - 3_600_000_000, Asked { sent_us: 0, answered_us: 0 });
        assert!(time.now_us() >= before);
    }

    #[test]
    fn manual_clock_replaces_redis_time() {
        let clock = Clock::manual(Time(5));
        let time = RedisTime::new(Some(clock.clone()));
        time.sample(NOON_US, Asked { sent_us: 0, answered_us: 0 });
        clock.advance(Span(2));
        assert_eq!((time.now(), time.now_us()), (Time(7), 7_000));
    }
}
