//! Requests about who may see whom. A person decides for themselves, a service for anybody, and only an administrator
//! restricts. Why somebody is hidden is not for viewers: a check is for services and administrators.

use std::borrow::Cow;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Change, MAX_SUBJECTS, Privacy};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{USER, acting_for, apart, ids};
use crate::body::{self, Field, Named, Presence, Shape, Word};
use crate::call::{Call, Changes, List};
use crate::caller::{Caller, Scope};
use crate::limits::MAX_CHANGES;
use crate::problem::Problem;
use crate::query::{Query, user_id};

pub(super) fn privacy(caller: &Caller, query: &Query<'_>) -> Result<Call, Problem> {
    Ok(Call::Privacy { user: whose(caller, query)? })
}

pub(super) fn put_privacy(caller: &Caller, body: &[u8]) -> Result<Call, Problem> {
    let wire: WirePrivacy = body::read(body, PRIVACY)?;
    let privacy = Privacy { presence: wire.presence.0, last_seen: wire.last_seen.0 };
    Ok(Call::SetPrivacy { user: acting_for(caller, wire.user)?, privacy })
}

pub(super) fn listed(caller: &Caller, list: List, query: &Query<'_>) -> Result<Call, Problem> {
    Ok(Call::Listed { user: whose(caller, query)?, list })
}

pub(super) fn put_listed(caller: &Caller, list: List, other: &str, body: &[u8]) -> Result<Call, Problem> {
    let other = user_id("other", other)?;
    let named = if body.trim_ascii().is_empty() { None } else { body::read::<WireOwner>(body, OWNER)?.user };
    let (owner, other) = two(acting_for(caller, named)?, other)?;
    Ok(Call::List { owner, other, list, listed: true })
}

pub(super) fn delete_listed(caller: &Caller, list: List, other: &str, query: &Query<'_>) -> Result<Call, Problem> {
    let other = user_id("other", other)?;
    let (owner, other) = two(whose(caller, query)?, other)?;
    Ok(Call::List { owner, other, list, listed: false })
}

pub(super) fn restriction(caller: &Caller, user: &str) -> Result<Call, Problem> {
    Ok(Call::Restriction { user: account(caller, user)? })
}

/// There is nothing to say in the body. One that says something is refused all the same: whoever sends
/// `{"restricted":false}` would otherwise get the opposite.
pub(super) fn put_restriction(caller: &Caller, user: &str, body: &[u8]) -> Result<Call, Problem> {
    let user = account(caller, user)?;
    if !body.trim_ascii().is_empty() {
        body::read::<WireNothing>(body, NOTHING)?;
    }
    Ok(Call::SetRestriction { user, restricted: true })
}

pub(super) fn delete_restriction(caller: &Caller, user: &str) -> Result<Call, Problem> {
    Ok(Call::SetRestriction { user: account(caller, user)?, restricted: false })
}

pub(super) fn check(caller: &Caller, body: &[u8]) -> Result<Call, Problem> {
    caller.needs_service_or_admin()?;
    let WireCheck { viewer, subjects } = body::read(body, CHECK)?;
    let viewer = viewer.map(|viewer| id("viewer", viewer)).transpose()?;
    if subjects.is_empty() {
        return Err(Problem::invalid("subjects", "is empty"));
    }
    let subjects = ids("subjects", subjects, MAX_SUBJECTS, UserId::parse)?;
    Ok(Call::Check { viewer, subjects: subjects.iter().collect() })
}

pub(super) fn changes(caller: &Caller, body: &[u8]) -> Result<Changes, Problem> {
    caller.needs(Scope::Service)?;
    let WireChanges { changes } = body::read(body, CHANGES)?;
    let (good, refused) = apart("changes", &changes, MAX_CHANGES, |item| change(caller, item.as_bytes()))?;
    Ok(Changes { good, refused })
}

/// One change of a batch. It is read for what it is to do first, and then for what that takes.
fn change(caller: &Caller, change: &[u8]) -> Result<Change, Problem> {
    let WireChange { op } = body::read(change, CHANGE)?;
    match op.0 {
        Op::Block => pair(change).map(|(owner, other)| Change::Block(owner, other)),
        Op::Unblock => pair(change).map(|(owner, other)| Change::Unblock(owner, other)),
        Op::AddContact => pair(change).map(|(owner, other)| Change::AddContact(owner, other)),
        Op::RemoveContact => pair(change).map(|(owner, other)| Change::RemoveContact(owner, other)),
        Op::Privacy => {
            let wire: WireSetting = body::read(change, SETTING)?;
            let privacy = Privacy { presence: wire.presence.0, last_seen: wire.last_seen.0 };
            Ok(Change::SetPrivacy(UserId::parse(wire.user)?, privacy))
        }
        Op::Restrict => changed_account(caller, change).map(Change::Restrict),
        Op::Unrestrict => changed_account(caller, change).map(Change::Unrestrict),
    }
}

fn pair(change: &[u8]) -> Result<(UserId, UserId), Problem> {
    let wire: WirePair = body::read(change, PAIR)?;
    two(UserId::parse(wire.user)?, id("other", wire.other)?)
}

fn changed_account(caller: &Caller, change: &[u8]) -> Result<UserId, Problem> {
    caller.needs(Scope::Admin)?;
    let wire: WireAccount = body::read(change, ACCOUNT)?;
    Ok(UserId::parse(wire.user)?)
}

/// Whose settings the query is about.
fn whose(caller: &Caller, query: &Query<'_>) -> Result<UserId, Problem> {
    acting_for(caller, query.text("user")?.map(Cow::into_owned))
}

/// Refuses to list somebody with themselves: everybody sees themselves, whatever is set.
fn two(owner: UserId, other: UserId) -> Result<(UserId, UserId), Problem> {
    if owner == other {
        return Err(Problem::invalid("other", "is the same person as the one whose list it is"));
    }
    Ok((owner, other))
}

/// The account of the path, for an administrator.
fn account(caller: &Caller, user: &str) -> Result<UserId, Problem> {
    caller.needs(Scope::Admin)?;
    user_id("user", user)
}

/// An id that a body has in another field than `user`.
fn id(field: &str, text: String) -> Result<UserId, Problem> {
    UserId::parse(text).map_err(|invalid| Problem::invalid(field, invalid.rule))
}

impl Word for Audience {
    const MEANINGS: &'static [(&'static str, Self)] =
        &[("everyone", Audience::Everyone), ("contacts", Audience::Contacts), ("nobody", Audience::Nobody)];
}

const AUDIENCES: &[&str] = &["everyone", "contacts", "nobody"];

const fn audience(name: &'static str, presence: Presence) -> Field {
    Field { name, shape: Shape::OneOf(AUDIENCES), presence }
}

const fn text(name: &'static str, presence: Presence) -> Field {
    Field { name, shape: Shape::Text, presence }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePrivacy {
    user: Option<String>,
    presence: Named<Audience>,
    last_seen: Named<Audience>,
}

const PRIVACY: &[Field] = &[USER, audience("presence", Presence::Required), audience("last_seen", Presence::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOwner {
    user: Option<String>,
}

const OWNER: &[Field] = &[USER];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireNothing {}

const NOTHING: &[Field] = &[];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCheck {
    viewer: Option<String>,
    subjects: Vec<String>,
}

const CHECK: &[Field] = &[
    text("viewer", Presence::Optional),
    Field { name: "subjects", shape: Shape::Texts, presence: Presence::Required },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireChanges<'a> {
    #[serde(borrow)]
    changes: Vec<&'a RawValue>,
}

const CHANGES: &[Field] = &[Field { name: "changes", shape: Shape::List, presence: Presence::Required }];

/// What a change is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Block,
    Unblock,
    AddContact,
    RemoveContact,
    Privacy,
    Restrict,
    Unrestrict,
}

impl Word for Op {
    const MEANINGS: &'static [(&'static str, Self)] = &[
        ("block", Op::Block),
        ("unblock", Op::Unblock),
        ("add_contact", Op::AddContact),
        ("remove_contact", Op::RemoveContact),
        ("privacy", Op::Privacy),
        ("restrict", Op::Restrict),
        ("unrestrict", Op::Unrestrict),
    ];
}

const OP: Field = Field {
    name: "op",
    shape: Shape::OneOf(&["block", "unblock", "add_contact", "remove_contact", "privacy", "restrict", "unrestrict"]),
    presence: Presence::Required,
};

/// Any change: fields beside this one are the business of what it says.
#[derive(Deserialize)]
struct WireChange {
    op: Named<Op>,
}

const CHANGE: &[Field] = &[
    OP,
    USER,
    text("other", Presence::Optional),
    audience("presence", Presence::Optional),
    audience("last_seen", Presence::Optional),
];

/// It must name its user: a service that forgot to would otherwise change its own settings.
const CHANGED: Field = text("user", Presence::Required);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePair {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
    other: String,
}

const PAIR: &[Field] = &[OP, CHANGED, text("other", Presence::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSetting {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
    presence: Named<Audience>,
    last_seen: Named<Audience>,
}

const SETTING: &[Field] =
    &[OP, CHANGED, audience("presence", Presence::Required), audience("last_seen", Presence::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireAccount {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
}

const ACCOUNT: &[Field] = &[OP, CHANGED];

#[cfg(test)]
mod tests;
