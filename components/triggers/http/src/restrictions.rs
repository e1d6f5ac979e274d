//! The trigger of `restriction-check`: privacy, contacts, blocks, restrictions and checks. A change is in force for every
//! reader of the store when it is answered.

use rollcall_api::Operation;
use rollcall_api::call::Call;
use rollcall_api::policy_calls::{self, PolicyFunctions};
use rollcall_contract::guest::convert::{answers, each};
use rollcall_contract::guest::wit::{restriction_check, restrictions};
use rollcall_contract::{call, lent};
use rollcall_core::policy::{OwnSettings, PolicyChange, Verdict};
use rollcall_core::{Error, Ids, UserId};

use crate::{Answer, Setup, Trigger, missing_items};

/// The trigger of `restriction-check`.
#[derive(Debug)]
pub enum Restrictions {}

impl Trigger for Restrictions {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(
            operation,
            Operation::Privacy
                | Operation::PutPrivacy
                | Operation::Listed(_)
                | Operation::PutListed(..)
                | Operation::DeleteListed(..)
                | Operation::Restriction(_)
                | Operation::PutRestriction(_)
                | Operation::DeleteRestriction(_)
                | Operation::Check
                | Operation::Changes
        )
    }

    async fn call(_setup: &Setup, call: Call) -> Result<Answer, Error> {
        Ok(policy_calls::respond(&RestrictionCheck, call).await?.into())
    }
}

/// The functions of the composed component.
struct RestrictionCheck;

impl PolicyFunctions for RestrictionCheck {
    async fn apply(&self, changes: Vec<PolicyChange>) -> Result<Vec<Result<(), Error>>, Error> {
        answers(call!(restrictions::apply(lent!(each(changes)))))
    }

    async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        Ok(call!(restrictions::settings_of(lent!(user.into_string())))?.try_into()?)
    }

    async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error> {
        let asked = subjects.len();
        let verdicts =
            call!(restriction_check::check(lent!(text: viewer.map(UserId::into_string)), lent!(subjects.into())))?;
        if verdicts.len() != asked {
            return Err(missing_items());
        }
        Ok(each(verdicts))
    }
}
