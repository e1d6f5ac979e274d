//! Counters of the Redis store, read at each scrape.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rollcall_redis::native::{Health, NativeRedis, Stats};

/// A counter of the store: its name, what it counts, and how to read it.
type Counted = (&'static str, &'static str, fn(&Stats) -> u64);

const COUNTERS: [Counted; 9] = [
    ("redis_round_trips", "Pipelines sent to Redis", |stats| stats.round_trips.get()),
    ("redis_commands", "Commands in those pipelines", |stats| stats.commands.get()),
    ("redis_reconnects", "Connections made again after one was lost", |stats| stats.reconnects.get()),
    ("redis_outages", "Times that a server became unreachable", |stats| stats.outages.get()),
    ("redis_scripts_reloaded", "Times that a server had lost the scripts", |stats| stats.scripts_reloaded.get()),
    ("redis_redirections", "Redirections by a Cluster to another master", |stats| stats.redirections.get()),
    ("redis_data_losses", "Times that the data were found to be lost", |stats| stats.data_losses.get()),
    ("notifications", "Expiry notifications received from Redis", |stats| stats.expiries.get()),
    ("notifications_dropped", "Expiry notifications dropped because a queue was full", |stats| {
        stats.expiries_dropped.get()
    }),
];

/// Reads the counters of a store.
#[derive(Debug)]
pub(super) struct RedisCollector(pub(super) Arc<NativeRedis>);

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
        let help = "1 if every server of the store answers, 0 if none does, 0.5 if some do";
        up.encode(encoder.encode_descriptor("store_up", help, None, up.metric_type())?)?;
        let outage_grace = ConstGauge::new(i64::from(self.0.outage_grace().is_some()));
        let help = "1 while outage grace is in force because the store was unreachable";
        outage_grace.encode(encoder.encode_descriptor("outage_grace", help, None, outage_grace.metric_type())?)
    }
}
