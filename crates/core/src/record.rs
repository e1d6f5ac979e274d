//! A published record as readers get it: without devices and choice, and with what says whether it still holds.
//!
//! The deadline of a session is the first instant at which the derived state can change by itself, and whatever changes
//! it sooner commits a new record. So until the deadline the record is what would be derived, and reading it is enough.

use crate::{Next, Published, Session, Stance, State, Time};

/// What was last published about a user, and whether it still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What was last published.
    pub published: Published,
    /// Whether the session waits for a deadline.
    pub deadline: DeadlineState,
    /// Whether the user's stance is invisible. Meaningless if the deadline has passed.
    pub invisible: bool,
}

/// Whether a session waits for a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineState {
    /// It does not: it is archived, waits for its eviction, or does not exist.
    None,
    /// The deadline is ahead.
    Ahead,
    /// The deadline has passed, or it is not known.
    Passed,
}

impl DeadlineState {
    /// That of a session which waits for this.
    pub fn of(next: Next, now: Time) -> Self {
        match next {
            Next::Settle(at) if at <= now => Self::Passed,
            Next::Settle(_) => Self::Ahead,
            Next::Evict(_) | Next::Nothing => Self::None,
        }
    }
}

impl Record {
    /// The record of a user without stored data.
    pub const NOTHING: Self = Self { published: Published::NOTHING, deadline: DeadlineState::None, invisible: false };

    /// The record of a session.
    pub fn of(session: &Session, now: Time) -> Self {
        let stance = session.choice.as_ref().map_or(Stance::Auto, |choice| choice.stance_at(now));
        Self {
            published: session.published.clone().unwrap_or(Published::NOTHING),
            deadline: DeadlineState::of(session.next, now),
            invisible: stance == Stance::Invisible,
        }
    }

    /// Whether deriving the user now would give this record, apart from beats that are being settled. If not, the session has
    /// to be loaded.
    ///
    /// A beat sets the deadline to its own end, not to now. So an offline user with a deadline may have a beat that is not
    /// published yet, unless the user is invisible: then beats do not show. And a session that waits for its eviction has no
    /// deadline, although its note may end before it is evicted.
    pub fn holds(&self, now: Time) -> bool {
        let is_offline = self.published.state == State::Offline;
        let note_ended = self.published.note.as_ref().and_then(|note| note.until).is_some_and(|until| until <= now);
        match self.deadline {
            _ if note_ended => false,
            DeadlineState::None => is_offline,
            DeadlineState::Ahead => !is_offline || self.invisible,
            DeadlineState::Passed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Note;

    const NOW: Time = Time(100);

    #[test]
    fn record_holds_until_its_deadline() {
        let record = |state, deadline, invisible| Record {
            published: Published { state, ..Published::NOTHING },
            deadline,
            invisible,
        };
        assert!(Record::NOTHING.holds(NOW));
        for state in [State::Online, State::Away, State::Busy] {
            assert!(record(state, DeadlineState::Ahead, false).holds(NOW));
            assert!(!record(state, DeadlineState::None, false).holds(NOW), "a deadline is missing");
            assert!(!record(state, DeadlineState::Passed, false).holds(NOW));
        }
        assert!(!record(State::Offline, DeadlineState::Ahead, false).holds(NOW), "a beat may not be published yet");
        assert!(record(State::Offline, DeadlineState::Ahead, true).holds(NOW));
        assert!(!record(State::Offline, DeadlineState::Passed, true).holds(NOW));
    }
    #[test]
    fn record_with_ended_note_does_not_hold() {
        let noted = |until| {
            let note = Note { text: "back soon".to_owned(), emoji: String::new(), until };
            Record { published: Published { note: Some(note), ..Published::NOTHING }, ..Record::NOTHING }.holds(NOW)
        };
        assert!(noted(None) && noted(Some(Time(101))));
        assert!(!noted(Some(NOW)));
    }
}
