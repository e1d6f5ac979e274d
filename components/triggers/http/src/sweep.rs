//! The trigger of `offline-sweep`, for a scheduler: it settles the users who are due, then archives old sessions.

use rollcall_api::call::{Call, Settled};
use rollcall_api::{MAX_SWEEP, Operation, responses};
use rollcall_contract::call;
use rollcall_contract::guest::wit::offline_sweep as wit;
use rollcall_core::Error;

use crate::{Answer, Setup, Trigger, log, misrouted};

/// The trigger of `offline-sweep`.
#[derive(Debug)]
pub enum OfflineSweep {}

impl Trigger for OfflineSweep {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(operation, Operation::Sweep)
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::Sweep(asked) = call else { return Err(misrouted()) };
        let limit = asked.limit.unwrap_or(MAX_SWEEP);
        let settled = call!(wit::sweep(0, setup.shards, limit))?.into();
        archive(setup.shards, limit, &settled).await;
        Ok(responses::sweep(&settled).into())
    }
}

/// Archives as many sessions as the sweep left of the limit. A failure does not fail the request: the next sweep archives
/// them.
async fn archive(shards: u32, limit: u32, settled: &Settled) {
    let left = limit.saturating_sub(settled.examined);
    if left == 0 {
        return;
    }
    if let Err(error) = call!(wit::archive(0, shards, left)) {
        log(format_args!("archiving failed; the next sweep tries again: {}", Error::from(error)));
    }
}
