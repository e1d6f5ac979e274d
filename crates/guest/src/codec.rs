//! Contract types to rule types and back. Exhaustive matches, no `_`: a new case in the contract stops the build here.

use rollcall_core as core;
use rollcall_core::{DeviceId, Id, Ids, Invalid, Span, Time};
use rollcall_functions::query::View;

use crate::wit::types as wit;

/// An error of the platform, as a rule's error.
pub fn error_in(error: wit::Error) -> core::Error {
    match error {
        wit::Error::Invalid(invalid) => core::Error::Invalid(Invalid { field: invalid.field, rule: invalid.rule }),
        wit::Error::TooMany(limit) => core::Error::TooMany(limit),
        wit::Error::Unavailable(retry_ms) => core::Error::Unavailable(retry_ms),
        wit::Error::Denied => core::Error::Denied,
        wit::Error::Other(text) => core::Error::Other(text),
    }
}

/// An error, for the caller.
pub fn error_out(error: core::Error) -> wit::Error {
    match error {
        core::Error::Invalid(invalid) => wit::Error::Invalid(wit::Invalid { field: invalid.field, rule: invalid.rule }),
        core::Error::TooMany(limit) => wit::Error::TooMany(limit),
        core::Error::Unavailable(retry_ms) => wit::Error::Unavailable(retry_ms),
        core::Error::Denied => wit::Error::Denied,
        core::Error::Other(text) => wit::Error::Other(text),
    }
}

/// Foreign input that broke a rule.
pub fn refused(invalid: Invalid) -> core::Error {
    core::Error::Invalid(invalid)
}

pub(crate) fn ids_out<I: Id>(ids: Ids<I>) -> wit::Ids {
    let (text, lengths) = ids.into_parts();
    wit::Ids { text, lengths }
}

/// A state, for the caller.
pub fn state_out(state: core::State) -> wit::State {
    match state {
        core::State::Online => wit::State::Online,
        core::State::Away => wit::State::Away,
        core::State::Busy => wit::State::Busy,
        core::State::Offline => wit::State::Offline,
    }
}

pub(crate) fn state_in(state: wit::State) -> core::State {
    match state {
        wit::State::Online => core::State::Online,
        wit::State::Away => core::State::Away,
        wit::State::Busy => core::State::Busy,
        wit::State::Offline => core::State::Offline,
    }
}

/// A device kind, from the caller.
pub fn kind_in(kind: wit::DeviceKind) -> core::DeviceKind {
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

/// A stance, from the caller.
pub fn stance_in(stance: wit::Stance) -> core::Stance {
    match stance {
        wit::Stance::Auto => core::Stance::Auto,
        wit::Stance::Away => core::Stance::Away,
        wit::Stance::Busy => core::Stance::Busy,
        wit::Stance::Invisible => core::Stance::Invisible,
    }
}

fn stance_out(stance: core::Stance) -> wit::Stance {
    match stance {
        core::Stance::Auto => wit::Stance::Auto,
        core::Stance::Away => wit::Stance::Away,
        core::Stance::Busy => wit::Stance::Busy,
        core::Stance::Invisible => wit::Stance::Invisible,
    }
}

pub(crate) fn time_in(time: Option<u64>) -> Option<Time> {
    time.map(Time)
}

fn time_out(time: Option<Time>) -> Option<u64> {
    time.map(|time| time.0)
}

/// A span that the contract carries in 32 bits, which is 49 days; longer ones are as good as that.
pub(crate) fn span_out(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

fn note_in(note: wit::Note) -> core::Note {
    core::Note { text: note.text, emoji: note.emoji, until: time_in(note.until) }
}

fn note_out(note: core::Note) -> wit::Note {
    wit::Note { text: note.text, emoji: note.emoji, until: time_out(note.until) }
}

pub(crate) fn choice_in(choice: wit::Choice) -> core::Choice {
    core::Choice {
        stance: stance_in(choice.stance),
        at: Time(choice.at),
        until: time_in(choice.until),
        note: choice.note.map(note_in),
    }
}

/// A choice, for the caller.
pub fn choice_out(choice: core::Choice) -> wit::Choice {
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
        since: time_in(published.since),
        last_seen: time_in(published.last_seen),
        version: published.version,
    }
}

/// A record, for the caller.
pub fn published_out(published: core::Published) -> wit::Published {
    wit::Published {
        state: state_out(published.state),
        note: published.note.map(note_out),
        since: time_out(published.since),
        last_seen: time_out(published.last_seen),
        version: published.version,
    }
}

/// What a viewer may know of a person, for the caller.
pub fn presence_out(user: String, view: Option<View>) -> wit::Presence {
    let view = match view {
        None => wit::View::Hidden,
        Some(view) => wit::View::Shown(wit::Shown {
            published: published_out(view.published),
            choice: view.choice.map(choice_out),
        }),
    };
    wit::Presence { user, view }
}

/// A device as the store keeps it. The store checked the id when it came in.
pub(crate) fn device_in(device: crate::wit::sessions::Device) -> Result<core::Device, core::Error> {
    Ok(core::Device {
        id: DeviceId::parse(device.id).map_err(refused)?,
        kind: kind_in(device.kind),
        beat_at: Time(device.beat_at),
        active_at: time_in(device.active_at),
        expires_at: Time(device.expires_at),
    })
}
