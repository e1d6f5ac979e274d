//! What is counted of who may see whom.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rollcall_functions::restrictions::{Freshness, Standing};

use super::Of;

/// What is counted of who may see whom.
#[derive(Debug, Default)]
pub(crate) struct PolicyMetrics {
    checks: Counter,
    applied: Counter,
    missed: Counter,
    instances: Family<Of, Gauge>,
    bytes: Gauge,
    restricted: Gauge,
    blocks: Gauge,
}

impl PolicyMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("policy_checks", "Pairs of whom it was asked whether one may see the other", self.checks.clone());
        r.register("policy_changes", "Changes taken in from the store's log, once per instance", self.applied.clone());
        r.register("policy_missed", "Times that the store could not be asked what changed", self.missed.clone());
        let help = "Instances of restriction-check, by what their memory is good for";
        r.register("policy_instances", help, self.instances.clone());
        let help = "Memory that instances hold of who may see whom, all together";
        r.register_with_unit("policy_memory", help, Unit::Bytes, self.bytes.clone());
        r.register(
            "policy_restricted",
            "Accounts that are restricted, as one instance knows it",
            self.restricted.clone(),
        );
        r.register(
            "policy_blocks",
            "Pairs of whom one blocked the other, as one instance knows it",
            self.blocks.clone(),
        );
    }

    /// Somebody asked about so many.
    pub(crate) fn checked(&self, subjects: usize) {
        self.checks.inc_by(subjects as u64);
    }

    /// An instance caught up; before, it was so.
    pub(crate) fn refreshed(&self, now: &Freshness, before: Option<&Freshness>) {
        self.applied.inc_by(u64::from(now.applied));
        self.bytes.inc_by(now.bytes as i64 - before.map_or(0, |before| before.bytes as i64));
        if before.map(|before| before.standing) != Some(now.standing) {
            if let Some(before) = before {
                self.standing(before.standing).dec();
            }
            self.standing(now.standing).inc();
        }
        if now.standing == Standing::Warm {
            self.restricted.set(now.restricted as i64);
            self.blocks.set(now.blocks as i64);
        }
    }

    /// The store could not be asked.
    pub(crate) fn missed(&self) {
        self.missed.inc();
    }

    fn standing(&self, standing: Standing) -> Gauge {
        let of = match standing {
            Standing::Cold => "cold",
            Standing::Loading => "loading",
            Standing::Warm => "warm",
            Standing::TooLarge => "too-large",
        };
        self.instances.get_or_create_owned(&Of { of })
    }
}
