//! The trigger to `offline-sweep`, for whatever calls it on a schedule: it settles who is due, and then archives who is cold.

use rollcall_api::call::{Call, Settled};
use rollcall_api::{Function, MAX_SWEEP, responses};
use rollcall_core::Error;

use crate::codec::{error_in, settled_in};
use crate::wit::offline_sweep as wit;
use crate::{Answer, Setup, Trigger, astray, log};

/// The trigger to `offline-sweep`.
#[derive(Debug)]
pub enum OfflineSweep {}

impl Trigger for OfflineSweep {
    fn leads_to(function: Function<'_>) -> bool {
        matches!(function, Function::Sweep)
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::Sweep(asked) = call else { return Err(astray()) };
        let limit = asked.limit.unwrap_or(MAX_SWEEP);
        let settled = settled_in(wit::sweep(0, setup.shards, limit).await.map_err(error_in)?);
        archive(setup.shards, limit, &settled).await;
        Ok(responses::sweep(&settled).into())
    }
}

/// Archives as many as the sweep has left of what was asked for. It is not what was asked: who could not be archived is
/// cold still when the next comes.
async fn archive(shards: u32, limit: u32, settled: &Settled) {
    let left = limit.saturating_sub(settled.examined);
    if left == 0 {
        return;
    }
    if let Err(error) = wit::archive(0, shards, left).await {
        log(format_args!("nobody could be archived: {}", error_in(error)));
    }
}
