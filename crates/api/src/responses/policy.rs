//! Responses about policy.
//!
//! Only the response to a check contains the reason why a user is hidden; a presence shows only that they are.

use rollcall_core::policy::{Audience, Privacy, Ruling, Verdict};
use rollcall_core::{Error, UserId};
use serde::Serialize;

use super::{answer, in_places, json_reply};
use crate::call::{List, PolicyChanges, Refused};
use crate::problem::{ErrorJson, Reply};

/// The privacy settings, read or set.
pub fn privacy(user: &UserId, privacy: Privacy) -> Reply {
    let Privacy { presence, last_seen } = privacy;
    json_reply(&PrivacyJson { user: user.as_str(), presence: audience(presence), last_seen: audience(last_seen) })
}

/// A list, sorted by id.
pub fn listed(user: &UserId, list: List, others: &[UserId]) -> Reply {
    let user = user.as_str();
    let mut others: Vec<&str> = others.iter().map(UserId::as_str).collect();
    others.sort_unstable();
    match list {
        List::Contacts => json_reply(&ContactsJson { user, contacts: others }),
        List::Blocks => json_reply(&BlocksJson { user, blocks: others }),
    }
}

/// The response to adding or removing a listed user.
pub fn list(owner: &UserId, other: &UserId, list: List, listed: bool) -> Reply {
    let (user, other) = (owner.as_str(), other.as_str());
    match list {
        List::Contacts => json_reply(&ContactJson { user, other, contact: listed }),
        List::Blocks => json_reply(&BlockJson { user, other, blocked: listed }),
    }
}

/// Whether an account is restricted, read or set.
pub fn restriction(user: &UserId, restricted: bool) -> Reply {
    json_reply(&RestrictionJson { user: user.as_str(), restricted })
}

/// The verdicts of a check, in the order asked.
pub fn check(verdicts: &[Verdict]) -> Reply {
    json_reply(&VerdictsJson {
        verdicts: verdicts.iter().map(|verdict| ruling(verdict.presence)).collect(),
        last_seen: verdicts.iter().map(|verdict| verdict.last_seen).collect(),
    })
}

/// The response to a batch of changes. `outcomes` are those of `changes.good`, in order; a missing one is an internal
/// error in its place.
pub fn changes<'a>(changes: &'a PolicyChanges, outcomes: &[Result<(), Error>]) -> Reply {
    let tried = (0..changes.good.len()).map(|place| match answer(outcomes, place) {
        Ok(()) => ChangedJson::Made { ok: true },
        Err(problem) => ChangedJson::Failed { error: problem.into_json_body() },
    });
    let refused = |refused: &'a Refused| ChangedJson::Failed { error: refused.problem.json_body() };
    json_reply(&ChangesJson { outcomes: in_places(tried, &changes.refused, refused) })
}

pub(super) fn audience(audience: Audience) -> &'static str {
    match audience {
        Audience::Everyone => "everyone",
        Audience::Contacts => "contacts",
        Audience::Nobody => "nobody",
    }
}

fn ruling(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Allowed => "allowed",
        Ruling::Restricted => "restricted",
        Ruling::Blocked => "blocked",
        Ruling::Private => "private",
    }
}

#[derive(Serialize)]
struct PrivacyJson<'a> {
    user: &'a str,
    presence: &'static str,
    last_seen: &'static str,
}

#[derive(Serialize)]
struct ContactsJson<'a> {
    user: &'a str,
    contacts: Vec<&'a str>,
}

#[derive(Serialize)]
struct BlocksJson<'a> {
    user: &'a str,
    blocks: Vec<&'a str>,
}

#[derive(Serialize)]
struct ContactJson<'a> {
    user: &'a str,
    other: &'a str,
    contact: bool,
}

#[derive(Serialize)]
struct BlockJson<'a> {
    user: &'a str,
    other: &'a str,
    blocked: bool,
}

#[derive(Serialize)]
struct RestrictionJson<'a> {
    user: &'a str,
    restricted: bool,
}

#[derive(Serialize)]
struct VerdictsJson {
    verdicts: Vec<&'static str>,
    last_seen: Vec<bool>,
}

#[derive(Serialize)]
struct ChangesJson<'a> {
    outcomes: Vec<ChangedJson<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChangedJson<'a> {
    Made { ok: bool },
    Failed { error: ErrorJson<'a> },
}

#[cfg(test)]
mod tests;
