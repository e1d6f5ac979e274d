//! How a person wishes to be seen.

use crate::derive::{self, derive};
use crate::settle::{Decision, decide, next_version};
use crate::{Choice, Device, Invalid, Moment, Note, Rules, Session, Span, Stance, State, Time};

/// The most bytes of a note's text: a sentence, and a few times over in any script.
pub const MAX_NOTE_BYTES: usize = 140;
/// The most bytes of an emoji: the longest joined sequences take 28.
pub const MAX_EMOJI_BYTES: usize = 32;
/// The longest a choice may last before it would better have no end: a year.
pub const MAX_FOR_S: u32 = 31_536_000;

/// A note as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteContent {
    /// The text; empty only with an emoji.
    pub text: String,
    /// The emoji; empty only with a text.
    pub emoji: String,
}

impl NoteContent {
    /// Checks words.
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

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// How to be seen.
    pub stance: Stance,
    /// For how long; none: until replaced.
    pub lasts: Option<Span>,
    /// What to show beside it.
    pub words: Option<NoteContent>,
}

/// Checks how long a choice is to last.
pub fn parse_for_s(for_s: Option<u32>) -> Result<Option<Span>, Invalid> {
    match for_s {
        None => Ok(None),
        Some(seconds @ 1..=MAX_FOR_S) => Ok(Some(Span::seconds(u64::from(seconds)))),
        Some(_) => Err(Invalid::new("for_s", format!("is not between 1 and {MAX_FOR_S}"))),
    }
}

/// Replaces the person's setting and publishes what that changes.
pub fn choose(session: &Session, moment: &Moment, rules: &Rules, wish: &Wish) -> (Choice, Decision) {
    let until = wish.lasts.map(|span| moment.now + span);
    let note = wish.words.clone().map(|words| Note { text: words.text, emoji: words.emoji, until });
    let choice = Choice { stance: wish.stance, at: began(session, moment.now, wish.stance), until, note };
    let mut after = session.clone();
    forget_hidden_beats(&mut after, moment);
    after.choice = Some(choice.clone());
    let mut shown = derive(&after, moment, rules);
    // A beat in the very millisecond of this choice came before it, for it was loaded: `invisible` does not hide it.
    shown.last_seen = shown.last_seen.max(derive::last_seen(session));
    if shown.state == State::Offline {
        shown.since = shown.last_seen;
    }
    let mut decision = decide(&after, moment, rules, shown.clone());
    decision.choice = Some(choice.clone());
    decision.lag = Span(0);
    if after.devices.len() < session.devices.len() {
        decision.prune_expired_by = moment.surely_dead_by();
        // Every dead device goes along with the hidden ones, so what those were seen at must be on record.
        let recorded = session.published.as_ref().and_then(|published| published.last_seen);
        if decision.publish.is_none() && shown.last_seen > recorded {
            decision.publish = Some(shown.into_published(next_version(session, moment.now)));
        }
    }
    (choice, decision)
}

/// Since when the choice holds. Who is invisible and stays so has been since the first time: what was hidden stays.
fn began(session: &Session, now: Time, stance: Stance) -> Time {
    let before = session.choice.as_ref().filter(|before| before.stance_at(now) == stance);
    before.filter(|before| before.stance == Stance::Invisible).map_or(now, |before| before.at)
}

/// A dead device whose last beat was made while invisible must not tell, once the choice that hid it is replaced.
fn forget_hidden_beats(session: &mut Session, moment: &Moment) {
    let choice = session.choice.clone();
    let is_hidden = |device: &Device| choice.as_ref().is_some_and(|choice| choice.hid(device.beat_at));
    session.devices.retain(|device| moment.is_alive(device) || !is_hidden(device));
}
