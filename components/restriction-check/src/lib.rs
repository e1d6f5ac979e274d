//! The `restriction-check` function as a component: decode, call, encode. What it decides is in `rollcall-functions`.
//!
//! Unlike the other functions it keeps state: an instance caches the whole policy and answers from it. The cache ends with
//! the instance, and the answers are the same with and without it.

use rollcall_contract::exported;
use rollcall_contract::guest::PlatformPolicy;
use rollcall_contract::guest::convert::{each, replies};
use rollcall_contract::guest::exports::restriction_check::{restriction_check, restrictions};
use rollcall_contract::guest::wit::{policy_types, types};
use rollcall_core::{Error, UserId};
use rollcall_functions::restrictions::PolicyCache;

thread_local! {
    /// Lives as long as the instance; calls in flight refer to it.
    static POLICY_CACHE: &'static PolicyCache = Box::leak(Box::default());
}

fn policy_cache() -> &'static PolicyCache {
    POLICY_CACHE.with(|policy_cache| *policy_cache)
}

struct Component;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Component;
    rollcall_contract::guest::exports::restriction_check::export_restriction_check!(Component);
}

impl restriction_check::Guest for Component {
    exported! {
        /// An invalid subject fails the call: a list of verdicts has no place for it.
        async fn check(viewer: Option<String>, subjects: types::Ids) -> Result<Vec<policy_types::Verdict>, types::Error> {
            let viewer = viewer.map(UserId::parse).transpose()?;
            Ok(each(policy_cache().check(&PlatformPolicy, viewer, subjects.try_into()?).await?))
        }
    }
}

impl restrictions::Guest for Component {
    exported! {
        async fn apply(changes: Vec<policy_types::PolicyChange>) -> Result<Vec<Result<(), types::Error>>, types::Error> {
            let changes = changes.into_iter().map(|change| change.try_into().map_err(Error::Invalid)).collect();
            Ok(replies(policy_cache().apply(&PlatformPolicy, changes).await?))
        }

        async fn refresh(limit: u32, memory_bytes: u64) -> Result<policy_types::Freshness, types::Error> {
            Ok(policy_cache().refresh(&PlatformPolicy, limit, memory_bytes).await?.into())
        }

        async fn settings_of(user: String) -> Result<policy_types::OwnSettings, types::Error> {
            Ok(policy_cache().settings_of(&PlatformPolicy, UserId::parse(user)?).await?.into())
        }
    }
}
