//! A user's own choice: stance, duration and note.

use crate::derive::{self, derive};
use crate::settle::{Decision, decide, next_version};
use crate::{Choice, Device, Invalid, Moment, Note, Rules, Session, Span, Stance, State, Time};

/// The most bytes of a note's text: one sentence in any script.
pub const MAX_NOTE_BYTES: usize = 140;
/// The most bytes of an emoji: the longest joined sequences take 28.
pub const MAX_EMOJI_BYTES: usize = 32;
/// The longest duration of a choice: a year. A longer one should have no end.
pub const MAX_FOR_S: u32 = 31_536_000;

/// A note as the user writes it, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteContent {
    /// The text; empty only with an emoji.
    pub text: String,
    /// The emoji; empty only with a text.
    pub emoji: String,
}

impl NoteContent {
    /// Checks text and emoji; the error names the field.
    pub fn parse(text: String, emoji: String) -> Result<Self, Invalid> {
        for (field, value, max) in [("text", &text, MAX_NOTE_BYTES), ("emoji", &emoji, MAX_EMOJI_BYTES)] {
            if value.len() > max {
                return Err(Invalid::new(field, format!("is longer than {max} bytes")));
            }
            if value.chars().any(char::is_control) {
                return Err(Invalid::new(field, "contains a control character"));
            }
        }
        if text.is_empty() && emoji.is_empty() {
            return Err(Invalid::new("text", "is empty, and so is the emoji"));
        }
        Ok(Self { text, emoji })
    }
}

/// A request to set the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChoice {
    /// The stance.
    pub stance: Stance,
    /// How long it lasts; `None` means until it is replaced.
    pub lasts: Option<Span>,
    /// The note to show beside the state.
    pub note: Option<NoteContent>,
}

/// Checks the duration of a choice.
pub fn parse_for_s(for_s: Option<u32>) -> Result<Option<Span>, Invalid> {
    match for_s {
        None => Ok(None),
        Some(seconds @ 1..=MAX_FOR_S) => Ok(Some(Span::seconds(u64::from(seconds)))),
        Some(_) => Err(Invalid::new("for_s", format!("is not between 1 and {MAX_FOR_S}"))),
    }
}

/// Replaces the user's choice and publishes what that changes.
pub fn choose(session: &Session, moment: &Moment, rules: &Rules, new: &NewChoice) -> (Choice, Decision) {
    let until = new.lasts.map(|span| moment.now + span);
    let note = new.note.clone().map(|note| Note { text: note.text, emoji: note.emoji, until });
    let choice = Choice { stance: new.stance, at: began(session, moment.now, new.stance), until, note };
    let mut after = session.clone();
    forget_hidden_beats(&mut after, moment);
    after.choice = Some(choice.clone());
    let mut derived = derive(&after, moment, rules);
    // A beat in the same millisecond as this choice was loaded before it, so `invisible` does not hide it.
    derived.last_seen = derived.last_seen.max(derive::last_seen(session));
    if derived.state == State::Offline {
        derived.since = derived.last_seen;
    }
    let mut decision = decide(&after, moment, rules, derived.clone());
    decision.choice = Some(choice.clone());
    decision.lag = Span(0);
    if after.devices.len() < session.devices.len() {
        decision.prune_expired_by = moment.expired_for_certain_by();
        // Pruning removes every dead device, not only the hidden ones, so their last seen must be in the record first.
        let recorded = session.published.as_ref().and_then(|published| published.last_seen);
        if decision.publish.is_none() && derived.last_seen > recorded {
            decision.publish = Some(derived.into_published(next_version(session, moment.now)));
        }
    }
    (choice, decision)
}

/// When the choice began. An invisible that replaces an invisible keeps the first start, so that hidden beats stay hidden.
fn began(session: &Session, now: Time, stance: Stance) -> Time {
    let before = session.choice.as_ref().filter(|before| before.stance_at(now) == stance);
    before.filter(|before| before.stance == Stance::Invisible).map_or(now, |before| before.at)
}

/// Drops dead devices whose last beat was made while invisible: once the choice is replaced, nothing else hides that beat.
fn forget_hidden_beats(session: &mut Session, moment: &Moment) {
    let choice = session.choice.clone();
    let is_hidden = |device: &Device| choice.as_ref().is_some_and(|choice| choice.hid(device.beat_at));
    session.devices.retain(|device| moment.is_alive(device) || !is_hidden(device));
}
