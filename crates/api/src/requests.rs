//! Decodes a request into a [`Call`]: validates all input and checks what the caller may do.
//!
//! A request is refused as a whole, with one exception: in a batch of beats or of changes a bad item fails alone, in its
//! place, as in the contract. Core types hold only validated values, so nothing behind this module validates again.

mod policy;
mod subscribe;

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;

use http::HeaderName;
use rollcall_core::choose::{MAX_FOR_S, NoteContent, parse_for_s};
use rollcall_core::{DeviceId, DeviceKind, Invalid, Stance, UserId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call::{Beat, Beats, Call, ChoiceRequest, Departure, DepartureReason, Form, LookUp, Refused, Sweep};
use crate::caller::{Caller, Scope};
use crate::json::{self, Field, FieldType, Named, Requirement, StringEnum};
use crate::problem::{Kind, Problem};
use crate::query::{Query, echo, too_many, user_id};
use crate::route::Operation;
use crate::{BODY_TIMEOUT, Limits};

pub(crate) use subscribe::{NOTHING_WATCHED, require_conversations};

/// The most users that one sweep settles: the limit of the contract's `sweep`.
pub const MAX_SWEEP: u32 = 1024;

/// The header with which a browser resumes an event stream.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A request's body and the headers that are decoded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Body<'a> {
    /// The header `Content-Type`, if present.
    pub content_type: Option<&'a str>,
    /// The bytes. A transport may stop one byte beyond [`Operation::body_limit`], since more is refused anyway.
    pub bytes: &'a [u8],
    /// The header [`LAST_EVENT_ID`]: the id of the last event the browser received. It takes precedence over the query key
    /// `since`, because the URL stays the one the stream was first opened with. An empty header is ignored.
    pub last_event_id: Option<&'a str>,
}

/// Decodes a request and checks that the caller may make it.
pub fn decode(
    operation: Operation<'_>,
    query: &Query<'_>,
    caller: &Caller,
    body: Body<'_>,
    limits: &Limits,
) -> Result<Call, Problem> {
    check_body(operation, body, limits)?;
    let bytes = body.bytes;
    match operation {
        Operation::Heartbeat => heartbeat(caller, bytes).map(Call::Beat),
        Operation::Heartbeats => heartbeats(caller, bytes, limits).map(Call::Beats),
        Operation::Leave => leave(caller, bytes).map(Call::Leave),
        Operation::PutStatus => put_status(caller, bytes).map(Call::Choose),
        Operation::DeleteStatus => delete_status(caller, query).map(Call::Choose),
        Operation::PresenceOne(user) => Ok(look_up(caller, vec![user_id("user", user)?], Form::One)),
        Operation::PresenceQuery => Ok(look_up(caller, query.users("users", limits.query_ids)?, Form::List)),
        Operation::PresencePost => Ok(look_up(caller, listed(bytes, limits)?, Form::List)),
        Operation::PresenceBatch => {
            let users = query.users("user_ids", limits.query_ids)?;
            Ok(look_up(caller, deduplicated(users), Form::Compact))
        }
        Operation::Subscribe => subscribe::subscribe(caller, query, body.last_event_id, limits).map(Call::Subscribe),
        Operation::Socket => subscribe::connect(caller, query).map(Call::Socket),
        Operation::Typists(conversation) => subscribe::typists(caller, conversation),
        Operation::PutTyping(conversation) => subscribe::put_typing(caller, conversation, bytes).map(Call::Type),
        Operation::DeleteTyping(conversation) => subscribe::delete_typing(caller, conversation, query).map(Call::Type),
        Operation::Privacy => policy::privacy(caller, query),
        Operation::PutPrivacy => policy::put_privacy(caller, bytes),
        Operation::Listed(list) => policy::listed(caller, list, query),
        Operation::PutListed(list, other) => policy::put_listed(caller, list, other, bytes),
        Operation::DeleteListed(list, other) => policy::delete_listed(caller, list, other, query),
        Operation::Restriction(user) => policy::restriction(caller, user),
        Operation::PutRestriction(user) => policy::put_restriction(caller, user, bytes),
        Operation::DeleteRestriction(user) => policy::delete_restriction(caller, user),
        Operation::Check => policy::check(caller, bytes),
        Operation::Changes => policy::changes(caller, bytes).map(Call::Changes),
        Operation::Sweep => sweep(caller, bytes).map(Call::Sweep),
        Operation::Stats => caller.needs(Scope::Admin).map(|()| Call::Stats),
        Operation::Person(user) => person(caller, user),
    }
}

/// A body is ignored where the operation takes none, as HTTP defines for GET and DELETE.
fn check_body(operation: Operation<'_>, body: Body<'_>, limits: &Limits) -> Result<(), Problem> {
    let limit = operation.body_limit(limits);
    if limit == 0 || body.bytes.is_empty() {
        return Ok(());
    }
    if body.bytes.len() > limit {
        return Err(too_large(limit));
    }
    let essence = |header: &str| header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match body.content_type {
        // The usual spelling, checked without a copy.
        None | Some("application/json") => Ok(()),
        Some(header) if essence(header) == "application/json" => Ok(()),
        Some(other) => {
            let detail = format!("the `Content-Type` must be `application/json`, found `{}`", echo(other));
            Err(Problem::new(Kind::WrongType, detail))
        }
    }
}

/// Why a transport could not read a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The body, or its announced length, exceeds this many bytes.
    TooLarge(usize),
    /// The body did not arrive within [`BODY_TIMEOUT`].
    Timeout,
    /// The connection ended before the body did.
    Incomplete,
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => too_large(limit),
            BodyError::Timeout => {
                let seconds = BODY_TIMEOUT.as_secs();
                Problem::new(Kind::Malformed, format!("the body did not arrive within {seconds} seconds"))
            }
            BodyError::Incomplete => Problem::new(Kind::Malformed, "the body ended early"),
        }
    }
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Kind::TooLarge, format!("the body is larger than {limit} bytes, the limit of this path"))
}

fn heartbeat(caller: &Caller, body: &[u8]) -> Result<Beat, Problem> {
    let request: BeatJson = json::read(body, BEAT)?;
    request.checked(caller)
}

fn heartbeats(caller: &Caller, body: &[u8], limits: &Limits) -> Result<Beats, Problem> {
    let BeatsJson { beats } = json::read(body, BEATS)?;
    let (good, refused) = split_batch("beats", &beats, limits.batch_beats, |beat| batched(caller, beat))?;
    Ok(Beats { good, refused })
}

/// Parses the items of `field`, at least one and at most `limit`, into valid and refused ones.
fn split_batch<T>(
    field: &str,
    items: &[&RawValue],
    limit: usize,
    read: impl Fn(&str) -> Result<T, Problem>,
) -> Result<(Vec<T>, Vec<Refused>), Problem> {
    if items.is_empty() {
        return Err(Problem::invalid(field, "is empty"));
    }
    if items.len() > limit {
        return Err(too_many(field, items.len(), limit));
    }
    let (mut good, mut refused) = (Vec::with_capacity(items.len()), Vec::new());
    for (place, item) in items.iter().map(|item| item.get()).enumerate() {
        match read(item) {
            Ok(item) => good.push(item),
            Err(problem) => {
                let user = json::peek_string(item, "user").and_then(|user| UserId::parse(user).ok());
                refused.push(Refused { place, user, problem });
            }
        }
    }
    Ok((good, refused))
}

/// One beat of a batch. It must name its user, or a service that forgot to would keep only itself online.
fn batched(caller: &Caller, beat: &str) -> Result<Beat, Problem> {
    let request: BeatJson = json::read(beat.as_bytes(), BEAT)?;
    if request.user.is_none() {
        return Err(Problem::invalid("user", "is missing"));
    }
    request.checked(caller)
}

fn leave(caller: &Caller, body: &[u8]) -> Result<Departure, Problem> {
    let request: LeaveJson = json::read(body, LEAVE)?;
    let device = DeviceId::parse(request.device)?;
    Ok(Departure { user: acting_for(caller, request.user)?, device, reason: request.reason.0 })
}

fn put_status(caller: &Caller, body: &[u8]) -> Result<ChoiceRequest, Problem> {
    let request: StatusJson = json::read(body, STATUS)?;
    parse_for_s(request.for_s)?;
    let (text, emoji) = (request.text.unwrap_or_default(), request.emoji.unwrap_or_default());
    let note = if text.is_empty() && emoji.is_empty() { None } else { Some(NoteContent::parse(text, emoji)?) };
    Ok(ChoiceRequest { user: acting_for(caller, request.user)?, stance: request.choice.0, for_s: request.for_s, note })
}

/// Deleting the choice is the same as choosing `auto`.
fn delete_status(caller: &Caller, query: &Query<'_>) -> Result<ChoiceRequest, Problem> {
    let user = acting_for(caller, query.text("user")?.map(Cow::into_owned))?;
    Ok(ChoiceRequest { user, stance: Stance::Auto, for_s: None, note: None })
}

fn look_up(caller: &Caller, users: Vec<UserId>, form: Form) -> Call {
    Call::LookUp(LookUp { viewer: caller.viewer().cloned(), users, form })
}

fn listed(body: &[u8], limits: &Limits) -> Result<Vec<UserId>, Problem> {
    let UsersJson { users } = json::read(body, USERS)?;
    if users.is_empty() {
        return Err(Problem::invalid("users", "is empty"));
    }
    ids("users", users, limits.query_ids, UserId::parse)
}

/// Parses the ids of `field`, at most `limit`. An error names the index of the bad id.
pub(crate) fn ids<T>(
    field: &str,
    names: Vec<String>,
    limit: usize,
    parse: fn(String) -> Result<T, Invalid>,
) -> Result<Vec<T>, Problem> {
    if names.len() > limit {
        return Err(too_many(field, names.len(), limit));
    }
    let checked = names.into_iter().enumerate().map(|(place, name)| {
        parse(name).map_err(|invalid| Problem::invalid(format!("{field}[{place}]"), invalid.rule))
    });
    checked.collect()
}

/// Removes duplicate ids, keeping the order.
pub(crate) fn deduplicated<T: Clone + Eq + Hash>(ids: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.into_iter().filter(|id| seen.insert(id.clone())).collect()
}

fn sweep(caller: &Caller, body: &[u8]) -> Result<Sweep, Problem> {
    caller.needs(Scope::Service)?;
    if body.trim_ascii().is_empty() {
        return Ok(Sweep { limit: None });
    }
    let SweepJson { limit } = json::read(body, SWEEP)?;
    match limit {
        None | Some(1..=MAX_SWEEP) => Ok(Sweep { limit }),
        Some(limit) => Err(Problem::invalid("limit", format!("must be between 1 and {MAX_SWEEP}, found {limit}"))),
    }
}

/// Only for administrators: the answer includes what the user hides.
fn person(caller: &Caller, user: &str) -> Result<Call, Problem> {
    caller.needs(Scope::Admin)?;
    Ok(Call::Person { user: user_id("user", user)? })
}

fn acting_for(caller: &Caller, named: Option<String>) -> Result<UserId, Problem> {
    caller.acting_for(named.map(UserId::parse).transpose()?)
}

const USER: Field = Field { name: "user", kind: FieldType::String, requirement: Requirement::Optional };
const DEVICE: Field = Field { name: "device", kind: FieldType::String, requirement: Requirement::Required };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BeatJson {
    user: Option<String>,
    device: String,
    #[serde(default = "active")]
    active: bool,
    #[serde(default = "other")]
    kind: Named<DeviceKind>,
}

const BEAT: &[Field] = &[
    USER,
    DEVICE,
    Field { name: "active", kind: FieldType::Bool, requirement: Requirement::Defaulted },
    Field {
        name: "kind",
        kind: FieldType::OneOf(&["web", "mobile", "desktop", "other"]),
        requirement: Requirement::Defaulted,
    },
];

/// The default: only a client that watches for input can know that the user is idle.
fn active() -> bool {
    true
}

fn other() -> Named<DeviceKind> {
    Named(DeviceKind::Other)
}

impl BeatJson {
    fn checked(self, caller: &Caller) -> Result<Beat, Problem> {
        let user = acting_for(caller, self.user)?;
        Ok(Beat { user, device: DeviceId::parse(self.device)?, kind: self.kind.0, active: self.active })
    }
}

impl StringEnum for DeviceKind {
    const VARIANTS: &'static [(&'static str, Self)] = &[
        ("web", DeviceKind::Web),
        ("mobile", DeviceKind::Mobile),
        ("desktop", DeviceKind::Desktop),
        ("other", DeviceKind::Other),
    ];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BeatsJson<'a> {
    #[serde(borrow)]
    beats: Vec<&'a RawValue>,
}

const BEATS: &[Field] = &[Field { name: "beats", kind: FieldType::Array, requirement: Requirement::Required }];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaveJson {
    user: Option<String>,
    device: String,
    reason: Named<DepartureReason>,
}

const LEAVE: &[Field] = &[
    USER,
    DEVICE,
    Field { name: "reason", kind: FieldType::OneOf(&["logout", "dropped"]), requirement: Requirement::Required },
];

impl StringEnum for DepartureReason {
    const VARIANTS: &'static [(&'static str, Self)] =
        &[("logout", DepartureReason::Logout), ("dropped", DepartureReason::Dropped)];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusJson {
    user: Option<String>,
    choice: Named<Stance>,
    text: Option<String>,
    emoji: Option<String>,
    for_s: Option<u32>,
}

const STATUS: &[Field] = &[
    USER,
    Field {
        name: "choice",
        kind: FieldType::OneOf(&["auto", "away", "busy", "invisible"]),
        requirement: Requirement::Required,
    },
    Field { name: "text", kind: FieldType::String, requirement: Requirement::Optional },
    Field { name: "emoji", kind: FieldType::String, requirement: Requirement::Optional },
    Field { name: "for_s", kind: FieldType::Integer(1, MAX_FOR_S), requirement: Requirement::Optional },
];

impl StringEnum for Stance {
    const VARIANTS: &'static [(&'static str, Self)] =
        &[("auto", Stance::Auto), ("away", Stance::Away), ("busy", Stance::Busy), ("invisible", Stance::Invisible)];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersJson {
    users: Vec<String>,
}

const USERS: &[Field] = &[Field { name: "users", kind: FieldType::Strings, requirement: Requirement::Required }];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepJson {
    limit: Option<u32>,
}

const SWEEP: &[Field] =
    &[Field { name: "limit", kind: FieldType::Integer(1, MAX_SWEEP), requirement: Requirement::Optional }];

#[cfg(test)]
mod tests;
