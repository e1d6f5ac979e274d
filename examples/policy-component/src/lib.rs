//! A policy of one's own: people see each other if they are of the same team, and nobody else.
//!
//! An id is `team/name`. There is nothing to look up and nothing to remember, so this needs nobody: not the store, not even
//! the `policy` capability that its world offers. Put in place of the one in the binary, it decides for queries, watchers
//! and typing alike:
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
use bindings::rollcall::presence::types::{Error, Ids, Invalid};
use restriction_check::{Ruling, Verdict};
use restrictions::{Change, Freshness, OwnSettings, Standing};

struct SameTeam;

impl restriction_check::Guest for SameTeam {
    async fn check(viewer: Option<String>, subjects: Ids) -> Result<Vec<Verdict>, Error> {
        let mut verdicts = Vec::with_capacity(subjects.lengths.len());
        let mut rest = subjects.text.as_str();
        for length in subjects.lengths {
            // Many ids come as one text, end to end: it crosses the border of a component in one piece.
            let (subject, more) = rest.split_at_checked(usize::from(length)).ok_or_else(miscut)?;
            rest = more;
            // A viewer of none is a service, which sees everybody.
            let seen = viewer.as_deref().is_none_or(|viewer| viewer == subject || same_team(viewer, subject));
            let presence = if seen { Ruling::Allowed } else { Ruling::Private };
            verdicts.push(Verdict { presence, last_seen: seen });
        }
        if rest.is_empty() { Ok(verdicts) } else { Err(miscut()) }
    }
}

impl restrictions::Guest for SameTeam {
    /// Teams are in the names: there is nothing here to be changed.
    async fn apply(_changes: Vec<Change>) -> Result<Vec<Result<(), Error>>, Error> {
        Err(Error::Denied)
    }

    /// Nothing has to be loaded, and nothing ever changes.
    async fn refresh(_limit: u32, _memory_bytes: u64) -> Result<Freshness, Error> {
        let (standing, invalidated) = (Standing::Warm, Vec::new());
        let (applied, bytes, restricted, blocks) = (0, 0, 0, 0);
        Ok(Freshness { standing, more: false, caught_up: true, applied, bytes, restricted, blocks, invalidated })
    }

    async fn settings_of(_user: String) -> Result<OwnSettings, Error> {
        Err(Error::Denied)
    }
}

/// Whether both are of one team. Whoever has none is alone.
fn same_team(one: &str, other: &str) -> bool {
    let team = |id: &'_ str| id.split_once('/').map(|(team, _)| team.to_owned());
    team(one).is_some() && team(one) == team(other)
}

fn miscut() -> Error {
    Error::Invalid(Invalid { field: "lengths".to_owned(), rule: "do not cut the text into whole ids".to_owned() })
}
