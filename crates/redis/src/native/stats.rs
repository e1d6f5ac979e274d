//! What the store counts, for whoever makes metrics of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters; they only rise.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pipelines sent and waited for.
    pub round_trips: Count,
    /// Commands in them.
    pub commands: Count,
    /// Connections that took the place of one that was lost.
    pub reconnects: Count,
    /// Times that a server turned out to be away.
    pub outages: Count,
    /// Times that a server had forgotten the scripts.
    pub scripts_reloaded: Count,
    /// Times that a Cluster sent us to another master.
    pub redirections: Count,
    /// Times that the data were found to be gone.
    pub data_losses: Count,
    /// People whose expiry was notified.
    pub expiries: Count,
    /// Those among them who were dropped because nobody took them in time; the sweep finds them.
    pub expiries_dropped: Count,
}

/// One counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}
