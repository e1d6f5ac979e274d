//! Answers the calls about policy, over the functions of whatever serves them: a worker of the host, or a trigger.

use rollcall_core::policy::{OwnSettings, PolicyChange, Ruling, Verdict};
use rollcall_core::{Error, Ids, UserId};

use crate::call::{Call, List, only};
use crate::problem::Reply;
use crate::responses;

/// The functions that these calls need.
#[allow(async_fn_in_trait, reason = "a worker and a component have one thread, and name no future's auto traits")]
pub trait PolicyFunctions {
    /// Applies changes; those that succeeded are in force when this returns.
    async fn apply(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error>;
    /// What a user has set.
    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error>;
    /// Verdicts for one viewer, in the order of the subjects.
    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error>;
}

/// Answers a call about policy. Any other call is a bug of the caller.
pub async fn respond(functions: &impl PolicyFunctions, call: Call) -> Result<Reply, Error> {
    match call {
        Call::Privacy { user } => Ok(responses::privacy(&user, functions.settings_of(user.clone()).await?.privacy)),
        Call::SetPrivacy { user, privacy } => {
            change(functions, PolicyChange::SetPrivacy(user.clone(), privacy)).await?;
            Ok(responses::privacy(&user, privacy))
        }
        Call::Listed { user, list } => {
            let own = functions.settings_of(user.clone()).await?;
            let listed = match list {
                List::Contacts => own.contacts,
                List::Blocks => own.blocks,
            };
            Ok(responses::listed(&user, list, &listed))
        }
        Call::List { owner, other, list, listed } => {
            let reply = responses::list(&owner, &other, list, listed);
            let changed = match (list, listed) {
                (List::Contacts, true) => PolicyChange::AddContact(owner, other),
                (List::Contacts, false) => PolicyChange::RemoveContact(owner, other),
                (List::Blocks, true) => PolicyChange::Block(owner, other),
                (List::Blocks, false) => PolicyChange::Unblock(owner, other),
            };
            change(functions, changed).await?;
            Ok(reply)
        }
        Call::Restriction { user } => {
            let verdicts = functions.check(None, [&user].into_iter().collect()).await?;
            let restricted = verdicts.iter().any(|verdict| verdict.presence == Ruling::Restricted);
            Ok(responses::restriction(&user, restricted))
        }
        Call::SetRestriction { user, restricted } => {
            let reply = responses::restriction(&user, restricted);
            let changed = if restricted { PolicyChange::Restrict(user) } else { PolicyChange::Unrestrict(user) };
            change(functions, changed).await?;
            Ok(reply)
        }
        Call::Check { viewer, subjects } => Ok(responses::check(&functions.check(viewer, subjects).await?)),
        Call::Changes(changes) => {
            let good = changes.good.clone();
            let outcomes = if good.is_empty() { Vec::new() } else { functions.apply(good).await? };
            Ok(responses::changes(&changes, &outcomes))
        }
        _ => Err(Error::Other("not a call about policy".to_owned())),
    }
}

async fn change(functions: &impl PolicyFunctions, change: PolicyChange) -> Result<(), Error> {
    only(functions.apply(vec![change]).await?)
}
