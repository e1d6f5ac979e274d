//! Redis's time and the outage grace in force, between two time probes.
//!
//! No task probes periodically; a call that needs the time checks how old the last probe is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rollcall_core::{Moment, OutageGrace, Time};

use super::redis_time::{RedisTime, RoundTrip};
use crate::keyspace::ProbeReply;

/// A probe older than this is too old to derive the time from: clocks drift, and instances are suspended.
const TOO_OLD_US: u64 = 30_000_000;

/// After this time the next batch carries another probe.
const OLD_US: u64 = 1_000_000;

/// The age of the last probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// It is recent.
    Fresh,
    /// It is recent enough, but the next batch carries another probe.
    Old,
    /// There was none, or it is too old: probe first.
    Unknown,
}

/// Failures to reach Redis, as reported to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// When the first one happened, on Redis's clock; 0 if the time was not known.
    pub(crate) since: Time,
    /// How many there were.
    times: u64,
}

/// What is known from the last probe.
#[derive(Debug, Default)]
pub(crate) struct ProbedTime {
    time: RedisTime,
    last: Mutex<LastProbe>,
}

#[derive(Debug, Default)]
struct LastProbe {
    /// When it was answered, on the platform's clock; `None` before the first.
    answered_us: Option<u64>,
    outage_grace: Option<OutageGrace>,
    failure: Option<Failure>,
}

impl ProbedTime {
    /// The age of the last probe. While a failure is unreported another probe is needed.
    pub(crate) fn age(&self, ticks_us: u64) -> Age {
        let last = self.lock();
        match last.answered_us.map(|answered_us| ticks_us.saturating_sub(answered_us)) {
            None => Age::Unknown,
            Some(age) if age > TOO_OLD_US => Age::Unknown,
            Some(age) if age > OLD_US || last.failure.is_some() => Age::Old,
            Some(_) => Age::Fresh,
        }
    }

    /// Redis's time in microseconds, as far as it is known. It never goes backwards.
    pub(crate) fn now_us(&self, ticks_us: u64) -> u64 {
        self.time.now_us(ticks_us)
    }

    /// This instant, with the outage grace of the last probe if it is still in force.
    pub(crate) fn moment_at(&self, now: Time) -> Moment {
        Moment { now, outage_grace: self.lock().outage_grace.filter(|outage_grace| now < outage_grace.until) }
    }

    /// Takes the reply of a probe and returns the time, never earlier than one returned before.
    pub(crate) fn take(&self, reached: ProbeReply, round_trip: RoundTrip, reported: Option<Failure>) -> u64 {
        let mut last = self.lock();
        self.time.sample(reached.now_us, round_trip);
        last.answered_us = Some(round_trip.answered_us);
        last.outage_grace = reached.outage_grace;
        // Failures since the report was sent still have to be reported.
        if last.failure == reported {
            last.failure = None;
        }
        self.time.advance(reached.now_us)
    }

    /// Records that what was sent at this instant did not reach Redis.
    pub(crate) fn fail(&self, sent_us: u64) {
        let mut last = self.lock();
        let began = Time(self.time.at(sent_us) / 1000);
        let (since, times) = last.failure.map_or((began, 0), |failure| (failure.since, failure.times));
        last.failure = Some(Failure { since, times: times + 1 });
    }

    /// The failure to report.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().failure
    }

    fn lock(&self) -> MutexGuard<'_, LastProbe> {
        // No code panics while it holds the lock.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_US: u64 = 1_700_000_000_000_000;

    fn reached(now_us: u64) -> ProbeReply {
        ProbeReply { now_us, outage_grace: None }
    }

    fn round_trip(sent_us: u64, answered_us: u64) -> RoundTrip {
        RoundTrip { sent_us, answered_us }
    }

    #[test]
    fn probe_tells_the_time_for_thirty_seconds() {
        let time = ProbedTime::default();
        assert_eq!(time.age(0), Age::Unknown);
        time.take(reached(NOON_US), round_trip(0, 10), None);
        let ages = [10, 1_000_010, 1_000_011, 30_000_010, 30_000_011].map(|ticks| time.age(ticks));
        assert_eq!(ages, [Age::Fresh, Age::Fresh, Age::Old, Age::Old, Age::Unknown]);
    }

    #[test]
    fn outage_grace_counts_until_it_ends() {
        let time = ProbedTime::default();
        let outage_grace = Some(OutageGrace { since: Time(5), until: Time(NOON_US / 1000 + 1) });
        time.take(ProbeReply { now_us: NOON_US, outage_grace }, round_trip(0, 0), None);
        assert_eq!(time.moment_at(Time(NOON_US / 1000)).outage_grace, outage_grace);
        assert_eq!(time.moment_at(Time(NOON_US / 1000 + 1)).outage_grace, None);
    }

    #[test]
    fn failure_is_reported_until_acknowledged() {
        let time = ProbedTime::default();
        time.fail(3);
        assert_eq!(time.failure().map(|failure| failure.since), Some(Time(0)), "the time was not known");
        time.take(reached(NOON_US), round_trip(0, 0), time.failure());
        assert_eq!((time.failure(), time.age(0)), (None, Age::Fresh));
        time.fail(2_000);
        assert_eq!(time.age(2_000), Age::Old, "the next batch reports it");
        time.fail(9_000);
        let reported = time.failure();
        assert_eq!(reported.map(|failure| failure.since), Some(Time(NOON_US / 1000 + 2)));
        time.fail(9_500);
        time.take(reached(NOON_US + 10_000), round_trip(10_000, 10_000), reported);
        assert_eq!(time.failure().map(|failure| failure.times), Some(3), "one of them was not reported");
    }
}
