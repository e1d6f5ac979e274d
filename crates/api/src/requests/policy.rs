//! Requests about policy. A user decides for themselves, a service for any user, and only an administrator restricts.
//! The reason why a user is hidden is never shown to viewers: a check is for services and administrators.

use std::borrow::Cow;

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, MAX_SUBJECTS, PolicyChange, Privacy};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{USER, acting_for, ids, split_batch};
use crate::call::{Call, List, PolicyChanges};
use crate::caller::{Caller, Scope};
use crate::json::{self, Field, FieldType, Named, Requirement, StringEnum};
use crate::limits::MAX_CHANGES;
use crate::problem::Problem;
use crate::query::{Query, user_id};

pub(super) fn privacy(caller: &Caller, query: &Query<'_>) -> Result<Call, Problem> {
    Ok(Call::Privacy { user: settings_owner(caller, query)? })
}

pub(super) fn put_privacy(caller: &Caller, body: &[u8]) -> Result<Call, Problem> {
    let request: PrivacyJson = json::read(body, PRIVACY)?;
    let privacy = Privacy { presence: request.presence.0, last_seen: request.last_seen.0 };
    Ok(Call::SetPrivacy { user: acting_for(caller, request.user)?, privacy })
}

pub(super) fn listed(caller: &Caller, list: List, query: &Query<'_>) -> Result<Call, Problem> {
    Ok(Call::Listed { user: settings_owner(caller, query)?, list })
}

pub(super) fn put_listed(caller: &Caller, list: List, other: &str, body: &[u8]) -> Result<Call, Problem> {
    let other = user_id("other", other)?;
    let named = if body.trim_ascii().is_empty() { None } else { json::read::<OwnerJson>(body, OWNER)?.user };
    let (owner, other) = distinct_pair(acting_for(caller, named)?, other)?;
    Ok(Call::List { owner, other, list, listed: true })
}

pub(super) fn delete_listed(caller: &Caller, list: List, other: &str, query: &Query<'_>) -> Result<Call, Problem> {
    let other = user_id("other", other)?;
    let (owner, other) = distinct_pair(settings_owner(caller, query)?, other)?;
    Ok(Call::List { owner, other, list, listed: false })
}

pub(super) fn restriction(caller: &Caller, user: &str) -> Result<Call, Problem> {
    Ok(Call::Restriction { user: account(caller, user)? })
}

/// The body has no fields. A field is still refused, or `{"restricted":false}` would do the opposite of what it says.
pub(super) fn put_restriction(caller: &Caller, user: &str, body: &[u8]) -> Result<Call, Problem> {
    let user = account(caller, user)?;
    if !body.trim_ascii().is_empty() {
        json::read::<EmptyJson>(body, EMPTY)?;
    }
    Ok(Call::SetRestriction { user, restricted: true })
}

pub(super) fn delete_restriction(caller: &Caller, user: &str) -> Result<Call, Problem> {
    Ok(Call::SetRestriction { user: account(caller, user)?, restricted: false })
}

pub(super) fn check(caller: &Caller, body: &[u8]) -> Result<Call, Problem> {
    caller.needs_service_or_admin()?;
    let CheckJson { viewer, subjects } = json::read(body, CHECK)?;
    let viewer = viewer.map(|viewer| id("viewer", viewer)).transpose()?;
    if subjects.is_empty() {
        return Err(Problem::invalid("subjects", "is empty"));
    }
    let subjects = ids("subjects", subjects, MAX_SUBJECTS, UserId::parse)?;
    Ok(Call::Check { viewer, subjects: subjects.iter().collect() })
}

pub(super) fn changes(caller: &Caller, body: &[u8]) -> Result<PolicyChanges, Problem> {
    caller.needs(Scope::Service)?;
    let ChangesJson { changes } = json::read(body, CHANGES)?;
    let (good, refused) = split_batch("changes", &changes, MAX_CHANGES, |item| change(caller, item.as_bytes()))?;
    Ok(PolicyChanges { good, refused })
}

/// One change of a batch: parsed for its `op` first, then for the fields of that `op`.
fn change(caller: &Caller, change: &[u8]) -> Result<PolicyChange, Problem> {
    let ChangeJson { op } = json::read(change, CHANGE)?;
    match op.0 {
        Op::Block => pair(change).map(|(owner, other)| PolicyChange::Block(owner, other)),
        Op::Unblock => pair(change).map(|(owner, other)| PolicyChange::Unblock(owner, other)),
        Op::AddContact => pair(change).map(|(owner, other)| PolicyChange::AddContact(owner, other)),
        Op::RemoveContact => pair(change).map(|(owner, other)| PolicyChange::RemoveContact(owner, other)),
        Op::Privacy => {
            let request: SettingJson = json::read(change, SETTING)?;
            let privacy = Privacy { presence: request.presence.0, last_seen: request.last_seen.0 };
            Ok(PolicyChange::SetPrivacy(UserId::parse(request.user)?, privacy))
        }
        Op::Restrict => changed_account(caller, change).map(PolicyChange::Restrict),
        Op::Unrestrict => changed_account(caller, change).map(PolicyChange::Unrestrict),
    }
}

fn pair(change: &[u8]) -> Result<(UserId, UserId), Problem> {
    let request: PairJson = json::read(change, PAIR)?;
    distinct_pair(UserId::parse(request.user)?, id("other", request.other)?)
}

fn changed_account(caller: &Caller, change: &[u8]) -> Result<UserId, Problem> {
    caller.needs(Scope::Admin)?;
    let request: AccountJson = json::read(change, ACCOUNT)?;
    Ok(UserId::parse(request.user)?)
}

/// The user whose settings the query concerns.
fn settings_owner(caller: &Caller, query: &Query<'_>) -> Result<UserId, Problem> {
    acting_for(caller, query.text("user")?.map(Cow::into_owned))
}

/// Refuses a user who lists themselves: users always see themselves.
fn distinct_pair(owner: UserId, other: UserId) -> Result<(UserId, UserId), Problem> {
    if owner == other {
        return Err(Problem::invalid("other", "must not be the user who owns the list"));
    }
    Ok((owner, other))
}

/// The account named in the path; needs the scope `admin`.
fn account(caller: &Caller, user: &str) -> Result<UserId, Problem> {
    caller.needs(Scope::Admin)?;
    user_id("user", user)
}

/// Parses an id from a field other than `user`.
fn id(field: &str, text: String) -> Result<UserId, Problem> {
    UserId::parse(text).map_err(|invalid| Problem::invalid(field, invalid.rule))
}

impl StringEnum for Audience {
    const VARIANTS: &'static [(&'static str, Self)] =
        &[("everyone", Audience::Everyone), ("contacts", Audience::Contacts), ("nobody", Audience::Nobody)];
}

const AUDIENCES: &[&str] = &["everyone", "contacts", "nobody"];

const fn audience(name: &'static str, requirement: Requirement) -> Field {
    Field { name, kind: FieldType::OneOf(AUDIENCES), requirement }
}

const fn text(name: &'static str, requirement: Requirement) -> Field {
    Field { name, kind: FieldType::String, requirement }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivacyJson {
    user: Option<String>,
    presence: Named<Audience>,
    last_seen: Named<Audience>,
}

const PRIVACY: &[Field] =
    &[USER, audience("presence", Requirement::Required), audience("last_seen", Requirement::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerJson {
    user: Option<String>,
}

const OWNER: &[Field] = &[USER];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyJson {}

const EMPTY: &[Field] = &[];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckJson {
    viewer: Option<String>,
    subjects: Vec<String>,
}

const CHECK: &[Field] = &[
    text("viewer", Requirement::Optional),
    Field { name: "subjects", kind: FieldType::Strings, requirement: Requirement::Required },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangesJson<'a> {
    #[serde(borrow)]
    changes: Vec<&'a RawValue>,
}

const CHANGES: &[Field] = &[Field { name: "changes", kind: FieldType::Array, requirement: Requirement::Required }];

/// The operation of a change.
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

impl StringEnum for Op {
    const VARIANTS: &'static [(&'static str, Self)] = &[
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
    kind: FieldType::OneOf(&["block", "unblock", "add_contact", "remove_contact", "privacy", "restrict", "unrestrict"]),
    requirement: Requirement::Required,
};

/// Any change: the other fields depend on `op`.
#[derive(Deserialize)]
struct ChangeJson {
    op: Named<Op>,
}

const CHANGE: &[Field] = &[
    OP,
    USER,
    text("other", Requirement::Optional),
    audience("presence", Requirement::Optional),
    audience("last_seen", Requirement::Optional),
];

/// Required, or a service that forgot to name the user would change its own settings.
const CHANGED: Field = text("user", Requirement::Required);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairJson {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
    other: String,
}

const PAIR: &[Field] = &[OP, CHANGED, text("other", Requirement::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingJson {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
    presence: Named<Audience>,
    last_seen: Named<Audience>,
}

const SETTING: &[Field] =
    &[OP, CHANGED, audience("presence", Requirement::Required), audience("last_seen", Requirement::Required)];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountJson {
    #[serde(rename = "op")]
    _op: IgnoredAny,
    user: String,
}

const ACCOUNT: &[Field] = &[OP, CHANGED];

#[cfg(test)]
mod tests;
