//! The fields of a user's hash and the format of their values. Short, because memory use counts for millions of users;
//! text, so that `redis-cli` shows something readable.
//!
//! The hash of a user online on one device takes 128 bytes in Redis; one byte more and the allocator takes 160. That is
//! why states and kinds are abbreviated here, and why last seen is relative to the start of its record.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::{Choice, Device, DeviceId, DeviceKind, Note, Published, Stance, State, Time};
use serde::{Deserialize, Serialize};

use crate::keyspace::reply::BadReply;
use crate::keyspace::touch::TouchReply;

/// Every field, as `docs/KEYSPACE.md` lists them.
pub const FIELDS: [&str; 9] = ["f", "r", "n", "h", "w", "c", "t", "d:<device>", "a:<device>"];

/// All that a touch reads: `state version`, then the deadline if the session is due, then `stance until` unless the
/// stance is `auto` without an end.
pub(crate) const PRIOR: &str = "f";
/// The rest of the published record: `since seen`, the latter in milliseconds after the former if there is one. Present
/// if anything was published.
pub(crate) const REST: &str = "r";
/// The published note, as JSON.
pub(crate) const NOTE: &str = "n";
/// When the choice was made. Present if there is one.
pub(crate) const CHOSEN_AT: &str = "h";
/// The note of the choice, as JSON.
pub(crate) const CHOICE_NOTE: &str = "w";
/// Changes with every commit.
pub(crate) const COMMITS: &str = "c";
/// Changes with every touch.
pub(crate) const TOUCHES: &str = "t";
/// Prefix of a device's id: its newest beat without activity, `beat life kind`. A life of `-` has ended, whatever
/// outage grace is in force.
pub(crate) const DEVICE: &str = "d:";
/// Prefix of a device's id: the same for its newest beat with activity; the newer of the two counts. So a beat writes
/// one and need not read the other. After a departure only the time of the last activity is left here.
pub(crate) const ACTIVE: &str = "a:";

/// A missing value.
const NONE: &str = "-";

/// Words for the values of an enum, in both directions from one list, so that neither direction misses one.
macro_rules! words {
    ($kind:ident, $to:ident, $from:ident { $($name:ident = $word:literal),+ }) => {
        pub(crate) fn $to(value: $kind) -> &'static str {
            match value { $($kind::$name => $word),+ }
        }

        pub(crate) fn $from(word: &str) -> Option<$kind> {
            match word { $($word => Some($kind::$name),)+ _ => None }
        }
    };
}

words!(State, state_word, state_of { Online = "on", Away = "away", Busy = "busy", Offline = "off" });
words!(State, state_name, state_named { Online = "online", Away = "away", Busy = "busy", Offline = "offline" });
words!(Stance, stance_word, stance_of { Auto = "auto", Away = "away", Busy = "busy", Invisible = "invisible" });
words!(DeviceKind, kind_word, kind_of { Web = "w", Mobile = "m", Desktop = "d", Other = "o" });

/// A time, or `-` for none.
pub(crate) fn time_text(time: Option<Time>) -> String {
    time.map_or_else(|| NONE.to_owned(), |time| time.0.to_string())
}

fn time_of(text: &str) -> Option<Option<Time>> {
    if text == NONE { Some(None) } else { text.parse().ok().map(|ms| Some(Time(ms))) }
}

/// The first half of [`PRIOR`].
pub(crate) fn record_text(published: &Published) -> String {
    format!("{} {}", state_word(published.state), published.version)
}

/// The second half of [`PRIOR`]; empty for `auto` without an end.
pub(crate) fn stance_text(choice: &Choice) -> String {
    if choice.stance == Stance::Auto && choice.until.is_none() {
        return String::new();
    }
    format!("{} {}", stance_word(choice.stance), time_text(choice.until))
}

pub(crate) fn rest_text(published: &Published) -> String {
    let seen = match (published.since, published.last_seen) {
        (Some(since), Some(seen)) => (i128::from(seen.0) - i128::from(since.0)).to_string(),
        (_, seen) => time_text(seen),
    };
    format!("{} {seen}", time_text(published.since))
}

pub(crate) fn prior_of(text: &str) -> Result<TouchReply, BadReply> {
    let read = || {
        let mut words = text.split(' ');
        let (state, version) = (state_of(words.next()?)?, words.next()?.parse().ok()?);
        // Each optional part has its own number of words, so the number of words says which are present.
        let (due_by, stance) = match (words.next(), words.next(), words.next(), words.next()) {
            (None, ..) => (None, None),
            (Some(due), None, ..) => (Some(due), None),
            (Some(stance), Some(until), None, _) => (None, Some((stance, until))),
            (Some(due), Some(stance), Some(until), None) => (Some(due), Some((stance, until))),
            _ => return None,
        };
        let mut prior = PriorState { state, version, ..PriorState::NOTHING };
        if let Some((stance, until)) = stance {
            (prior.stance, prior.stance_until) = (stance_of(stance)?, time_of(until)?);
        }
        let due_by = due_by.map(str::parse).transpose().ok()?.map(Time);
        Some(TouchReply { prior, due_by })
    };
    read().ok_or(BadReply("the field `f`"))
}

/// Since when, and last seen.
pub(crate) fn rest_of(text: &str) -> Result<(Option<Time>, Option<Time>), BadReply> {
    let read = || {
        let (since, seen) = text.split_once(' ')?;
        let since = time_of(since)?;
        let seen = match since {
            Some(since) if seen != NONE => {
                let at = i128::from(since.0).checked_add(seen.parse().ok()?)?;
                Some(Time(u64::try_from(at).ok()?))
            }
            _ => time_of(seen)?,
        };
        Some((since, seen))
    };
    read().ok_or(BadReply("the field `r`"))
}

pub(crate) fn number_of(text: &str) -> Result<u64, BadReply> {
    text.parse().map_err(|_| BadReply("a number"))
}

/// A device without its last activity, which has its own field.
pub(crate) fn device_of(id: &str, text: &str) -> Result<Device, BadReply> {
    let read = || {
        let mut words = text.split(' ');
        let beat_at: u64 = words.next()?.parse().ok()?;
        let expires_at = match words.next()? {
            NONE => 0,
            life => beat_at.saturating_add(life.parse::<u64>().ok()?),
        };
        let kind = kind_of(words.next()?)?;
        let id = DeviceId::parse(id).ok()?;
        let device = Device { id, kind, beat_at: Time(beat_at), active_at: None, expires_at: Time(expires_at) };
        words.next().is_none().then_some(device)
    };
    read().ok_or(BadReply("a device"))
}

/// A [`Note`] as JSON, in the record, in a choice and in a payload.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NoteJson {
    text: String,
    emoji: String,
    until: Option<u64>,
}

impl From<&Note> for NoteJson {
    fn from(note: &Note) -> Self {
        Self { text: note.text.clone(), emoji: note.emoji.clone(), until: note.until.map(|time| time.0) }
    }
}

impl From<NoteJson> for Note {
    fn from(note: NoteJson) -> Self {
        Self { text: note.text, emoji: note.emoji, until: note.until.map(Time) }
    }
}

/// A note as JSON; empty for none.
pub(crate) fn note_text(note: Option<&Note>) -> String {
    // A struct of text and numbers always serialises.
    note.and_then(|note| serde_json::to_string(&NoteJson::from(note)).ok()).unwrap_or_default()
}

pub(crate) fn note_of(text: &str) -> Result<Note, BadReply> {
    serde_json::from_str::<NoteJson>(text).map(Note::from).map_err(|_| BadReply("a note"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn published(state: State, version: u64) -> Published {
        Published { state, note: None, since: None, last_seen: Some(Time(7)), version }
    }

    #[test]
    fn prior_field_round_trips() {
        for state in [State::Online, State::Away, State::Busy, State::Offline] {
            for stance in [Stance::Auto, Stance::Away, Stance::Busy, Stance::Invisible] {
                for until in [None, Some(Time(u64::MAX))] {
                    let choice = Choice { stance, at: Time(1), until, note: None };
                    let prior = PriorState { state, version: u64::MAX, stance, stance_until: until };
                    for (due, due_by) in [("", None), (" 7", Some(Time(7)))] {
                        let record = record_text(&published(state, u64::MAX));
                        let text = format!("{record}{due} {}", stance_text(&choice));
                        assert_eq!(prior_of(text.trim_end()), Ok(TouchReply { prior, due_by }), "{text}");
                    }
                }
            }
        }
        assert_eq!(prior_of("off 0"), Ok(TouchReply { prior: PriorState::NOTHING, due_by: None }));
    }

    #[test]
    fn devices_and_records_round_trip() {
        let device = device_of("web-1", "1700000000000 45000 w").unwrap();
        assert_eq!((device.beat_at, device.expires_at), (Time(1_700_000_000_000), Time(1_700_000_045_000)));
        assert_eq!(device_of("x", "5 - o").unwrap().expires_at, Time(0));
        for since in [None, Some(Time(0)), Some(Time(7)), Some(Time(u64::MAX))] {
            for last_seen in [None, Some(Time(0)), Some(Time(9)), Some(Time(u64::MAX))] {
                let text = rest_text(&Published { since, last_seen, ..published(State::Busy, 1) });
                assert_eq!(rest_of(&text), Ok((since, last_seen)), "{text}");
            }
        }
        let note = Note { text: "it's \"quoted\" ☕".to_owned(), emoji: "🍜".to_owned(), until: Some(Time(9)) };
        assert_eq!(note_of(&note_text(Some(&note))), Ok(note));
        assert_eq!(note_text(None), "");
    }

    #[test]
    fn invalid_values_are_errors() {
        for bad in ["", "on", "on x", "here 1", "on 1 busy", "on 1 busy x", "on 1 busy - x", "on 1 2 busy - x", "é"] {
            assert!(prior_of(bad).is_err(), "{bad}");
            assert!(device_of("x", bad).is_err(), "{bad}");
            assert!(note_of(bad).is_err(), "{bad}");
        }
        assert!(device_of("a\n", "1 2 w").is_err() && device_of("x", "1 2 w more").is_err());
        assert!(
            rest_of("1").is_err() && rest_of("1 2 3").is_err() && rest_of("1 -2").is_err() && number_of("-1").is_err()
        );
    }
}
