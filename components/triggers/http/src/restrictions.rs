//! The trigger of `restriction-check`: privacy, contacts, blocks, restrictions and checks. A change is in force for every
//! reader of the store when it is answered.

use rollcall_api::call::{Call, Changes, List};
use rollcall_api::{Function, Reply, responses};
use rollcall_contract::guest::convert::{answers, each};
use rollcall_contract::guest::wit::{restriction_check, restrictions};
use rollcall_core::policy::{Change, Privacy, Ruling, Verdict};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::OwnSettings;

use crate::{Answer, Setup, Trigger, misrouted, only, short, text};

/// The trigger of `restriction-check`.
#[derive(Debug)]
pub enum Restrictions {}

impl Trigger for Restrictions {
    fn serves(function: Function<'_>) -> bool {
        matches!(
            function,
            Function::Privacy
                | Function::PutPrivacy
                | Function::Listed(_)
                | Function::PutListed(..)
                | Function::DeleteListed(..)
                | Function::Restriction(_)
                | Function::PutRestriction(_)
                | Function::DeleteRestriction(_)
                | Function::Check
                | Function::Changes
        )
    }

    async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
        let reply = match call {
            Call::Privacy { user } => responses::privacy(&user, settings_of(&user).await?.privacy),
            Call::SetPrivacy { user, privacy } => set_privacy(&user, privacy).await?,
            Call::Listed { user, list } => listed(&user, list).await?,
            Call::List { owner, other, list, listed } => self::list(owner, other, list, listed).await?,
            Call::Restriction { user } => restriction(&user).await?,
            Call::SetRestriction { user, restricted } => set_restriction(user, restricted).await?,
            Call::Check { viewer, subjects } => responses::check(&check(viewer.as_ref(), subjects).await?),
            Call::Changes(asked) => changes(&asked).await?,
            _ => return Err(misrouted()),
        };
        Ok(reply.into())
    }
}

async fn set_privacy(user: &UserId, privacy: Privacy) -> Result<Reply, Error> {
    change(Change::SetPrivacy(user.clone(), privacy)).await?;
    Ok(responses::privacy(user, privacy))
}

async fn listed(user: &UserId, list: List) -> Result<Reply, Error> {
    let own = settings_of(user).await?;
    let listed = match list {
        List::Contacts => own.contacts,
        List::Blocks => own.blocks,
    };
    Ok(responses::listed(user, list, &listed))
}

async fn list(owner: UserId, other: UserId, list: List, listed: bool) -> Result<Reply, Error> {
    let reply = responses::list(&owner, &other, list, listed);
    change(match (list, listed) {
        (List::Contacts, true) => Change::AddContact(owner, other),
        (List::Contacts, false) => Change::RemoveContact(owner, other),
        (List::Blocks, true) => Change::Block(owner, other),
        (List::Blocks, false) => Change::Unblock(owner, other),
    })
    .await?;
    Ok(reply)
}

async fn restriction(user: &UserId) -> Result<Reply, Error> {
    let verdicts = check(None, [user].into_iter().collect()).await?;
    let restricted = verdicts.iter().any(|verdict| verdict.presence == Ruling::Restricted);
    Ok(responses::restriction(user, restricted))
}

async fn set_restriction(user: UserId, restricted: bool) -> Result<Reply, Error> {
    let reply = responses::restriction(&user, restricted);
    change(if restricted { Change::Restrict(user) } else { Change::Unrestrict(user) }).await?;
    Ok(reply)
}

async fn changes(asked: &Changes) -> Result<Reply, Error> {
    let good = asked.good.clone();
    let outcomes = if good.is_empty() { Vec::new() } else { apply(good).await? };
    Ok(responses::changes(asked, &outcomes))
}

async fn change(change: Change) -> Result<(), Error> {
    only(apply(vec![change]).await?)
}

async fn apply(changes: Vec<Change>) -> Result<Vec<Result<(), Error>>, Error> {
    answers(restrictions::apply(each(changes)).await)
}

async fn settings_of(user: &UserId) -> Result<OwnSettings, Error> {
    Ok(restrictions::settings_of(text(user)).await?.try_into()?)
}

async fn check(viewer: Option<&UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error> {
    let asked = subjects.len();
    let verdicts = restriction_check::check(viewer.map(text), subjects.into()).await?;
    if verdicts.len() != asked {
        return Err(short());
    }
    Ok(each(verdicts))
}
