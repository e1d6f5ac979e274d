//! Answers about who may see whom.
//!
//! Why somebody is hidden stands in the answer to a check and nowhere else: a presence says only that they are.

use rollcall_core::policy::{Audience, Privacy, Ruling, Verdict};
use rollcall_core::{Error, UserId};
use serde::Serialize;

use super::{answer, in_places, json};
use crate::call::{Changes, List, Refused};
use crate::problem::{Reply, WireError};

/// The answer about what a person lets others see, asked for or set.
pub fn privacy(user: &UserId, privacy: Privacy) -> Reply {
    let Privacy { presence, last_seen } = privacy;
    json(&WirePrivacy { user: user.as_str(), presence: audience(presence), last_seen: audience(last_seen) })
}

/// The answer about whom a person listed, by rising id whatever the order they came in.
pub fn listed(user: &UserId, list: List, others: &[UserId]) -> Reply {
    let user = user.as_str();
    let mut others: Vec<&str> = others.iter().map(UserId::as_str).collect();
    others.sort_unstable();
    match list {
        List::Contacts => json(&WireContacts { user, contacts: others }),
        List::Blocks => json(&WireBlocks { user, blocks: others }),
    }
}

/// The answer to listing somebody, or to taking that back.
pub fn list(owner: &UserId, other: &UserId, list: List, listed: bool) -> Reply {
    let (user, other) = (owner.as_str(), other.as_str());
    match list {
        List::Contacts => json(&WireContact { user, other, contact: listed }),
        List::Blocks => json(&WireBlock { user, other, blocked: listed }),
    }
}

/// The answer about an account's restriction, asked for or set.
pub fn restriction(user: &UserId, restricted: bool) -> Reply {
    json(&WireRestriction { user: user.as_str(), restricted })
}

/// The answer to a check, in the order asked.
pub fn check(verdicts: &[Verdict]) -> Reply {
    json(&WireVerdicts {
        verdicts: verdicts.iter().map(|verdict| ruling(verdict.presence)).collect(),
        last_seen: verdicts.iter().map(|verdict| verdict.last_seen).collect(),
    })
}

/// The answer to a batch of changes. `outcomes` are those of `changes.good`, in their order; one that is lacking is a
/// failure of ours, in its place.
pub fn changes<'a>(changes: &'a Changes, outcomes: &[Result<(), Error>]) -> Reply {
    let tried = (0..changes.good.len()).map(|place| match answer(outcomes, place) {
        Ok(()) => WireChanged::Made { ok: true },
        Err(problem) => WireChanged::Failed { error: problem.into_wire() },
    });
    let refused = |refused: &'a Refused| WireChanged::Failed { error: refused.problem.wire() };
    json(&WireChanges { outcomes: in_places(tried, &changes.refused, refused) })
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
struct WirePrivacy<'a> {
    user: &'a str,
    presence: &'static str,
    last_seen: &'static str,
}

#[derive(Serialize)]
struct WireContacts<'a> {
    user: &'a str,
    contacts: Vec<&'a str>,
}

#[derive(Serialize)]
struct WireBlocks<'a> {
    user: &'a str,
    blocks: Vec<&'a str>,
}

#[derive(Serialize)]
struct WireContact<'a> {
    user: &'a str,
    other: &'a str,
    contact: bool,
}

#[derive(Serialize)]
struct WireBlock<'a> {
    user: &'a str,
    other: &'a str,
    blocked: bool,
}

#[derive(Serialize)]
struct WireRestriction<'a> {
    user: &'a str,
    restricted: bool,
}

#[derive(Serialize)]
struct WireVerdicts {
    verdicts: Vec<&'static str>,
    last_seen: Vec<bool>,
}

#[derive(Serialize)]
struct WireChanges<'a> {
    outcomes: Vec<WireChanged<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireChanged<'a> {
    Made { ok: bool },
    Failed { error: WireError<'a> },
}

#[cfg(test)]
mod tests;
