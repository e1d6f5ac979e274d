//! From a request to a [`Call`]: every check on foreign input, and whether the caller may.
//!
//! A request is refused as a whole, with one exception: in a batch of beats or of changes a bad one fails alone, in its
//! place, as the contract has it. Core types hold what has been checked, so nothing behind this line checks again.

mod policy;
mod watching;

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;

use http::HeaderName;
use rollcall_core::choose::{MAX_FOR_S, Words, parse_for_s};
use rollcall_core::{DeviceId, DeviceKind, Invalid, Stance, UserId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::body::{self, Field, Named, Presence, Shape, Word};
use crate::call::{Beat, Beats, Call, ChoiceRequest, Departure, Form, LookUp, Reason, Refused, Sweep};
use crate::caller::{Caller, Scope};
use crate::problem::{Kind, Problem};
use crate::query::{Query, too_many, user_id};
use crate::route::Function;
use crate::{BODY_TIMEOUT, Limits};

pub(crate) use watching::{NOTHING_WATCHED, take_part};

/// The most people that one sweep settles: the bound of the contract's `sweep`.
pub const MAX_SWEEP: u32 = 1024;

/// The header that says where a client that comes back to a stream of events left off.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A request's body, as the transport delivers it, with the headers that are read along with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Body<'a> {
    /// The header `Content-Type`, if there is one.
    pub content_type: Option<&'a str>,
    /// The bytes. A transport stops reading one byte beyond [`Function::body_limit`]: it will be refused anyway.
    pub bytes: &'a [u8],
    /// The header [`LAST_EVENT_ID`], by which a browser that lost its stream says up to where it has heard. It wins over the
    /// query key `since`: the address stays as it was when the stream was first opened. An empty one says nothing.
    pub last_event_id: Option<&'a str>,
}

/// Understands a request and checks that the caller may make it.
pub fn decode(
    function: Function<'_>,
    query: &Query<'_>,
    caller: &Caller,
    body: Body<'_>,
    limits: &Limits,
) -> Result<Call, Problem> {
    check_body(function, body, limits)?;
    let bytes = body.bytes;
    match function {
        Function::Heartbeat => heartbeat(caller, bytes).map(Call::Beat),
        Function::Heartbeats => heartbeats(caller, bytes, limits).map(Call::Beats),
        Function::Leave => leave(caller, bytes).map(Call::Leave),
        Function::PutStatus => put_status(caller, bytes).map(Call::Choose),
        Function::DeleteStatus => delete_status(caller, query).map(Call::Choose),
        Function::PresenceOne(user) => Ok(look_up(caller, vec![user_id("user", user)?], Form::One)),
        Function::PresenceQuery => Ok(look_up(caller, query.users("users", limits.query_ids)?, Form::List)),
        Function::PresencePost => Ok(look_up(caller, listed(bytes, limits)?, Form::List)),
        Function::PresenceBatch => {
            let users = query.users("user_ids", limits.query_ids)?;
            Ok(look_up(caller, once_each(users), Form::Compact))
        }
        Function::Subscribe => watching::subscribe(caller, query, body.last_event_id, limits).map(Call::Subscribe),
        Function::Socket => watching::connect(caller, query).map(Call::Socket),
        Function::Typists(conversation) => watching::typists(caller, conversation),
        Function::PutTyping(conversation) => watching::put_typing(caller, conversation, bytes).map(Call::Type),
        Function::DeleteTyping(conversation) => watching::delete_typing(caller, conversation, query).map(Call::Type),
        Function::Privacy => policy::privacy(caller, query),
        Function::PutPrivacy => policy::put_privacy(caller, bytes),
        Function::Listed(list) => policy::listed(caller, list, query),
        Function::PutListed(list, other) => policy::put_listed(caller, list, other, bytes),
        Function::DeleteListed(list, other) => policy::delete_listed(caller, list, other, query),
        Function::Restriction(user) => policy::restriction(caller, user),
        Function::PutRestriction(user) => policy::put_restriction(caller, user, bytes),
        Function::DeleteRestriction(user) => policy::delete_restriction(caller, user),
        Function::Check => policy::check(caller, bytes),
        Function::Changes => policy::changes(caller, bytes).map(Call::Changes),
        Function::Sweep => sweep(caller, bytes).map(Call::Sweep),
        Function::Stats => caller.needs(Scope::Admin).map(|()| Call::Stats),
        Function::Person(user) => person(caller, user),
    }
}

/// A body that this function does not take is passed over, as HTTP has it for GET and DELETE.
fn check_body(function: Function<'_>, body: Body<'_>, limits: &Limits) -> Result<(), Problem> {
    let limit = function.body_limit(limits);
    if limit == 0 || body.bytes.is_empty() {
        return Ok(());
    }
    if body.bytes.len() > limit {
        return Err(too_large(limit));
    }
    let essence = |header: &str| header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match body.content_type {
        // The spelling that nearly everybody sends, without a copy.
        None | Some("application/json") => Ok(()),
        Some(header) if essence(header) == "application/json" => Ok(()),
        Some(_) => Err(Problem::new(Kind::WrongType, "the `Content-Type` must be `application/json`")),
    }
}

/// Why a body could not be read; for a transport, which reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It is longer than these many bytes, or says that it is.
    TooLarge(usize),
    /// It took longer than [`BODY_TIMEOUT`].
    TooSlow,
    /// It broke off.
    Broken,
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge(limit) => too_large(limit),
            Unread::TooSlow => {
                let seconds = BODY_TIMEOUT.as_secs();
                Problem::new(Kind::Malformed, format!("the body did not arrive within {seconds} seconds"))
            }
            Unread::Broken => Problem::new(Kind::Malformed, "the body could not be read to its end"),
        }
    }
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Kind::TooLarge, format!("the body is longer than the {limit} bytes that this path takes"))
}

fn heartbeat(caller: &Caller, body: &[u8]) -> Result<Beat, Problem> {
    let wire: WireBeat = body::read(body, BEAT)?;
    wire.checked(caller)
}

fn heartbeats(caller: &Caller, body: &[u8], limits: &Limits) -> Result<Beats, Problem> {
    let WireBeats { beats } = body::read(body, BEATS)?;
    let (good, refused) = apart("beats", &beats, limits.batch_beats, |beat| batched(caller, beat))?;
    Ok(Beats { good, refused })
}

/// The items that a body lists in `field`, at least one and at most `limit`: what can be tried, and what cannot.
fn apart<T>(
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
                let user = body::peek_text(item, "user").and_then(|user| UserId::parse(user).ok());
                refused.push(Refused { place, user, problem });
            }
        }
    }
    Ok((good, refused))
}

/// One beat of a batch. It must name its user: a service that forgot to would otherwise keep only itself alive.
fn batched(caller: &Caller, beat: &str) -> Result<Beat, Problem> {
    let wire: WireBeat = body::read(beat.as_bytes(), BEAT)?;
    if wire.user.is_none() {
        return Err(Problem::invalid("user", "is missing"));
    }
    wire.checked(caller)
}

fn leave(caller: &Caller, body: &[u8]) -> Result<Departure, Problem> {
    let wire: WireLeave = body::read(body, LEAVE)?;
    let device = DeviceId::parse(wire.device)?;
    Ok(Departure { user: acting_for(caller, wire.user)?, device, reason: wire.reason.0 })
}

fn put_status(caller: &Caller, body: &[u8]) -> Result<ChoiceRequest, Problem> {
    let wire: WireStatus = body::read(body, STATUS)?;
    parse_for_s(wire.for_s)?;
    let (text, emoji) = (wire.text.unwrap_or_default(), wire.emoji.unwrap_or_default());
    let wordless = text.is_empty() && emoji.is_empty();
    let note = if wordless { None } else { Some(Words::parse(text, emoji)?) };
    Ok(ChoiceRequest { user: acting_for(caller, wire.user)?, stance: wire.choice.0, for_s: wire.for_s, note })
}

/// Taking the setting back is choice request nothing.
fn delete_status(caller: &Caller, query: &Query<'_>) -> Result<ChoiceRequest, Problem> {
    let user = acting_for(caller, query.text("user")?.map(Cow::into_owned))?;
    Ok(ChoiceRequest { user, stance: Stance::Auto, for_s: None, note: None })
}

fn look_up(caller: &Caller, users: Vec<UserId>, form: Form) -> Call {
    Call::LookUp(LookUp { viewer: caller.viewer().cloned(), users, form })
}

fn listed(body: &[u8], limits: &Limits) -> Result<Vec<UserId>, Problem> {
    let WireUsers { users } = body::read(body, USERS)?;
    if users.is_empty() {
        return Err(Problem::invalid("users", "is empty"));
    }
    ids("users", users, limits.query_ids, UserId::parse)
}

/// The ids that a body lists in `field`, at most `limit`; a bad one is named by its place.
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

/// Ids without repetitions, in their order: an object has each key once, and a watcher hears of each change once.
pub(crate) fn once_each<T: Clone + Eq + Hash>(ids: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(ids.len());
    ids.into_iter().filter(|id| seen.insert(id.clone())).collect()
}

fn sweep(caller: &Caller, body: &[u8]) -> Result<Sweep, Problem> {
    caller.needs(Scope::Service)?;
    if body.trim_ascii().is_empty() {
        return Ok(Sweep { limit: None });
    }
    let WireSweep { limit } = body::read(body, SWEEP)?;
    match limit {
        None | Some(1..=MAX_SWEEP) => Ok(Sweep { limit }),
        Some(_) => Err(Problem::invalid("limit", format!("is not between 1 and {MAX_SWEEP}"))),
    }
}

/// Everything about one person is for administrators: it tells what that person hides.
fn person(caller: &Caller, user: &str) -> Result<Call, Problem> {
    caller.needs(Scope::Admin)?;
    Ok(Call::Person { user: user_id("user", user)? })
}

fn acting_for(caller: &Caller, named: Option<String>) -> Result<UserId, Problem> {
    caller.acting_for(named.map(UserId::parse).transpose()?)
}

const USER: Field = Field { name: "user", shape: Shape::Text, presence: Presence::Optional };
const DEVICE: Field = Field { name: "device", shape: Shape::Text, presence: Presence::Required };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBeat {
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
    Field { name: "active", shape: Shape::Flag, presence: Presence::Defaulted },
    Field { name: "kind", shape: Shape::OneOf(&["web", "mobile", "desktop", "other"]), presence: Presence::Defaulted },
];

/// A beat that does not say so is of a person who is there: only a client that watches for input can know otherwise.
fn active() -> bool {
    true
}

fn other() -> Named<DeviceKind> {
    Named(DeviceKind::Other)
}

impl WireBeat {
    fn checked(self, caller: &Caller) -> Result<Beat, Problem> {
        let user = acting_for(caller, self.user)?;
        Ok(Beat { user, device: DeviceId::parse(self.device)?, kind: self.kind.0, active: self.active })
    }
}

impl Word for DeviceKind {
    const MEANINGS: &'static [(&'static str, Self)] = &[
        ("web", DeviceKind::Web),
        ("mobile", DeviceKind::Mobile),
        ("desktop", DeviceKind::Desktop),
        ("other", DeviceKind::Other),
    ];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBeats<'a> {
    #[serde(borrow)]
    beats: Vec<&'a RawValue>,
}

const BEATS: &[Field] = &[Field { name: "beats", shape: Shape::List, presence: Presence::Required }];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLeave {
    user: Option<String>,
    device: String,
    reason: Named<Reason>,
}

const LEAVE: &[Field] = &[
    USER,
    DEVICE,
    Field { name: "reason", shape: Shape::OneOf(&["logout", "dropped"]), presence: Presence::Required },
];

impl Word for Reason {
    const MEANINGS: &'static [(&'static str, Self)] = &[("logout", Reason::Logout), ("dropped", Reason::Dropped)];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStatus {
    user: Option<String>,
    choice: Named<Stance>,
    text: Option<String>,
    emoji: Option<String>,
    for_s: Option<u32>,
}

const STATUS: &[Field] = &[
    USER,
    Field { name: "choice", shape: Shape::OneOf(&["auto", "away", "busy", "invisible"]), presence: Presence::Required },
    Field { name: "text", shape: Shape::Text, presence: Presence::Optional },
    Field { name: "emoji", shape: Shape::Text, presence: Presence::Optional },
    Field { name: "for_s", shape: Shape::Whole(1, MAX_FOR_S), presence: Presence::Optional },
];

impl Word for Stance {
    const MEANINGS: &'static [(&'static str, Self)] =
        &[("auto", Stance::Auto), ("away", Stance::Away), ("busy", Stance::Busy), ("invisible", Stance::Invisible)];
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireUsers {
    users: Vec<String>,
}

const USERS: &[Field] = &[Field { name: "users", shape: Shape::Texts, presence: Presence::Required }];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSweep {
    limit: Option<u32>,
}

const SWEEP: &[Field] = &[Field { name: "limit", shape: Shape::Whole(1, MAX_SWEEP), presence: Presence::Optional }];

#[cfg(test)]
mod tests;
