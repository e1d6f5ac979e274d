//! A replacement for `restriction-check`: only users of the same team see each other.
//!
//! An id is `team/name`. There is nothing to look up or to cache, so it does not import the `policy` capability that its
//! world offers. Loaded instead of the built-in one, it decides for queries, subscriptions and typing:
//!
//! ```sh
//! rollcall serve --component restriction-check=policy-component.wasm
//! ```

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "restriction-check-function",
        generate_all,
    });
    use super::SameTeam;
    export!(SameTeam);
}

use bindings::exports::rollcall::presence::{restriction_check, restrictions};
use bindings::rollcall::presence::policy_types::{CacheState, Freshness, OwnSettings, PolicyChange, Ruling, Verdict};
use bindings::rollcall::presence::types::{Error, Ids, Invalid};

struct SameTeam;

impl restriction_check::Guest for SameTeam {
    async fn check(viewer: Option<String>, subjects: Ids) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::with_capacity(subjects.lengths.len());
        let mut rest = subjects.text.as_str();
        for length in subjects.lengths {
            // The ids are concatenated in one string, which is copied into the component in one piece.
            let (subject, more) = rest.split_at_checked(usize::from(length)).ok_or_else(miscut)?;
            rest = more;
            // A viewer of none is a service, which sees everyone.
            let seen = viewer.as_deref().is_none_or(|viewer| viewer == subject || same_team(viewer, subject));
            let presence = if seen { Ruling::Allowed } else { Ruling::Private };
            verdicts.push(Verdict { presence, last_seen: seen });
        }
        if rest.is_empty() { Ok(verdicts) } else { Err(miscut()) }
    }
}

impl restrictions::Guest for SameTeam {
    /// The id names the team: there is nothing to change.
    async fn apply(_changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        Err(Error::Denied)
    }

    /// There is nothing to load, and nothing changes.
    async fn refresh(_limit: u32, _memory_bytes: u64) -> Result<Freshness, Error> {
        let (state, invalidated) = (CacheState::Warm, Vec::new());
        let (applied, bytes, restricted, blocks) = (0, 0, 0, 0);
        Ok(Freshness { state, more: false, caught_up: true, applied, bytes, restricted, blocks, invalidated })
    }

    async fn settings_of(_user: String) -> Result<OwnSettings, Error> {
        Err(Error::Denied)
    }
}

/// Whether both are in one team. A user without a team sees only themselves.
fn same_team(one: &str, other: &str) -> bool {
    let team = |id: &'_ str| id.split_once('/').map(|(team, _)| team.to_owned());
    team(one).is_some() && team(one) == team(other)
}

fn miscut() -> Error {
    Error::Invalid(Invalid { field: "lengths".to_owned(), rule: "do not cut the text into whole ids".to_owned() })
}
