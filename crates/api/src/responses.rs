//! Serialises results. The JSON structs live here; core types are not serialisable.
//!
//! A hidden user is always written the same way: everything null, whatever the user's state and whatever the reason.

mod admin;
mod policy;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use rollcall_core::{Choice, ConversationId, Error, Note, Span, Stance, State, Time, UserId};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::call::{Beat, Beats, ChoiceResult, Form, LookUp, Refused, Settled, Standing, TypingUpdate, View};
use crate::problem::{ErrorJson, Problem, Reply};
use crate::{events, pages};

pub use admin::{
    ConnectionStats, Histogram, HostStats, MostWatchedUser, Person, RulesStats, Stats, StoreStats, Times, Totals,
    Transitions, UserStats, Watchers, person, stats,
};
pub use policy::{changes, check, list, listed, privacy, restriction};

/// The response to one beat.
pub fn heartbeat(user: &UserId, standing: &Standing) -> Reply {
    json_reply(&StandingJson::new(user, standing, Some(standing.next_beat_ms)))
}

/// The response to a batch. `outcomes` are those of `beats.good`, in order; a missing one is an internal error in its
/// place.
pub fn heartbeats<'a>(beats: &'a Beats, outcomes: &[Result<Standing, Error>]) -> Reply {
    let tried = beats.good.iter().enumerate().map(|(place, Beat { user, .. })| match answer(outcomes, place) {
        Ok(standing) => OutcomeJson::Taken(StandingJson::new(user, standing, Some(standing.next_beat_ms))),
        Err(problem) => OutcomeJson::Failed { user: Some(user.as_str()), error: problem.into_json_body() },
    });
    let refused = |refused: &'a Refused| OutcomeJson::Failed {
        user: refused.user.as_ref().map(UserId::as_str),
        error: refused.problem.json_body(),
    };
    json_reply(&OutcomesJson { outcomes: in_places(tried, &beats.refused, refused) })
}

/// The response to a departure.
pub fn leave(user: &UserId, standing: &Standing) -> Reply {
    json_reply(&StandingJson::new(user, standing, None))
}

/// The response to setting or removing the status.
pub fn status(user: &UserId, chosen: &ChoiceResult) -> Reply {
    let ChoiceResult { standing, choice } = chosen;
    json_reply(&StatusJson {
        standing: StandingJson::new(user, standing, None),
        choice: stance(choice.stance),
        until: choice.until.map(ms),
        note: choice.note.as_ref().map(NoteJson::new),
    })
}

/// The response to a query, in the requested form. `views` are those of `look_up.users`, in order; `None` is hidden.
///
/// In a list, a user who could not be read fails alone. If no user could be read, or the form cannot express it, the whole
/// response is the first failure.
pub fn look_up(look_up: &LookUp, views: &[Result<Option<View>, Error>]) -> Reply {
    let answers = || look_up.users.iter().enumerate().map(|(place, user)| (user, answer(views, place)));
    let partial = look_up.form == Form::List && views.iter().any(Result::is_ok);
    if !partial && let Some(problem) = answers().find_map(|(_, answer)| answer.err()) {
        return problem.into_reply();
    }
    let seen = || answers().map(|(user, answer)| (user, answer.ok().and_then(Option::as_ref)));
    match look_up.form {
        Form::One => match seen().next() {
            Some((user, view)) => json_reply(&PresenceJson::new(user, view)),
            None => missing_result().into_reply(),
        },
        Form::List => {
            let presences = answers().map(|(user, answer)| match answer {
                Ok(view) => SeenJson::Seen(PresenceJson::new(user, view.as_ref())),
                Err(problem) => SeenJson::Failed { user: user.as_str(), error: problem.into_json_body() },
            });
            json_reply(&PresencesJson { presences: presences.collect() })
        }
        Form::Compact => json_reply(&Compact(seen)),
    }
}

/// The response to a typing update. It lasts for `ttl` unless repeated; a stop has no duration.
pub fn typing(typing_update: &TypingUpdate, ttl: Span) -> Reply {
    let TypingUpdate { user, conversation, typing } = typing_update;
    let ttl_ms = typing.then_some(ttl.0);
    json_reply(&TypingUpdateJson { conversation: conversation.as_str(), user: user.as_str(), typing: *typing, ttl_ms })
}

/// The users typing in a conversation, each until an instant unless repeated.
pub fn typists<'a>(conversation: &ConversationId, typists: impl IntoIterator<Item = (&'a UserId, Time)>) -> Reply {
    let typists = typists.into_iter().map(|(user, until)| TypistJson { user: user.as_str(), until: ms(until) });
    json_reply(&TypistsJson { conversation: conversation.as_str(), typists: typists.collect() })
}

/// The response to a sweep.
pub fn sweep(settled: &Settled) -> Reply {
    let Settled { examined, published, rescheduled, stale, failed } = *settled;
    json_reply(&SettledJson { examined, published, rescheduled, stale, failed })
}

/// The response to a browser that resumes while the store is unavailable. A browser gives up on anything but an event
/// stream, so this is one that contains only the time to wait.
pub fn retry_stream(after_ms: u64) -> Reply {
    pages::text("text/event-stream", &events::sse_retry(after_ms))
}

/// One presence as JSON, as in a response; for events. Strings, numbers and string keys always serialise.
pub(crate) fn presence_json(user: &UserId, view: Option<&View>) -> String {
    serde_json::to_string(&PresenceJson::new(user, view)).unwrap_or_default()
}

/// A state as the API writes it.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Online => "online",
        State::Away => "away",
        State::Busy => "busy",
        State::Offline => "offline",
    }
}

fn stance(stance: Stance) -> &'static str {
    match stance {
        Stance::Auto => "auto",
        Stance::Away => "away",
        Stance::Busy => "busy",
        Stance::Invisible => "invisible",
    }
}

fn ms(time: Time) -> u64 {
    time.0
}

/// The result at this index; a missing one is a problem too.
fn answer<T>(answers: &[Result<T, Error>], place: usize) -> Result<&T, Problem> {
    match answers.get(place) {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(error)) => Err(error.clone().into()),
        None => Err(missing_result()),
    }
}

/// A batch in the order sent: refused items at their indexes, the others in between.
fn in_places<'a, T>(
    tried: impl ExactSizeIterator<Item = T>,
    refused: &'a [Refused],
    failed: impl Fn(&'a Refused) -> T,
) -> Vec<T> {
    let mut outcomes = Vec::with_capacity(tried.len() + refused.len());
    let (mut tried, mut refused) = (tried, refused.iter().peekable());
    loop {
        let next = refused.next_if(|refused| refused.place == outcomes.len()).map(&failed);
        let Some(outcome) = next.or_else(|| tried.next()) else { return outcomes };
        outcomes.push(outcome);
    }
}

fn missing_result() -> Problem {
    Error::Other("a function returned fewer results than requested".to_owned()).into()
}

/// Not cacheable: a response is valid now and for this caller only.
fn json_reply(value: &impl Serialize) -> Reply {
    let mut reply = Response::new(bytes(value));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Strings, numbers and string keys always serialise.
fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[derive(serde::Serialize)]
struct StandingJson<'a> {
    user: &'a str,
    state: &'static str,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_beat_ms: Option<u32>,
}

impl<'a> StandingJson<'a> {
    /// `next_beat_ms` only if the device stays.
    fn new(user: &'a UserId, standing: &Standing, next_beat_ms: Option<u32>) -> Self {
        let Standing { state, version, .. } = *standing;
        Self { user: user.as_str(), state: state_name(state), version, next_beat_ms }
    }
}

#[derive(serde::Serialize)]
struct OutcomesJson<'a> {
    outcomes: Vec<OutcomeJson<'a>>,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum OutcomeJson<'a> {
    Taken(StandingJson<'a>),
    Failed {
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<&'a str>,
        error: ErrorJson<'a>,
    },
}

#[derive(serde::Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    standing: StandingJson<'a>,
    choice: &'static str,
    until: Option<u64>,
    note: Option<NoteJson<'a>>,
}

#[derive(serde::Serialize)]
struct NoteJson<'a> {
    text: &'a str,
    emoji: &'a str,
    until: Option<u64>,
}

impl<'a> NoteJson<'a> {
    fn new(note: &'a Note) -> Self {
        Self { text: &note.text, emoji: &note.emoji, until: note.until.map(ms) }
    }
}

#[derive(serde::Serialize)]
struct ChoiceJson {
    choice: &'static str,
    until: Option<u64>,
}

impl ChoiceJson {
    fn new(choice: &Choice) -> Self {
        Self { choice: stance(choice.stance), until: choice.until.map(ms) }
    }
}

#[derive(serde::Serialize)]
struct PresenceJson<'a> {
    user: &'a str,
    state: Option<&'static str>,
    since: Option<u64>,
    last_seen: Option<u64>,
    version: Option<u64>,
    note: Option<NoteJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<ChoiceJson>,
}

impl<'a> PresenceJson<'a> {
    fn new(user: &'a UserId, view: Option<&'a View>) -> Self {
        let published = view.map(|view| &view.published);
        Self {
            user: user.as_str(),
            state: published.map(|published| state_name(published.state)),
            since: published.and_then(|published| published.since).map(ms),
            last_seen: published.and_then(|published| published.last_seen).map(ms),
            version: published.map(|published| published.version),
            note: published.and_then(|published| published.note.as_ref()).map(NoteJson::new),
            choice: view.and_then(|view| view.choice.as_ref()).map(ChoiceJson::new),
        }
    }
}

#[derive(serde::Serialize)]
struct PresencesJson<'a> {
    presences: Vec<SeenJson<'a>>,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum SeenJson<'a> {
    Seen(PresenceJson<'a>),
    Failed { user: &'a str, error: ErrorJson<'a> },
}

/// An object from id to state, in the order of the iterator.
struct Compact<F>(F);

impl<'a, F, I> Serialize for Compact<F>
where
    F: Fn() -> I,
    I: Iterator<Item = (&'a UserId, Option<&'a View>)>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (user, view) in (self.0)() {
            map.serialize_entry(user.as_str(), &view.map(|view| state_name(view.published.state)))?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct TypingUpdateJson<'a> {
    conversation: &'a str,
    user: &'a str,
    typing: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
}

#[derive(serde::Serialize)]
struct TypistsJson<'a> {
    conversation: &'a str,
    typists: Vec<TypistJson<'a>>,
}

#[derive(serde::Serialize)]
struct TypistJson<'a> {
    user: &'a str,
    until: u64,
}

#[derive(serde::Serialize)]
struct SettledJson {
    examined: u32,
    published: u32,
    rescheduled: u32,
    stale: u32,
    failed: u32,
}

#[cfg(test)]
mod tests;
