//! Contract types to the API's types and back. What comes from a function is foreign input: a replacement may be
//! anybody's, so ids are checked again. Exhaustive matches, no `_`: a new case in the contract stops the build here.

use rollcall_api::call;
use rollcall_core as core;
use rollcall_core::choose::NoteContent;
use rollcall_core::heartbeat::{BeatDetails, Beats};
use rollcall_core::policy::{Audience, Change, Numbers, Privacy, Ruling, Verdict};
use rollcall_core::{Id, Ids, Invalid, Time, UserId};

use crate::wit::{heartbeat, offline_sweep, policy, restriction_check, subscribe, types, typing};

/// Every answer of a batch, decoded.
pub(crate) fn answers_in<W, T>(
    answers: Result<Vec<Result<W, types::Error>>, types::Error>,
    decode: impl Fn(W) -> Result<T, Invalid>,
) -> Result<Vec<Result<T, core::Error>>, core::Error> {
    let one = |answer: Result<W, types::Error>| Ok(decode(answer.map_err(error_in)?)?);
    Ok(answers.map_err(error_in)?.into_iter().map(one).collect())
}

pub(crate) fn error_in(error: types::Error) -> core::Error {
    match error {
        types::Error::Invalid(invalid) => core::Error::Invalid(Invalid { field: invalid.field, rule: invalid.rule }),
        types::Error::TooMany(limit) => core::Error::TooMany(limit),
        types::Error::Unavailable(retry_ms) => core::Error::Unavailable(retry_ms),
        types::Error::Denied => core::Error::Denied,
        types::Error::Other(text) => core::Error::Other(text),
    }
}

pub(crate) fn viewer_out(viewer: Option<&UserId>) -> Option<String> {
    viewer.map(|viewer| viewer.as_str().to_owned())
}

pub(crate) fn names_out<I: Id>(ids: &[I]) -> Vec<String> {
    ids.iter().map(|id| id.as_str().to_owned()).collect()
}

pub(crate) fn ids_out<I: Id>(ids: Ids<I>) -> types::Ids {
    let (text, lengths) = ids.into_parts();
    types::Ids { text, lengths }
}

fn state_in(state: types::State) -> core::State {
    match state {
        types::State::Online => core::State::Online,
        types::State::Away => core::State::Away,
        types::State::Busy => core::State::Busy,
        types::State::Offline => core::State::Offline,
    }
}

fn kind_out(kind: core::DeviceKind) -> types::DeviceKind {
    match kind {
        core::DeviceKind::Web => types::DeviceKind::Web,
        core::DeviceKind::Mobile => types::DeviceKind::Mobile,
        core::DeviceKind::Desktop => types::DeviceKind::Desktop,
        core::DeviceKind::Other => types::DeviceKind::Other,
    }
}

fn stance_in(stance: types::Stance) -> core::Stance {
    match stance {
        types::Stance::Auto => core::Stance::Auto,
        types::Stance::Away => core::Stance::Away,
        types::Stance::Busy => core::Stance::Busy,
        types::Stance::Invisible => core::Stance::Invisible,
    }
}

fn stance_out(stance: core::Stance) -> types::Stance {
    match stance {
        core::Stance::Auto => types::Stance::Auto,
        core::Stance::Away => types::Stance::Away,
        core::Stance::Busy => types::Stance::Busy,
        core::Stance::Invisible => types::Stance::Invisible,
    }
}

fn note_in(note: types::Note) -> core::Note {
    core::Note { text: note.text, emoji: note.emoji, until: note.until.map(Time) }
}

fn choice_in(choice: types::Choice) -> core::Choice {
    core::Choice {
        stance: stance_in(choice.stance),
        at: Time(choice.at),
        until: choice.until.map(Time),
        note: choice.note.map(note_in),
    }
}

fn published_in(published: types::Published) -> core::Published {
    core::Published {
        state: state_in(published.state),
        note: published.note.map(note_in),
        since: published.since.map(Time),
        last_seen: published.last_seen.map(Time),
        version: published.version,
    }
}

pub(crate) fn beats_out(beats: impl IntoIterator<Item = call::Beat>) -> heartbeat::Beats {
    let Beats { users, devices, details } = beats.into_iter().collect();
    let sign_out = |sign: BeatDetails| heartbeat::Sign { kind: kind_out(sign.kind), active: sign.active };
    heartbeat::Beats {
        users: ids_out(users),
        devices: ids_out(devices),
        signs: details.into_iter().map(sign_out).collect(),
    }
}

pub(crate) fn departure_out(departure: call::Departure) -> heartbeat::Departure {
    heartbeat::Departure {
        user: departure.user.into_string(),
        device: departure.device.into_string(),
        reason: match departure.reason {
            call::Reason::Logout => heartbeat::Reason::Logout,
            call::Reason::Dropped => heartbeat::Reason::Dropped,
        },
    }
}

pub(crate) fn choice_request_out(choice_request: call::ChoiceRequest) -> heartbeat::ChoiceRequest {
    let words = |words: NoteContent| heartbeat::Words { text: words.text, emoji: words.emoji };
    heartbeat::ChoiceRequest {
        user: choice_request.user.into_string(),
        stance: stance_out(choice_request.stance),
        for_s: choice_request.for_s,
        note: choice_request.note.map(words),
    }
}

pub(crate) fn standing_in(standing: heartbeat::Standing) -> call::Standing {
    call::Standing { state: state_in(standing.state), version: standing.version, next_beat_ms: standing.next_beat_ms }
}

pub(crate) fn chosen_in(chosen: heartbeat::Chosen) -> call::ChoiceResult {
    call::ChoiceResult { standing: standing_in(chosen.standing), choice: choice_in(chosen.choice) }
}

/// What is visible; none: hidden. Whom it is about follows from the order.
pub(crate) fn view_in(view: types::View) -> Option<call::View> {
    match view {
        types::View::Hidden => None,
        types::View::Shown(shown) => {
            Some(call::View { published: published_in(shown.published), choice: shown.choice.map(choice_in) })
        }
    }
}

/// Something that a watcher is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Update {
    /// Of whom.
    pub(crate) user: UserId,
    /// What is visible now; none: hidden.
    pub(crate) view: Option<call::View>,
    /// From where to be fed again after this.
    pub(crate) version: u64,
}

pub(crate) fn update_in(update: subscribe::Update) -> Result<Update, Invalid> {
    let types::Presence { user, view } = update.presence;
    Ok(Update { user: UserId::parse(user)?, view: view_in(view), version: update.version })
}

pub(crate) fn typing_update_out(typing_update: call::TypingUpdate) -> typing::TypingUpdate {
    typing::TypingUpdate {
        user: typing_update.user.into_string(),
        conversation: typing_update.conversation.into_string(),
        typing: typing_update.typing,
    }
}

/// Who types, and until when unless they go on.
pub(crate) fn typists_in(typists: Vec<types::Typist>) -> Result<Vec<(UserId, Time)>, Invalid> {
    typists.into_iter().map(|typist| Ok((UserId::parse(typist.user)?, Time(typist.until)))).collect()
}

pub(crate) fn settled_in(settled: offline_sweep::Settled) -> call::Settled {
    call::Settled {
        examined: settled.examined,
        published: settled.published,
        rescheduled: settled.rescheduled,
        stale: settled.stale,
        failed: settled.failed,
    }
}

pub(crate) fn verdict_in(verdict: restriction_check::Verdict) -> Verdict {
    let presence = match verdict.presence {
        restriction_check::Ruling::Allowed => Ruling::Allowed,
        restriction_check::Ruling::Restricted => Ruling::Restricted,
        restriction_check::Ruling::Blocked => Ruling::Blocked,
        restriction_check::Ruling::Private => Ruling::Private,
    };
    Verdict { presence, last_seen: verdict.last_seen }
}

/// What a person set for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) privacy: Privacy,
    pub(crate) contacts: Vec<UserId>,
    pub(crate) blocks: Vec<UserId>,
}

pub(crate) fn own_in(own: policy::OwnSettings) -> Result<Own, Invalid> {
    let users = |users: Vec<String>| users.into_iter().map(UserId::parse).collect::<Result<_, _>>();
    let privacy =
        Privacy { presence: audience_in(own.privacy.presence), last_seen: audience_in(own.privacy.last_seen) };
    Ok(Own { privacy, contacts: users(own.contacts)?, blocks: users(own.blocks)? })
}

pub(crate) fn change_out(change: Change) -> policy::Change {
    let pair = |owner: UserId, other: UserId| (owner.into_string(), other.into_string());
    match change {
        Change::Restrict(id) => policy::Change::Restrict(id.into_string()),
        Change::Unrestrict(id) => policy::Change::Unrestrict(id.into_string()),
        Change::RestrictMany(numbers) => policy::Change::RestrictMany(numbers_out(numbers)),
        Change::UnrestrictMany(numbers) => policy::Change::UnrestrictMany(numbers_out(numbers)),
        Change::Block(owner, other) => policy::Change::Block(pair(owner, other)),
        Change::Unblock(owner, other) => policy::Change::Unblock(pair(owner, other)),
        Change::AddContact(owner, other) => policy::Change::AddContact(pair(owner, other)),
        Change::RemoveContact(owner, other) => policy::Change::RemoveContact(pair(owner, other)),
        Change::SetPrivacy(id, privacy) => policy::Change::SetPrivacy((id.into_string(), privacy_out(privacy))),
    }
}

fn numbers_out(numbers: Numbers) -> policy::Numbers {
    policy::Numbers { page: numbers.page(), bits: numbers.into_bits() }
}

fn privacy_out(privacy: Privacy) -> policy::Privacy {
    policy::Privacy { presence: audience_out(privacy.presence), last_seen: audience_out(privacy.last_seen) }
}

fn audience_in(audience: policy::Audience) -> Audience {
    match audience {
        policy::Audience::Everyone => Audience::Everyone,
        policy::Audience::Contacts => Audience::Contacts,
        policy::Audience::Nobody => Audience::Nobody,
    }
}

fn audience_out(audience: Audience) -> policy::Audience {
    match audience {
        Audience::Everyone => policy::Audience::Everyone,
        Audience::Contacts => policy::Audience::Contacts,
        Audience::Nobody => policy::Audience::Nobody,
    }
}

#[cfg(test)]
mod tests;
