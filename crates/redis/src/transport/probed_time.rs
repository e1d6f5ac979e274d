//! Redis's time and the outage grace in force, between one look at them and the next.
//!
//! The time is kept as what has to be added to the platform's own clock, which only rises. A look narrows that down by
//! when it was asked and when it was answered. There is no task that looks from time to time; whoever needs the time
//! finds out how old the last look is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::keyspace::ProbeReply;
use rollcall_core::{Moment, OutageGrace, Time};

/// A look that is older tells the time no longer: clocks drift, and instances are put to sleep.
const TOO_OLD_US: u64 = 30_000_000;

/// After so long there is another look, on the way.
const OLD_US: u64 = 1_000_000;

/// How much the last look is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// It tells the time.
    Fresh,
    /// It tells the time, and whoever sends something looks again on the way.
    Old,
    /// There was none, or too long ago: look before anything else.
    Unknown,
}

/// When something was sent and answered, on the platform's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) sent_us: u64,
    pub(crate) answered_us: u64,
}

/// That Redis could not be reached, as it is reported to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    /// When that began, on Redis's clock; 0 if it was not known.
    pub(crate) since: Time,
    /// How often it happened.
    times: u64,
}

/// What is known of Redis's time.
#[derive(Debug, Default)]
pub(crate) struct ProbedTime(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Redis's time when the platform's clock was at zero, and when that was last found to be so, on that clock.
    at_zero: Option<(i64, u64)>,
    /// The latest time that was told.
    told_us: u64,
    outage_grace: Option<OutageGrace>,
    failure: Option<Failure>,
}

impl Known {
    /// Redis's time at an instant of the platform's clock; none before the first look.
    fn at(&self, ticks_us: u64) -> Option<u64> {
        self.at_zero.map(|(at_zero, _)| at_zero.saturating_add_unsigned(ticks_us).max(0) as u64)
    }

    /// The same time, or the latest that was told if that is later.
    fn tell(&mut self, now_us: u64) -> u64 {
        self.told_us = self.told_us.max(now_us);
        self.told_us
    }
}

impl ProbedTime {
    /// How much the last look is worth. While a failure is to be reported there has to be another.
    pub(crate) fn age(&self, ticks_us: u64) -> Age {
        let known = self.lock();
        match known.at_zero.map(|(_, looked_us)| ticks_us.saturating_sub(looked_us)) {
            None => Age::Unknown,
            Some(age) if age > TOO_OLD_US => Age::Unknown,
            Some(age) if age > OLD_US || known.failure.is_some() => Age::Old,
            Some(_) => Age::Fresh,
        }
    }

    /// Redis's time in microseconds, as far as it is known. It never goes back.
    pub(crate) fn now_us(&self, ticks_us: u64) -> u64 {
        let mut known = self.lock();
        let now = known.at(ticks_us).unwrap_or(0);
        known.tell(now)
    }

    /// This instant, with the outage grace that was in force at the last look if it still is.
    pub(crate) fn moment_at(&self, now: Time) -> Moment {
        Moment { now, outage_grace: self.lock().outage_grace.filter(|outage_grace| now < outage_grace.until) }
    }

    /// Takes what a look found, and answers with the time, which is not before what was told. What is known of the time
    /// stays as long as it agrees with the look: a look is only as good as its round trip was short.
    pub(crate) fn take(&self, reached: ProbeReply, asked: Asked, reported: Option<Failure>) -> u64 {
        let mut known = self.lock();
        let said = reached.now_us as i64;
        let earliest = said.saturating_sub_unsigned(asked.answered_us);
        let latest = said.saturating_sub_unsigned(asked.sent_us).max(earliest);
        let at_zero = match known.at_zero {
            Some((before, _)) => before.clamp(earliest, latest),
            None => earliest + (latest - earliest) / 2,
        };
        known.at_zero = Some((at_zero, asked.answered_us));
        known.outage_grace = reached.outage_grace;
        // What failed since it was reported is yet to be.
        if known.failure == reported {
            known.failure = None;
        }
        known.tell(reached.now_us)
    }

    /// Redis could not be reached by what was sent at this instant.
    pub(crate) fn fail(&self, sent_us: u64) {
        let mut known = self.lock();
        let began = Time(known.at(sent_us).unwrap_or(0) / 1000);
        let (since, times) = known.failure.map_or((began, 0), |failure| (failure.since, failure.times));
        known.failure = Some(Failure { since, times: times + 1 });
    }

    /// What is to be reported.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().failure
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing that holds the lock can fail half-way.
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
    fn a_look_is_fresh_for_a_second_and_tells_the_time_for_thirty() {
        let time = ProbedTime::default();
        assert_eq!(time.age(0), Age::Unknown);
        time.take(reached(NOON_US), asked(0, 10), None);
        let ages = [10, 1_000_010, 1_000_011, 30_000_010, 30_000_011].map(|ticks| time.age(ticks));
        assert_eq!(ages, [Age::Fresh, Age::Fresh, Age::Old, Age::Old, Age::Unknown]);
    }

    #[test]
    fn a_wide_look_does_not_move_the_time_and_one_that_disagrees_moves_it_as_far_as_it_must() {
        let time = ProbedTime::default();
        time.take(reached(NOON_US), asked(0, 10), None);
        assert_eq!(time.now_us(1_000), NOON_US + 995);
        time.take(reached(NOON_US + 400_000), asked(0, 900_000), None);
        assert_eq!(time.now_us(900_000), NOON_US + 899_995);
        time.take(reached(NOON_US + 2_000_000), asked(1_000_000, 1_000_010), None);
        assert_eq!(time.now_us(1_000_010), NOON_US + 2_000_000);
    }

    #[test]
    fn time_never_goes_back() {
        let time = ProbedTime::default();
        time.take(reached(NOON_US), asked(0, 0), None);
        let before = time.now_us(5);
        assert_eq!(time.take(reached(NOON_US - 3_600_000_000), asked(5, 5), None), before);
        assert_eq!(time.now_us(6), before);
    }

    #[test]
    fn a_outage_grace_counts_until_it_ends() {
        let time = ProbedTime::default();
        let outage_grace = Some(OutageGrace { since: Time(5), until: Time(NOON_US / 1000 + 1) });
        time.take(ProbeReply { now_us: NOON_US, outage_grace }, asked(0, 0), None);
        assert_eq!(time.moment_at(Time(NOON_US / 1000)).outage_grace, outage_grace);
        assert_eq!(time.moment_at(Time(NOON_US / 1000 + 1)).outage_grace, None);
    }

    #[test]
    fn a_failure_is_reported_from_its_beginning_until_it_was_heard() {
        let time = ProbedTime::default();
        time.fail(3);
        assert_eq!(time.failure().map(|failure| failure.since), Some(Time(0)), "the time was not known");
        time.take(reached(NOON_US), asked(0, 0), time.failure());
        assert_eq!((time.failure(), time.age(0)), (None, Age::Fresh));
        time.fail(2_000);
        assert_eq!(time.age(2_000), Age::Old, "the next to be sent reports it");
        time.fail(9_000);
        let reported = time.failure();
        assert_eq!(reported.map(|failure| failure.since), Some(Time(NOON_US / 1000 + 2)));
        time.fail(9_500);
        time.take(reached(NOON_US + 10_000), asked(10_000, 10_000), reported);
        assert_eq!(time.failure().map(|failure| failure.times), Some(3), "one of them was not heard of");
    }
}
