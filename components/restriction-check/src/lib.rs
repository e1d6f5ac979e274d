//! The `restriction-check` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.
//!
//! Unlike the others it remembers: an instance holds everything that anybody set, and answers from that. It forgets with the
//! instance, and what it answers is the same with and without.

use rollcall_core::policy::{Invalidation, Ruling, Verdict};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::restrictions::{CacheState, Freshness, PolicyCache};
use rollcall_guest::{PlatformPolicy, change_in, error_out, own_settings_out};

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "restriction-check-function",
        with: {
            "rollcall:presence/types@0.1.0": rollcall_guest::wit::types,
            "rollcall:presence/policy@0.1.0": rollcall_guest::wit::policy,
        },
    });
    use super::Component;
    export!(Component);
}

use bindings::exports::rollcall::presence::restriction_check as check;
use bindings::exports::rollcall::presence::restrictions as wit;
use rollcall_guest::wit::types;

thread_local! {
    /// Lives as long as the instance: calls that wait hold on to it.
    static POLICY_CACHE: &'static PolicyCache = Box::leak(Box::default());
}

fn policy_cache() -> &'static PolicyCache {
    POLICY_CACHE.with(|policy_cache| *policy_cache)
}

struct Component;

impl check::Guest for Component {
    async fn check(viewer: Option<String>, subjects: types::Ids) -> Result<Vec<check::Verdict>, types::Error> {
        let viewer = viewer.map(UserId::parse).transpose().map_err(|invalid| error_out(invalid.into()))?;
        let subjects = ids_in(subjects).map_err(error_out)?;
        let verdicts = policy_cache().check(&PlatformPolicy, viewer, subjects).await.map_err(error_out)?;
        Ok(verdicts.into_iter().map(verdict_out).collect())
    }
}

impl wit::Guest for Component {
    async fn apply(changes: Vec<wit::Change>) -> Result<Vec<Result<(), types::Error>>, types::Error> {
        let changes = changes.into_iter().map(|change| change_in(change).map_err(Error::from)).collect();
        let answers = policy_cache().apply(&PlatformPolicy, changes).await.map_err(error_out)?;
        Ok(answers.into_iter().map(|answer| answer.map_err(error_out)).collect())
    }

    async fn refresh(limit: u32, memory_bytes: u64) -> Result<wit::Freshness, types::Error> {
        policy_cache().refresh(&PlatformPolicy, limit, memory_bytes).await.map(freshness_out).map_err(error_out)
    }

    async fn settings_of(user: String) -> Result<wit::OwnSettings, types::Error> {
        let user = UserId::parse(user).map_err(|invalid| error_out(invalid.into()))?;
        policy_cache().settings_of(&PlatformPolicy, user).await.map(own_settings_out).map_err(error_out)
    }
}

/// The subjects, all fit or none: there is no place in a list of verdicts for one that is not.
fn ids_in(ids: types::Ids) -> Result<Ids<UserId>, Error> {
    Ids::parse(ids.text, ids.lengths).map_err(|unfit| match unfit.pieces() {
        Ok(mut pieces) => {
            let first = pieces.find_map(|piece| UserId::parse(piece).err());
            first.map_or_else(|| Error::Other("an id is unfit and yet it is not".to_owned()), Error::from)
        }
        Err(invalid) => invalid.into(),
    })
}

fn verdict_out(verdict: Verdict) -> check::Verdict {
    let presence = match verdict.presence {
        Ruling::Allowed => check::Ruling::Allowed,
        Ruling::Restricted => check::Ruling::Restricted,
        Ruling::Blocked => check::Ruling::Blocked,
        Ruling::Private => check::Ruling::Private,
    };
    check::Verdict { presence, last_seen: verdict.last_seen }
}

fn freshness_out(freshness: Freshness) -> wit::Freshness {
    wit::Freshness {
        standing: match freshness.state {
            CacheState::Cold => wit::Standing::Cold,
            CacheState::Loading => wit::Standing::Loading,
            CacheState::Warm => wit::Standing::Warm,
            CacheState::TooLarge => wit::Standing::TooLarge,
        },
        more: freshness.more,
        caught_up: freshness.caught_up,
        applied: freshness.applied,
        bytes: freshness.bytes,
        restricted: freshness.restricted,
        blocks: freshness.blocks,
        invalidated: freshness.invalidated.into_iter().map(invalidation_out).collect(),
    }
}

fn invalidation_out(invalidation: Invalidation) -> wit::Invalidation {
    match invalidation {
        Invalidation::Subject(user) => wit::Invalidation::Subject(user.into_string()),
        Invalidation::Pair(one, other) => wit::Invalidation::Pair((one.into_string(), other.into_string())),
        Invalidation::Numbers(page) => wit::Invalidation::Numbers(page),
        Invalidation::Everybody => wit::Invalidation::Everybody,
    }
}
