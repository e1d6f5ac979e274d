//! The functions behind the calls about policy. A change is in force on every worker of this host when it is answered.

use rollcall_api::policy_calls::PolicyFunctions;
use rollcall_core::policy::{OwnSettings, PolicyChange, Verdict};
use rollcall_core::{Error, Ids, UserId};

use super::Edge;

impl PolicyFunctions for Edge {
    async fn apply(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        let outcomes = self.functions.apply(changes).await?;
        if outcomes.iter().any(Result::is_ok) {
            self.policy_sync.in_force().await?;
        }
        Ok(outcomes)
    }

    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        self.functions.settings_of(user).await
    }

    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error> {
        self.functions.check(viewer, subjects).await
    }
}
