//! Typing: when one user's typing in one conversation is published.
//!
//! A typing signal ends by itself at an instant. Watchers receive that instant, so that its end needs no message. Every
//! other change is published, but at most once per [`PUBLISH_INTERVAL`]. Faster changes are debounced: the store keeps the
//! newest, looks again once publishing is allowed (a *flush*), and publishes what is true then if it differs from what was
//! published.

use crate::{Span, Time};

/// The shortest time between two publications about one user in one conversation.
pub const PUBLISH_INTERVAL: Span = Span(1000);

/// The most users whose typing is kept per conversation.
pub const MAX_TYPISTS: usize = 1024;

/// The typing of one user in one conversation. `Default` is a user who never typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypingRecord {
    /// The user types until this instant.
    pub until: Time,
    /// When this was last published.
    pub published_at: Time,
    /// The `until` that was last published.
    pub published_until: Time,
}

/// What to do after a signal or a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypingAction {
    /// Nothing: what was published is true.
    Nothing,
    /// Publish until when the user types; `None` means they do not.
    Publish(Option<Time>),
    /// Flush after this span.
    Flush(Span),
}

impl TypingRecord {
    /// The user types for `lasts` from now, unless another signal follows; zero means they stopped.
    pub fn signal(&mut self, now: Time, lasts: Span) -> TypingAction {
        self.until = if lasts == Span(0) { Time(0) } else { now + lasts };
        self.flush(now)
    }

    /// Publishes what is true, if it differs from what was published and the interval has passed.
    pub fn flush(&mut self, now: Time) -> TypingAction {
        let truth = self.types_until(now);
        if truth == running(self.published_until, now) {
            return TypingAction::Nothing;
        }
        let since = now - self.published_at;
        // `published_at` may be in the future, because the clocks of two hosts differ a little; then `since` is zero.
        if self.published_at != Time(0) && since < PUBLISH_INTERVAL {
            return TypingAction::Flush(Span(PUBLISH_INTERVAL.0 - since.0));
        }
        self.published_at = now;
        self.published_until = truth.unwrap_or_default();
        TypingAction::Publish(truth)
    }

    /// Until when the user types; `None` if they do not.
    pub fn types_until(&self, now: Time) -> Option<Time> {
        running(self.until, now)
    }

    /// When this record can be dropped: from then on it equals the default.
    pub fn forget_at(&self) -> Time {
        let allowed = if self.published_at == Time(0) { Time(0) } else { self.published_at + PUBLISH_INTERVAL };
        self.until.max(self.published_until).max(allowed)
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
    fn start_is_published_at_once_refresh_debounced() {
        let mut record = TypingRecord::default();
        assert_eq!(record.signal(NOW, FIVE), TypingAction::Publish(Some(NOW + FIVE)));
        assert_eq!(record.signal(NOW + Span(400), FIVE), TypingAction::Flush(Span(600)));
        assert_eq!(record.flush(NOW + Span(999)), TypingAction::Flush(Span(1)));
        assert_eq!(
            record.flush(NOW + Span(1000)),
            TypingAction::Publish(Some(NOW + Span(5400))),
            "watchers know the end"
        );
        assert_eq!(record.flush(NOW + Span(9000)), TypingAction::Nothing, "the end needs no update");
    }

    #[test]
    fn stop_is_published_only_if_effective() {
        let mut record = TypingRecord::default();
        assert_eq!(record.signal(NOW, Span(0)), TypingAction::Nothing);
        record.signal(NOW, Span(2000));
        assert_eq!(record.signal(NOW + Span(1500), Span(0)), TypingAction::Publish(None));
        record.signal(NOW + Span(3000), Span(2000));
        assert_eq!(record.signal(NOW + Span(5000), Span(0)), TypingAction::Nothing);
    }

    #[test]
    fn undone_change_is_never_published() {
        let mut record = TypingRecord::default();
        record.signal(NOW, FIVE);
        assert_eq!(record.signal(NOW + Span(100), Span(0)), TypingAction::Flush(Span(900)));
        assert_eq!(
            record.signal(NOW + Span(200), Span(4800)),
            TypingAction::Nothing,
            "the published end is still right"
        );
        assert_eq!(record.flush(NOW + Span(1000)), TypingAction::Nothing);
    }

    #[test]
    fn clock_behind_waits_one_interval() {
        let mut record = TypingRecord::default();
        record.signal(NOW, FIVE);
        assert_eq!(record.signal(Time(NOW.0 - 50), FIVE), TypingAction::Flush(PUBLISH_INTERVAL));
    }

    #[test]
    fn record_is_dropped_when_it_expires() {
        let mut record = TypingRecord::default();
        assert_eq!(record.forget_at(), Time(0));
        record.signal(NOW, Span(300));
        assert_eq!(record.forget_at(), NOW + PUBLISH_INTERVAL, "the next start must still wait");
        record.signal(NOW, FIVE);
        assert_eq!(record.forget_at(), NOW + FIVE);
    }
}
