//! The store's time on the host's monotonic clock, or on a test's clock.

use std::time::Instant;

use rollcall_core::Time;
use rollcall_store::Clock;

use crate::transport::{RedisTime, RoundTrip};

/// Redis's time, sampled by the supervisor.
#[derive(Debug)]
pub(super) struct SampledTime {
    /// A test's clock, used instead of Redis's time.
    manual: Option<Clock>,
    started: Instant,
    time: RedisTime,
}

impl SampledTime {
    pub(super) fn new(manual: Option<Clock>) -> Self {
        Self { manual, started: Instant::now(), time: RedisTime::default() }
    }

    /// The store's time in microseconds.
    pub(super) fn now_us(&self) -> u64 {
        match &self.manual {
            Some(clock) => clock.now().0.saturating_mul(1000),
            None => self.time.now_us(self.ticks_us()),
        }
    }

    /// The store's time.
    pub(super) fn now(&self) -> Time {
        Time(self.now_us() / 1000)
    }

    /// How long the clock has been running, in microseconds.
    pub(super) fn ticks_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    /// Takes a sample, see [`RedisTime::sample`].
    pub(super) fn sample(&self, redis_us: u64, round_trip: RoundTrip) {
        self.time.sample(redis_us, round_trip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollcall_core::Span;

    #[test]
    fn manual_clock_replaces_redis_time() {
        let clock = Clock::manual(Time(5));
        let time = SampledTime::new(Some(clock.clone()));
        time.sample(1_700_000_000_000_000, RoundTrip { sent_us: 0, answered_us: 0 });
        clock.advance(Span(2));
        assert_eq!((time.now(), time.now_us()), (Time(7), 7_000));
    }
}
