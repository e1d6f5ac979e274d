//! What the store in Redis counts by itself, read when somebody asks.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rollcall_redis::native::{Health, Redis, Stats};

/// A counter of the store: its name, what it counts, and how to read it.
type Counted = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Counted; 9] = [
    ("redis_round_trips", "Pipelines sent to Redis and waited for", |stats| stats.round_trips.get()),
    ("redis_commands", "Commands in them", |stats| stats.commands.get()),
    ("redis_reconnects", "Connections that took the place of one that was lost", |stats| stats.reconnects.get()),
    ("redis_outages", "Times that a server turned out to be away", |stats| stats.outages.get()),
    ("redis_scripts_reloaded", "Times that a server had forgotten the scripts", |stats| stats.scripts_reloaded.get()),
    ("redis_redirections", "Times that a Cluster sent us to another master", |stats| stats.redirections.get()),
    ("redis_data_losses", "Times that the data were found to be gone", |stats| stats.data_losses.get()),
    ("notifications", "People whose expiry Redis notified", |stats| stats.expiries.get()),
    ("notifications_dropped", "Those among them whom nobody took in time", |stats| stats.expiries_dropped.get()),
];

/// Reads the counters of a store.
#[derive(Debug)]
pub(super) struct RedisCollector(pub(super) Arc<Redis>);

impl Collector for RedisCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for (name, help, read) in COUNTERS {
            let counter = ConstCounter::new(read(self.0.stats()));
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let up = ConstGauge::new(match self.0.health() {
            Health::Up => 1.0,
            Health::Partly { .. } => 0.5,
            Health::Down { .. } => 0.0,
        });
        let help = "1 if every server of the store answers, 0 if none does, between if some do";
        up.encode(encoder.encode_descriptor("store_up", help, None, up.metric_type())?)?;
        let outage_grace = ConstGauge::new(i64::from(self.0.outage_grace().is_some()));
        let help = "1 while people are pardoned because the store was away";
        outage_grace.encode(encoder.encode_descriptor("outage_grace", help, None, outage_grace.metric_type())?)
    }
}
