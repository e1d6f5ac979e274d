//! Metrics of policy checks and policy sync.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rollcall_functions::restrictions::{CacheState, Freshness};

use super::labels::CacheStateLabel;

/// Metrics of policy checks and policy sync.
#[derive(Debug, Default)]
pub(crate) struct PolicyMetrics {
    checks: Counter,
    applied: Counter,
    missed: Counter,
    instances: Family<CacheStateLabel, Gauge>,
    bytes: Gauge,
    restricted: Gauge,
    blocks: Gauge,
}

impl PolicyMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("policy_checks", "Pairs of viewer and subject that were checked", self.checks.clone());
        r.register(
            "policy_changes",
            "Policy changes applied from the store's log, once per instance",
            self.applied.clone(),
        );
        r.register("policy_sync_failures", "Failed reads of the store's log of policy changes", self.missed.clone());
        let help = "Instances of restriction-check, by the state of their policy cache";
        r.register("policy_instances", help, self.instances.clone());
        let help = "Memory of the policy caches of all instances";
        r.register_with_unit("policy_memory", help, Unit::Bytes, self.bytes.clone());
        r.register("policy_restricted", "Restricted accounts, as one instance knows it", self.restricted.clone());
        r.register("policy_blocks", "Blocks, as one instance knows it", self.blocks.clone());
    }

    /// Subjects were checked.
    pub(crate) fn checked(&self, subjects: usize) {
        self.checks.inc_by(subjects as u64);
    }

    /// An instance refreshed; `before` is its answer before that.
    pub(crate) fn refreshed(&self, now: &Freshness, before: Option<&Freshness>) {
        self.applied.inc_by(u64::from(now.applied));
        self.bytes.inc_by(now.bytes as i64 - before.map_or(0, |before| before.bytes as i64));
        if before.map(|before| before.state) != Some(now.state) {
            if let Some(before) = before {
                self.gauge_of(before.state).dec();
            }
            self.gauge_of(now.state).inc();
        }
        if now.state == CacheState::Warm {
            self.restricted.set(now.restricted as i64);
            self.blocks.set(now.blocks as i64);
        }
    }

    /// The store could not be read.
    pub(crate) fn missed(&self) {
        self.missed.inc();
    }

    fn gauge_of(&self, cache_state: CacheState) -> Gauge {
        let cache_state = match cache_state {
            CacheState::Cold => "cold",
            CacheState::Loading => "loading",
            CacheState::Warm => "warm",
            CacheState::TooLarge => "too-large",
        };
        self.instances.get_or_create_owned(&CacheStateLabel { cache_state })
    }
}
