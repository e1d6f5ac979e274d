//! Who types, and when that is told: the rule of one person in one conversation.
//!
//! A sign lasts until an instant and then ends by itself. Those who watch are told that instant, so they need no word
//! when it passes; every other change they are told, but not more often than once in [`TELL_EVERY`]. What comes faster
//! is *coalesced*: it is kept, and whoever keeps it looks again once telling is allowed (a *flush*) and tells whatever
//! is true then, if it is not what was told.

use crate::{Span, Time};

/// How often one person's typing in one conversation is told at most.
pub const TELL_EVERY: Span = Span(1000);

/// The most people whose typing is kept per conversation.
pub const MAX_TYPISTS: usize = 1024;

/// What is kept about one person in one conversation. `Default` is one who never typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypingRecord {
    /// They type until then: over once it has passed.
    pub until: Time,
    /// When it was last told.
    pub told_at: Time,
    /// Until when they type, as it was last told.
    pub told_until: Time,
}

/// What is to be done after a sign or a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing: what was told is true.
    Nothing,
    /// Tell this: until when they type, or that they do not.
    Tell(Option<Time>),
    /// Flush after so long.
    Flush(Span),
}

impl TypingRecord {
    /// They type, for so long from now unless they go on; zero: they stopped.
    pub fn sign(&mut self, now: Time, lasts: Span) -> Next {
        self.until = if lasts == Span(0) { Time(0) } else { now + lasts };
        self.flush(now)
    }

    /// Tells what is true, if it is not what was told and may be told now.
    pub fn flush(&mut self, now: Time) -> Next {
        let truth = self.types_until(now);
        if truth == running(self.told_until, now) {
            return Next::Nothing;
        }
        let since = now - self.told_at;
        // One who never typed, or whose last telling lies in the future, because two hosts do not quite agree on the time.
        if self.told_at != Time(0) && since < TELL_EVERY {
            return Next::Flush(Span(TELL_EVERY.0 - since.0));
        }
        self.told_at = now;
        self.told_until = truth.unwrap_or_default();
        Next::Tell(truth)
    }

    /// Until when they type; none: they do not.
    pub fn types_until(&self, now: Time) -> Option<Time> {
        running(self.until, now)
    }

    /// From when on this says no more than nothing at all would.
    pub fn forget_at(&self) -> Time {
        let allowed = if self.told_at == Time(0) { Time(0) } else { self.told_at + TELL_EVERY };
        self.until.max(self.told_until).max(allowed)
    }
}

fn running(until: Time, now: Time) -> Option<Time> {
    (until > now).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_700_000_000_000);
    const FIVE: Span = Span::seconds(5);

    #[test]
    fn a_start_is_told_at_once_and_a_refresh_a_second_later() {
        let mut record = TypingRecord::default();
        assert_eq!(record.sign(NOW, FIVE), Next::Tell(Some(NOW + FIVE)));
        assert_eq!(record.sign(NOW + Span(400), FIVE), Next::Flush(Span(600)));
        assert_eq!(record.flush(NOW + Span(999)), Next::Flush(Span(1)));
        assert_eq!(record.flush(NOW + Span(1000)), Next::Tell(Some(NOW + Span(5400))), "whoever watches holds the end");
        assert_eq!(record.flush(NOW + Span(9000)), Next::Nothing, "the end itself needs no word");
    }

    #[test]
    fn a_stop_is_told_unless_nothing_that_was_told_still_runs() {
        let mut record = TypingRecord::default();
        assert_eq!(record.sign(NOW, Span(0)), Next::Nothing);
        record.sign(NOW, Span(2000));
        assert_eq!(record.sign(NOW + Span(1500), Span(0)), Next::Tell(None));
        record.sign(NOW + Span(3000), Span(2000));
        assert_eq!(record.sign(NOW + Span(5000), Span(0)), Next::Nothing);
    }

    #[test]
    fn what_is_taken_back_in_time_is_never_told() {
        let mut record = TypingRecord::default();
        record.sign(NOW, FIVE);
        assert_eq!(record.sign(NOW + Span(100), Span(0)), Next::Flush(Span(900)));
        assert_eq!(record.sign(NOW + Span(200), Span(4800)), Next::Nothing, "it ends when they were told it would");
        assert_eq!(record.flush(NOW + Span(1000)), Next::Nothing);
    }

    #[test]
    fn a_clock_that_is_behind_waits_no_longer_than_any() {
        let mut record = TypingRecord::default();
        record.sign(NOW, FIVE);
        assert_eq!(record.sign(Time(NOW.0 - 50), FIVE), Next::Flush(TELL_EVERY));
    }

    #[test]
    fn a_mark_is_forgotten_when_it_says_nothing_more() {
        let mut record = TypingRecord::default();
        assert_eq!(record.forget_at(), Time(0));
        record.sign(NOW, Span(300));
        assert_eq!(record.forget_at(), NOW + TELL_EVERY, "the next start must still wait");
        record.sign(NOW, FIVE);
        assert_eq!(record.forget_at(), NOW + FIVE);
    }
}
