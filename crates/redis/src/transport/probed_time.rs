//! Redis's time and the outage grace in force, between two time probes.
//!
//! The time is stored as an offset to the platform's monotonic clock. A probe narrows the offset down by when it was
//! sent and answered. No task probes periodically; a call that needs the time checks how old the last probe is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::keyspace::ProbeReply;
use rollcall_core::{Moment, OutageGrace, Time};

/// A probe older than this does not tell the time: clocks drift, and instances are suspended.
const TOO_OLD_US: u64 = 30_000_000;

/// After this time the next batch carries another probe.
const OLD_US: u64 = 1_000_000;

/// The age of the last probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// It tells the time.
    Fresh,
    /// It tells the time, and the next batch carries another probe.
    Old,
    /// There was none, or it is too old: probe first.
    Unknown,
}

/// When a probe was sent and answered, on the platform's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
}

/// Failures to reach Redis, as reported to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// When the first one happened, on Redis's clock; 0 if the time was not known.
    pub(crate) since: Time,
    /// How many there were.
    times: u64,
}

/// What is known of Redis's time.
#[derive(Debug, Default)]
pub(crate) struct ProbedTime(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Redis's time when the platform's clock was zero, and when that was last confirmed, on that clock.
    at_zero: Option<(i64, u64)>,
    /// The latest time returned.
    latest_us: u64,
    outage_grace: Option<OutageGrace>,
    failure: Option<Failure>,
}

impl Known {
    /// Redis's time at an instant of the platform's clock; `None` before the first probe.
    fn at(&self, ticks_us: u64) -> Option<u64> {
        self.at_zero.map(|(at_zero, _)| at_zero.saturating_add_unsigned(ticks_us).max(0) as u64)
    }

    /// This time, or the latest one returned if that is later.
    fn advance(&mut self, now_us: u64) -> u64 {
        self.latest_us = self.latest_us.max(now_us);
        self.latest_us
    }
}

impl ProbedTime {
    /// The age of the last probe. While a failure is unreported another probe is needed.
    pub(crate) fn age(&self, ticks_us: u64) -> Age {
        let known = self.lock();
        match known.at_zero.map(|(_, probed_us)| ticks_us.saturating_sub(probed_us)) {
            None => Age::Unknown,
            Some(age) if age > TOO_OLD_US => Age::Unknown,
            Some(age) if age > OLD_US || known.failure.is_some() => Age::Old,
            Some(_) => Age::Fresh,
        }
    }

    /// Redis's time in microseconds, as far as it is known. It never goes backwards.
    pub(crate) fn now_us(&self, ticks_us: u64) -> u64 {
        let mut known = self.lock();
        let now = known.at(ticks_us).unwrap_or(0);
        known.advance(now)
    }

    /// This instant, with the outage grace of the last probe if it is still in force.
    pub(crate) fn moment_at(&self, now: Time) -> Moment {
        Moment { now, outage_grace: self.lock().outage_grace.filter(|outage_grace| now < outage_grace.until) }
    }

    /// Takes the reply of a probe and returns the time, never earlier than one returned before. The offset stays while
    /// it agrees with the probe: a probe is only as precise as its round trip is short.
    pub(crate) fn take(&self, reached: ProbeReply, asked: Asked, reported: Option<Failure>) -> u64 {
        let mut known = self.lock();
        let redis_us = reached.now_us as i64;
        let earliest = redis_us.saturating_sub_unsigned(asked.answered_us);
        let latest = redis_us.saturating_sub_unsigned(asked.sent_us).max(earliest);
        let at_zero = match known.at_zero {
            Some((before, _)) => before.clamp(earliest, latest),
            None => earliest + (latest - earliest) / 2,
        };
        known.at_zero = Some((at_zero, asked.answered_us));
        known.outage_grace = reached.outage_grace;
        // Failures since the report was sent still have to be reported.
        if known.failure == reported {
            known.failure = None;
        }
        known.advance(reached.now_us)
    }

    /// Records that what was sent at this instant did not reach Redis.
    pub(crate) fn fail(&self, sent_us: u64) {
        let mut known = self.lock();
        let began = Time(known.at(sent_us).unwrap_or(0) / 1000);
        let (since, times) = known.failure.map_or((began, 0), |failure| (failure.since, failure.times));
        known.failure = Some(Failure { since, times: times + 1 });
    }

    /// The failure to report.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().failure
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_US: u64 = 1_700_000_000_000_000;

    fn reached(now_us: u64) -> ProbeReply {
        ProbeReply { now_us, outage_grace: None }
    }

    fn asked(sent_us: u64, answered_us: u64) -> Asked {
        Asked { sent_us, answered_us }
    }

    #[test]
    fn probe_tells_the_time_for_thirty_seconds() {
        let time = ProbedTime::default();
        assert_eq!(time.age(0), Age::Unknown);
        time.take(reached(NOON_US), asked(0, 10), None);
        let ages = [10, 1_000_010, 1_000_011, 30_000_010, 30_000_011].map(|ticks| time.age(ticks));
        assert_eq!(ages, [Age::Fresh, Age::Fresh, Age::Old, Age::Old, Age::Unknown]);
    }

    #[test]
    fn only_disagreeing_probes_move_the_time() {
        let time = ProbedTime::default();
        time.take(reached(NOON_US), asked(0, 10), None);
        assert_eq!(time.now_us(1_000), NOON_US + 995);
        time.take(reached(NOON_US + 400_000), asked(0, 900_000), None);
        assert_eq!(time.now_us(900_000), NOON_US + 899_995);
        time.take(reached(NOON_US + 2_000_000), asked(1_000_000, 1_000_010), None);
        assert_eq!(time.now_us(1_000_010), NOON_US + 2_000_000);
    }

    #[test]
    fn time_never_goes_backwards() {
        let time = ProbedTime::default();
        time.take(reached(NOON_US), asked(0, 0), None);
        let before = time.now_us(5);
        assert_eq!(time.take(reached(NOON_US - 3_600_000_000), asked(5, 5), None), before);
        assert_eq!(time.now_us(6), before);
    }

    #[test]
    fn outage_grace_counts_until_it_ends() {
        let time = ProbedTime::default();
        let outage_grace = Some(OutageGrace { since: Time(5), until: Time(NOON_US / 1000 + 1) });
        time.take(ProbeReply { now_us: NOON_US, outage_grace }, asked(0, 0), None);
        assert_eq!(time.moment_at(Time(NOON_US / 1000)).outage_grace, outage_grace);
        assert_eq!(time.moment_at(Time(NOON_US / 1000 + 1)).outage_grace, None);
    }

    #[test]
    fn failure_is_reported_until_acknowledged() {
        let time = ProbedTime::default();
        time.fail(3);
        assert_eq!(time.failure().map(|failure| failure.since), Some(Time(0)), "the time was not known");
        time.take(reached(NOON_US), asked(0, 0), time.failure());
        assert_eq!((time.failure(), time.age(0)), (None, Age::Fresh));
        time.fail(2_000);
        assert_eq!(time.age(2_000), Age::Old, "the next batch reports it");
        time.fail(9_000);
        let reported = time.failure();
        assert_eq!(reported.map(|failure| failure.since), Some(Time(NOON_US / 1000 + 2)));
        time.fail(9_500);
        time.take(reached(NOON_US + 10_000), asked(10_000, 10_000), reported);
        assert_eq!(time.failure().map(|failure| failure.times), Some(3), "one of them was not reported");
    }
}
