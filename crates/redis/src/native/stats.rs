//! The store's counters, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters; they only rise.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pipelines sent and awaited.
    pub round_trips: Count,
    /// Commands in them.
    pub commands: Count,
    /// Connections that replaced a lost one.
    pub reconnects: Count,
    /// How often a server was found to be down.
    pub outages: Count,
    /// How often a server had lost the scripts.
    pub scripts_reloaded: Count,
    /// How often a Cluster redirected a command to another master.
    pub redirections: Count,
    /// How often a server was found to have lost its data.
    pub data_losses: Count,
    /// Users whose expiry was notified.
    pub expiries: Count,
    /// Notified users who were dropped because the queue was full; the sweep finds them.
    pub expiries_dropped: Count,
}

/// One counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}
