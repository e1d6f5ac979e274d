//! What a worker does although nobody calls: hands people whose time has come to `offline-sweep`, sweeps its share of the
//! shards on a schedule, and moves cold people to the archive.
//!
//! The two ways of noticing are deliberate. The first is quick and may miss; the second is slower and misses nobody.
//! The compare-and-swap makes it harmless that both find the same person.

mod embedded;
pub(crate) mod policy_sync;
mod redis;

use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_functions::sweep::Settled;

use crate::runtime::Functions;

pub(crate) use redis::{Notices, Plan as RedisPlan, Share, Turn};

/// One worker's part of the work, by where the sessions are.
pub(crate) enum Rounds {
    /// In this process.
    Embedded(embedded::Rounds),
    /// In a Redis that other hosts share.
    Redis(redis::Rounds),
}

/// What a worker's rounds are made of; see [`Rounds`].
pub(crate) enum Plan {
    /// In this process: the store, and this worker's shards.
    Embedded(std::sync::Arc<rollcall_store::Memory>, Shards),
    /// In Redis.
    Redis(redis::Plan),
}

impl Plan {
    /// The rounds, with the functions that they call.
    pub(crate) fn with(self, functions: Functions) -> Rounds {
        let settler = Settler { functions };
        match self {
            Self::Embedded(memory, shards) => Rounds::Embedded(embedded::Rounds { settler, memory, shards }),
            Self::Redis(plan) => Rounds::Redis(redis::Rounds { settler, plan }),
        }
    }
}

impl Rounds {
    /// Makes the rounds, for ever.
    pub(crate) async fn go(self) {
        match self {
            Self::Embedded(rounds) => rounds.go().await,
            Self::Redis(rounds) => rounds.go().await,
        }
    }
}

/// What made somebody's time known; the metrics tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
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

/// Calls `offline-sweep`, and counts what came of it.
struct Settler {
    functions: Functions,
}

impl Settler {
    /// Settles people who were noticed. Answers whether that could be done.
    async fn settle(&self, cause: Cause, users: Vec<UserId>) -> Option<Settled> {
        self.counted(cause, self.functions.settle(users).await)
    }

    /// Sweeps shards until nobody is due in them, or nothing comes of it. Answers how many were looked at.
    async fn sweep(&self, shards: Shards) -> u32 {
        let mut examined = 0;
        loop {
            let Some(settled) = self.counted(Cause::Sweep, self.functions.sweep(shards, MAX_BATCH as u32).await) else {
                return examined;
            };
            examined += settled.examined;
            if is_done(&settled) {
                return examined;
            }
            // Other calls on this thread get their turn between two batches.
            tokio::task::yield_now().await;
        }
    }

    /// Moves everybody in these shards who is cold to the archive.
    async fn archive(&self, shards: Shards) {
        loop {
            match self.functions.archive(shards, MAX_BATCH as u32).await {
                Ok(archived) => {
                    self.functions.platform.metrics.archived(archived.kept);
                    if archived.dropped < MAX_BATCH as u32 {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!("archiving failed, and will be tried again: {error}");
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
                tracing::warn!(cause = cause.name(), "settling failed, and will be tried again: {error}");
                None
            }
        }
    }
}

/// Whether there is nothing more to do: the batch was not full, or nothing came of it.
fn is_done(settled: &Settled) -> bool {
    (settled.examined as usize) < MAX_BATCH || settled.published + settled.rescheduled == 0
}
