//! Contract types to rule types and back, on the host's side. What comes from a component is foreign input: a
//! replacement may be anybody's, so ids are checked again. Exhaustive matches, no `_`.

use rollcall_api::call;
use rollcall_core as core;
use rollcall_core::choose::NoteContent;
use rollcall_core::heartbeat::{BeatDetails, Beats, Found};
use rollcall_core::settle::Decision;
use rollcall_core::{ConversationId, Id, Ids, Invalid, Next, Revision, Rules, Span, Time, UserId};
use rollcall_functions::capabilities::{
    Change, Commit, Committed, DeviceEvent, Eviction, LastSeenEntry, Loaded, Touched, Touches, TypingSignal, Typist,
    Visibility,
};
use rollcall_functions::{query, subscribe as watching, sweep};

use super::bindings::heartbeat::exports::rollcall::presence::heartbeat;
use super::bindings::offline_sweep::exports::rollcall::presence::offline_sweep;
use super::bindings::platform::rollcall::presence::{archive, sessions, settings, topics, types};
use super::bindings::subscribe::exports::rollcall::presence::subscribe;
use super::bindings::typing::exports::rollcall::presence::typing;

/// Decodes every item, or refuses them all: a component that sends a bad id is broken, and says so nowhere else.
pub(crate) fn all<W, T>(items: Vec<W>, decode: impl Fn(W) -> Result<T, Invalid>) -> Result<Vec<T>, types::Error> {
    items.into_iter().map(decode).collect::<Result<_, _>>().map_err(|invalid| error_out(invalid.into()))
}

pub(crate) fn user_in(user: String) -> Result<UserId, Invalid> {
    UserId::parse(user)
}

pub(crate) fn conversation_in(conversation: String) -> Result<ConversationId, Invalid> {
    ConversationId::parse(conversation)
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

pub(crate) fn error_out(error: core::Error) -> types::Error {
    match error {
        core::Error::Invalid(invalid) => {
            types::Error::Invalid(types::Invalid { field: invalid.field, rule: invalid.rule })
        }
        core::Error::TooMany(limit) => types::Error::TooMany(limit),
        core::Error::Unavailable(retry_ms) => types::Error::Unavailable(retry_ms),
        core::Error::Denied => types::Error::Denied,
        core::Error::Other(text) => types::Error::Other(text),
    }
}

fn state_in(state: types::State) -> core::State {
    match state {
        types::State::Online => core::State::Online,
        types::State::Away => core::State::Away,
        types::State::Busy => core::State::Busy,
        types::State::Offline => core::State::Offline,
    }
}

fn state_out(state: core::State) -> types::State {
    match state {
        core::State::Online => types::State::Online,
        core::State::Away => types::State::Away,
        core::State::Busy => types::State::Busy,
        core::State::Offline => types::State::Offline,
    }
}

fn kind_in(kind: types::DeviceKind) -> core::DeviceKind {
    match kind {
        types::DeviceKind::Web => core::DeviceKind::Web,
        types::DeviceKind::Mobile => core::DeviceKind::Mobile,
        types::DeviceKind::Desktop => core::DeviceKind::Desktop,
        types::DeviceKind::Other => core::DeviceKind::Other,
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

fn ms(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

fn span(ms: u32) -> Span {
    Span(u64::from(ms))
}

pub(crate) fn rules_out(rules: &Rules) -> settings::Rules {
    settings::Rules {
        interval_ms: ms(rules.interval),
        tolerance_ms: ms(rules.tolerance),
        idle_after_ms: ms(rules.idle_after),
        grace_ms: ms(rules.grace),
        typing_ttl_ms: ms(rules.typing_ttl),
        evict_after_ms: ms(rules.evict_after),
        watch_limit: rules.watch_limit,
    }
}

fn note_in(note: types::Note) -> core::Note {
    core::Note { text: note.text, emoji: note.emoji, until: note.until.map(Time) }
}

fn note_out(note: core::Note) -> types::Note {
    types::Note { text: note.text, emoji: note.emoji, until: note.until.map(|at| at.0) }
}

fn choice_in(choice: types::Choice) -> core::Choice {
    core::Choice {
        stance: stance_in(choice.stance),
        at: Time(choice.at),
        until: choice.until.map(Time),
        note: choice.note.map(note_in),
    }
}

fn choice_out(choice: core::Choice) -> types::Choice {
    types::Choice {
        stance: stance_out(choice.stance),
        at: choice.at.0,
        until: choice.until.map(|at| at.0),
        note: choice.note.map(note_out),
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

fn published_out(published: core::Published) -> types::Published {
    types::Published {
        state: state_out(published.state),
        note: published.note.map(note_out),
        since: published.since.map(|at| at.0),
        last_seen: published.last_seen.map(|at| at.0),
        version: published.version,
    }
}

pub(crate) fn touches_in(touches: sessions::Touches) -> Result<Touches, Invalid> {
    let (users, devices) = (ids_in(touches.users)?, ids_in(touches.devices)?);
    let traces: Vec<_> = touches.traces.into_iter().map(trace_in).collect();
    if users.len() != traces.len() || devices.len() != traces.len() {
        return Err(Invalid::new("touches", "has columns of different lengths"));
    }
    Ok(Touches { users, devices, events: traces })
}

pub(crate) fn ids_in<I: Id>(ids: types::Ids) -> Result<Ids<I>, Invalid> {
    Ids::parse(ids.text, ids.lengths).map_err(|_| Invalid::new(I::FIELD, "is unfit, one or more of them"))
}

pub(crate) fn ids_out<I: Id>(ids: Ids<I>) -> types::Ids {
    let (text, lengths) = ids.into_parts();
    types::Ids { text, lengths }
}

fn trace_in(trace: sessions::Trace) -> DeviceEvent {
    match trace {
        sessions::Trace::Beat(beat) => {
            DeviceEvent::Beat { kind: kind_in(beat.kind), active: beat.active, alive_for: span(beat.alive_for_ms) }
        }
        sessions::Trace::Dropped(grace_ms) => DeviceEvent::Dropped(span(grace_ms)),
        sessions::Trace::Logout => DeviceEvent::Logout,
    }
}

pub(crate) fn touched_out(touched: Touched) -> sessions::Touched {
    let count = touched.found.len();
    let mut out = sessions::Touched {
        now: touched.now.0,
        versions: Vec::with_capacity(count),
        looks: Vec::with_capacity(count),
        endings: Vec::new(),
        failures: Vec::new(),
    };
    for (place, found) in (0..).zip(touched.found) {
        let found = found.unwrap_or_else(|error| {
            out.failures.push(sessions::Failure { place, error: error_out(error) });
            Found::NOTHING
        });
        out.versions.push(found.version);
        out.looks.push(sessions::Look { state: state_out(found.state), stance: stance_out(found.stance) });
        out.endings.extend(found.stance_until.map(|at| sessions::Ending { place, at: at.0 }));
    }
    out
}

pub(crate) fn loaded_out(loaded: Loaded) -> sessions::Loaded {
    sessions::Loaded {
        now: loaded.moment.now.0,
        outage_grace: loaded.moment.outage_grace.map(|a| sessions::OutageGrace { since: a.since.0, until: a.until.0 }),
        sessions: loaded.sessions.into_iter().map(|s| s.map(session_out).map_err(error_out)).collect(),
    }
}

fn session_out(session: core::Session) -> sessions::Session {
    let device_out = |device: core::Device| sessions::Device {
        id: device.id.into_string(),
        kind: kind_out(device.kind),
        beat_at: device.beat_at.0,
        active_at: device.active_at.map(|at| at.0),
        expires_at: device.expires_at.0,
    };
    sessions::Session {
        devices: session.devices.into_iter().map(device_out).collect(),
        choice: session.choice.map(choice_out),
        published: session.published.map(published_out),
        next: match session.next {
            Next::Nothing => sessions::Next::Nothing,
            Next::Settle(at) => sessions::Next::Settle(at.0),
            Next::Evict(at) => sessions::Next::Evict(at.0),
        },
        revision: sessions::Revision { commits: session.revision.commits, touches: session.revision.touches },
    }
}

fn revision_in(revision: sessions::Revision) -> Revision {
    Revision { commits: revision.commits, touches: revision.touches }
}

pub(crate) fn commit_in(commit: sessions::Commit) -> Result<Commit, Invalid> {
    let decision = Decision {
        publish: commit.publish.map(published_in),
        choice: commit.choice.map(choice_in),
        prune_expired_by: Time(commit.prune_expired_by),
        next: match commit.next {
            sessions::Next::Nothing => Next::Nothing,
            sessions::Next::Settle(at) => Next::Settle(Time(at)),
            sessions::Next::Evict(at) => Next::Evict(Time(at)),
        },
        lag: Span(0),
    };
    Ok(Commit { user: UserId::parse(commit.user)?, expected: revision_in(commit.expected), decision })
}

pub(crate) fn eviction_in(eviction: sessions::Eviction) -> Result<Eviction, Invalid> {
    Ok(Eviction { user: UserId::parse(eviction.user)?, expected: revision_in(eviction.expected) })
}

pub(crate) fn last_seen_entry_in(last_seen_entry: archive::LastSeenEntry) -> Result<LastSeenEntry, Invalid> {
    Ok(LastSeenEntry { user: UserId::parse(last_seen_entry.user)?, last_seen: Time(last_seen_entry.last_seen) })
}

pub(crate) fn change_out(change: &Change) -> topics::Change {
    topics::Change { user: change.user.as_str().to_owned(), published: published_out(change.published.clone()) }
}

pub(crate) fn sign_in(revision: topics::TypingSignal) -> Result<TypingSignal, Invalid> {
    Ok(TypingSignal {
        conversation: ConversationId::parse(revision.conversation)?,
        user: UserId::parse(revision.user)?,
        lasts: span(revision.lasts_ms),
    })
}

pub(crate) fn typist_out(typist: Typist) -> types::Typist {
    types::Typist { user: typist.user.into_string(), until: typist.until.0 }
}

pub(crate) fn outcomes_out(
    outcomes: Vec<Result<Committed, core::Error>>,
) -> Vec<Result<sessions::Committed, types::Error>> {
    outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(Committed::Applied) => Ok(sessions::Committed::Applied),
            Ok(Committed::Stale) => Ok(sessions::Committed::Stale),
            Err(error) => Err(error_out(error)),
        })
        .collect()
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
pub(crate) fn view_in(presence: types::Presence) -> Option<call::View> {
    match presence.view {
        types::View::Hidden => None,
        types::View::Shown(shown) => {
            Some(call::View { published: published_in(shown.published), choice: shown.choice.map(choice_in) })
        }
    }
}

pub(crate) fn place_in(place: subscribe::Place) -> watching::InitialPresence {
    let view = view_in(place.presence);
    let visibility = Visibility { presence: place.visibility.presence, last_seen: place.visibility.last_seen };
    watching::InitialPresence { view, visibility, settled: place.settled }
}

pub(crate) fn update_in(update: subscribe::Update) -> Result<watching::Update, Invalid> {
    let user = UserId::parse(update.presence.user.clone())?;
    let view = view_in(update.presence);
    Ok(watching::Update { presence: query::Presence { user, view }, version: update.version })
}

pub(crate) fn typing_update_out(typing_update: call::TypingUpdate) -> typing::TypingUpdate {
    typing::TypingUpdate {
        user: typing_update.user.into_string(),
        conversation: typing_update.conversation.into_string(),
        typing: typing_update.typing,
    }
}

pub(crate) fn typist_in(typist: types::Typist) -> Result<Typist, Invalid> {
    Ok(Typist { user: UserId::parse(typist.user)?, until: Time(typist.until) })
}

pub(crate) fn settled_in(settled: offline_sweep::Settled) -> sweep::Settled {
    sweep::Settled {
        examined: settled.examined,
        published: settled.published,
        rescheduled: settled.rescheduled,
        stale: settled.stale,
        failed: settled.failed,
        lags: settled.lags_ms.into_iter().map(span).collect(),
    }
}
