//! The store's time is Redis's. A process keeps the offset of its own monotonic clock, so that reading the time is not
//! a round trip and a machine whose clock is an hour off does no harm.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Redis's time as this process knows it. It never goes backwards while the process runs, even if the server changes.
#[derive(Debug)]
pub(crate) struct RedisTime {
    /// Redis's time when the process's clock was zero, in microseconds, or [`UNKNOWN`].
    at_zero_us: AtomicI64,
    /// The latest time returned.
    latest_us: AtomicU64,
}

/// No time has been sampled yet.
const UNKNOWN: i64 = i64::MIN;

/// When a request for the time was sent and answered, in microseconds on the process's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
}

impl Default for RedisTime {
    fn default() -> Self {
        Self { at_zero_us: AtomicI64::new(UNKNOWN), latest_us: AtomicU64::new(0) }
    }
}

impl RedisTime {
    /// Redis's time at an instant of the process's clock, in microseconds; 0 while it is not known.
    pub(crate) fn at(&self, ticks_us: u64) -> u64 {
        match self.at_zero_us.load(Ordering::SeqCst) {
            UNKNOWN => 0,
            at_zero_us => at_zero_us.saturating_add_unsigned(ticks_us).max(0) as u64,
        }
    }

    /// The same, but never earlier than a time returned before.
    pub(crate) fn now_us(&self, ticks_us: u64) -> u64 {
        self.advance(self.at(ticks_us))
    }

    /// This time, or the latest one returned if that is later.
    pub(crate) fn advance(&self, now_us: u64) -> u64 {
        self.latest_us.fetch_max(now_us, Ordering::SeqCst).max(now_us)
    }

    /// Takes a sample: Redis's time was `redis_us` at some instant between request and reply. The known offset stays
    /// while it agrees with the sample, because a sample is only as precise as its round trip is short; otherwise it
    /// moves just far enough to agree.
    pub(crate) fn sample(&self, redis_us: u64, round_trip: RoundTrip) {
        let redis_us = redis_us as i64;
        let earliest = redis_us.saturating_sub_unsigned(round_trip.answered_us);
        let latest = redis_us.saturating_sub_unsigned(round_trip.sent_us).max(earliest);
        let at_zero_us = match self.at_zero_us.load(Ordering::SeqCst) {
            UNKNOWN => earliest + (latest - earliest) / 2,
            known => known.clamp(earliest, latest),
        };
        self.at_zero_us.store(at_zero_us, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_US: u64 = 1_700_000_000_000_000;

    #[test]
    fn only_disagreeing_samples_move_the_time() {
        let time = RedisTime::default();
        assert_eq!(time.at(7), 0, "not known yet");
        time.sample(NOON_US, RoundTrip { sent_us: 0, answered_us: 10 });
        assert_eq!(time.at(1_000), NOON_US + 995);
        time.sample(NOON_US + 400_000, RoundTrip { sent_us: 0, answered_us: 900_000 });
        assert_eq!(time.at(1_000), NOON_US + 995, "a wide sample agrees");
        time.sample(NOON_US + 2_000, RoundTrip { sent_us: 1_000, answered_us: 1_010 });
        assert_eq!(time.at(0), NOON_US + 990, "moved no further than needed");
    }

    #[test]
    fn time_never_goes_backwards() {
        let time = RedisTime::default();
        time.sample(NOON_US, RoundTrip { sent_us: 0, answered_us: 0 });
        let before = time.now_us(5);
        time.sample(NOON_US - 3_600_000_000, RoundTrip { sent_us: 5, answered_us: 5 });
        assert_eq!(time.now_us(6), before);
        assert_eq!(time.advance(NOON_US - 1), before);
    }
}
