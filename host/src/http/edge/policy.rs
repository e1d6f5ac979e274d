//! Calls about policy. A change is answered when it is in force on every worker of this host.

use rollcall_api::call::{Changes, List};
use rollcall_api::{Reply, responses};
use rollcall_core::policy::{Change, Privacy, Ruling};
use rollcall_core::{Error, Ids, UserId};

use super::{Edge, only};

impl Edge {
    pub(super) async fn privacy(&self, user: &UserId) -> Result<Reply, Error> {
        let own = self.functions.settings_of(user.clone()).await?;
        Ok(responses::privacy(user, own.privacy))
    }

    pub(super) async fn set_privacy(&self, user: &UserId, privacy: Privacy) -> Result<Reply, Error> {
        self.change(Change::SetPrivacy(user.clone(), privacy)).await?;
        Ok(responses::privacy(user, privacy))
    }

    pub(super) async fn listed(&self, user: &UserId, list: List) -> Result<Reply, Error> {
        let own = self.functions.settings_of(user.clone()).await?;
        let listed = match list {
            List::Contacts => own.contacts,
            List::Blocks => own.blocks,
        };
        Ok(responses::listed(user, list, &listed))
    }

    pub(super) async fn list(&self, owner: UserId, other: UserId, list: List, listed: bool) -> Result<Reply, Error> {
        let reply = responses::list(&owner, &other, list, listed);
        self.change(match (list, listed) {
            (List::Contacts, true) => Change::AddContact(owner, other),
            (List::Contacts, false) => Change::RemoveContact(owner, other),
            (List::Blocks, true) => Change::Block(owner, other),
            (List::Blocks, false) => Change::Unblock(owner, other),
        })
        .await?;
        Ok(reply)
    }

    pub(super) async fn restriction(&self, user: &UserId) -> Result<Reply, Error> {
        let verdicts = self.functions.check(None, [user].into_iter().collect()).await?;
        let restricted = verdicts.iter().any(|verdict| verdict.presence == Ruling::Restricted);
        Ok(responses::restriction(user, restricted))
    }

    pub(super) async fn set_restriction(&self, user: UserId, restricted: bool) -> Result<Reply, Error> {
        let reply = responses::restriction(&user, restricted);
        self.change(if restricted { Change::Restrict(user) } else { Change::Unrestrict(user) }).await?;
        Ok(reply)
    }

    pub(super) async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Reply, Error> {
        Ok(responses::check(&self.functions.check(viewer, subjects).await?))
    }

    pub(super) async fn changes(&self, changes: &Changes) -> Result<Reply, Error> {
        let good = changes.good.clone();
        let outcomes = if good.is_empty() { Vec::new() } else { self.functions.apply(good).await? };
        if outcomes.iter().any(Result::is_ok) {
            self.policy_sync.in_force().await?;
        }
        Ok(responses::changes(changes, &outcomes))
    }

    async fn change(&self, change: Change) -> Result<(), Error> {
        only(self.functions.apply(vec![change]).await?)?;
        self.policy_sync.in_force().await
    }
}
