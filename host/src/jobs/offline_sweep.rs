//! Calls of the `offline-sweep` function, shared by the jobs that make them, with what came of each counted.

use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_functions::sweep::Settled;

use crate::runtime::Functions;

/// What found a user due; a label of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The embedded store's timer.
    Expiry,
    /// A notification of Redis.
    Notification,
    /// The schedule.
    Sweep,
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Notification => "notification",
            Self::Sweep => "sweep",
        }
    }
}

/// Calls `offline-sweep`.
#[derive(Clone)]
pub(super) struct OfflineSweep {
    pub(super) functions: Functions,
}

impl OfflineSweep {
    /// Settles these users. Returns `None` if the call failed.
    pub(super) async fn settle(&self, cause: Cause, users: Vec<UserId>) -> Option<Settled> {
        self.counted(cause, self.functions.settle(users).await)
    }

    /// Sweeps shards until no user is due in them or a batch changes nothing. Returns how many users were examined.
    pub(super) async fn sweep(&self, shards: Shards) -> u32 {
        let mut examined = 0;
        loop {
            let settled = self.functions.sweep(shards, MAX_BATCH as u32).await;
            let Some(settled) = self.counted(Cause::Sweep, settled) else { return examined };
            examined += settled.examined;
            if is_done(&settled) {
                return examined;
            }
            // Other calls on this thread run between two batches.
            tokio::task::yield_now().await;
        }
    }

    /// Archives and evicts every evictable session in these shards.
    pub(super) async fn archive(&self, shards: Shards) {
        loop {
            match self.functions.archive(shards, MAX_BATCH as u32).await {
                Ok(archived) => {
                    self.functions.platform.metrics.archived(archived.kept);
                    if archived.dropped < MAX_BATCH as u32 {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "Archiving failed; retrying on the next pass");
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    fn counted(&self, cause: Cause, settled: Result<Settled, Error>) -> Option<Settled> {
        match settled {
            Ok(settled) => {
                self.functions.platform.metrics.settled(cause.name(), &settled);
                Some(settled)
            }
            Err(error) => {
                tracing::warn!(cause = cause.name(), %error, "Settling failed; retrying on the next pass");
                None
            }
        }
    }
}

/// Whether there is nothing more to do: the batch was not full, or it changed nothing.
pub(super) fn is_done(settled: &Settled) -> bool {
    (settled.examined as usize) < MAX_BATCH || settled.published + settled.rescheduled == 0
}
