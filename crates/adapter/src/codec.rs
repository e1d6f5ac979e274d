//! Contract types to rule types and back. What comes in is foreign: a function may be anybody's, so ids are checked again.
//! Exhaustive matches, no `_`: a new case in the contract stops the build here.

use rollcall_core as core;
use rollcall_core::{Error, Id, Ids, Invalid, Span, Time, UserId};

use crate::wit::types as wit;

/// Refuses a call above its bound, whole.
pub(crate) fn bounded(count: usize, most: usize) -> Result<(), Error> {
    if count > most { Err(Error::TooMany(u32::try_from(most).unwrap_or(u32::MAX))) } else { Ok(()) }
}

/// Decodes every item, or refuses them all: for answers that have no place for the refusal of one.
pub(crate) fn all<W, T>(items: Vec<W>, decode: impl Fn(W) -> Result<T, Invalid>) -> Result<Vec<T>, Error> {
    Ok(items.into_iter().map(decode).collect::<Result<_, _>>()?)
}

/// Items that were refused, by rising place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused(Vec<(usize, Invalid)>);

impl Refused {
    /// The answers to the others, with these among them in their places.
    pub(crate) fn among<T>(self, mut answers: Vec<Result<T, Error>>) -> Vec<Result<T, Error>> {
        for (place, invalid) in self.0 {
            answers.insert(place.min(answers.len()), Err(invalid.into()));
        }
        answers
    }
}

/// Decodes what is fit, and refuses the rest, each in its place.
pub(crate) fn fit<W, T>(
    items: impl IntoIterator<Item = W>,
    decode: impl Fn(W) -> Result<T, Invalid>,
) -> (Vec<T>, Refused) {
    let items = items.into_iter();
    let (mut good, mut refused) = (Vec::with_capacity(items.size_hint().0), Refused::default());
    for (place, item) in items.enumerate() {
        match decode(item) {
            Ok(item) => good.push(item),
            Err(invalid) => refused.0.push((place, invalid)),
        }
    }
    (good, refused)
}

/// Answers, for the caller.
pub(crate) fn answers_out<T, W>(answers: Vec<Result<T, Error>>, encode: impl Fn(T) -> W) -> Vec<Result<W, wit::Error>> {
    answers.into_iter().map(|answer| answer.map(&encode).map_err(error_out)).collect()
}

pub(crate) fn error_out(error: Error) -> wit::Error {
    match error {
        Error::Invalid(invalid) => wit::Error::Invalid(wit::Invalid { field: invalid.field, rule: invalid.rule }),
        Error::TooMany(limit) => wit::Error::TooMany(limit),
        Error::Unavailable(retry_ms) => wit::Error::Unavailable(retry_ms),
        Error::Denied => wit::Error::Denied,
        Error::Other(text) => wit::Error::Other(text),
    }
}

pub(crate) fn user_in(user: String) -> Result<UserId, Invalid> {
    UserId::parse(user)
}

pub(crate) fn ids_in<I: Id>(ids: wit::Ids) -> Result<Ids<I>, Invalid> {
    Ids::parse(ids.text, ids.lengths).map_err(|_| Invalid::new(I::FIELD, "is unfit, one or more of them"))
}

pub(crate) fn span_in(ms: u32) -> Span {
    Span(u64::from(ms))
}

pub(crate) fn time_out(time: Option<Time>) -> Option<u64> {
    time.map(|time| time.0)
}

fn state_in(state: wit::State) -> core::State {
    match state {
        wit::State::Online => core::State::Online,
        wit::State::Away => core::State::Away,
        wit::State::Busy => core::State::Busy,
        wit::State::Offline => core::State::Offline,
    }
}

pub(crate) fn state_out(state: core::State) -> wit::State {
    match state {
        core::State::Online => wit::State::Online,
        core::State::Away => wit::State::Away,
        core::State::Busy => wit::State::Busy,
        core::State::Offline => wit::State::Offline,
    }
}

pub(crate) fn kind_in(kind: wit::DeviceKind) -> core::DeviceKind {
    match kind {
        wit::DeviceKind::Web => core::DeviceKind::Web,
        wit::DeviceKind::Mobile => core::DeviceKind::Mobile,
        wit::DeviceKind::Desktop => core::DeviceKind::Desktop,
        wit::DeviceKind::Other => core::DeviceKind::Other,
    }
}

pub(crate) fn kind_out(kind: core::DeviceKind) -> wit::DeviceKind {
    match kind {
        core::DeviceKind::Web => wit::DeviceKind::Web,
        core::DeviceKind::Mobile => wit::DeviceKind::Mobile,
        core::DeviceKind::Desktop => wit::DeviceKind::Desktop,
        core::DeviceKind::Other => wit::DeviceKind::Other,
    }
}

fn stance_in(stance: wit::Stance) -> core::Stance {
    match stance {
        wit::Stance::Auto => core::Stance::Auto,
        wit::Stance::Away => core::Stance::Away,
        wit::Stance::Busy => core::Stance::Busy,
        wit::Stance::Invisible => core::Stance::Invisible,
    }
}

pub(crate) fn stance_out(stance: core::Stance) -> wit::Stance {
    match stance {
        core::Stance::Auto => wit::Stance::Auto,
        core::Stance::Away => wit::Stance::Away,
        core::Stance::Busy => wit::Stance::Busy,
        core::Stance::Invisible => wit::Stance::Invisible,
    }
}

fn note_in(note: wit::Note) -> core::Note {
    core::Note { text: note.text, emoji: note.emoji, until: note.until.map(Time) }
}

fn note_out(note: core::Note) -> wit::Note {
    wit::Note { text: note.text, emoji: note.emoji, until: time_out(note.until) }
}

pub(crate) fn choice_in(choice: wit::Choice) -> core::Choice {
    core::Choice {
        stance: stance_in(choice.stance),
        at: Time(choice.at),
        until: choice.until.map(Time),
        note: choice.note.map(note_in),
    }
}

pub(crate) fn choice_out(choice: core::Choice) -> wit::Choice {
    wit::Choice {
        stance: stance_out(choice.stance),
        at: choice.at.0,
        until: time_out(choice.until),
        note: choice.note.map(note_out),
    }
}

pub(crate) fn published_in(published: wit::Published) -> core::Published {
    core::Published {
        state: state_in(published.state),
        note: published.note.map(note_in),
        since: published.since.map(Time),
        last_seen: published.last_seen.map(Time),
        version: published.version,
    }
}

pub(crate) fn published_out(published: core::Published) -> wit::Published {
    wit::Published {
        state: state_out(published.state),
        note: published.note.map(note_out),
        since: time_out(published.since),
        last_seen: time_out(published.last_seen),
        version: published.version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unfit_are_refused_alone_and_in_their_places() {
        let asked = ["", "bob", "a\nb", "eve", ""].map(str::to_owned);
        let (good, refused) = fit(asked, user_in);
        assert_eq!(good.iter().map(UserId::as_str).collect::<Vec<_>>(), ["bob", "eve"]);
        let invalid = |rule: &str| Err(Error::from(Invalid::new("user", rule)));
        let (empty, control) = (invalid("is empty"), invalid("contains a control character"));
        assert_eq!(
            refused.among(vec![Ok(1), Err(Error::Unavailable(5))]),
            [empty.clone(), Ok(1), control, Err(Error::Unavailable(5)), empty]
        );
    }

    #[test]
    fn what_has_no_place_for_a_refusal_is_refused_whole() {
        let refusal = all(vec!["bob".to_owned(), String::new()], user_in);
        assert_eq!(refusal, Err(Invalid::new("user", "is empty").into()));
        assert_eq!(bounded(1025, 1024), Err(Error::TooMany(1024)));
        assert_eq!(bounded(1024, 1024), Ok(()));
    }
}
