//! Metrics of upgraded connections and their watchers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rollcall_api::Close;

use super::labels::{ProtocolLabel, ProtocolOutcome};
use super::lag_seconds;
use crate::hub::Sizes;

/// Metrics of upgraded connections and their watchers.
#[derive(Debug)]
pub(crate) struct HubMetrics {
    watchers: Gauge,
    users: Gauge,
    conversations: Gauge,
    upgraded: Family<ProtocolLabel, Gauge>,
    closed: Family<ProtocolOutcome, Counter>,
    received: Counter,
    received_lag: Histogram,
    sent: Counter,
    missed: Counter,
    recheck_changes: Counter,
}

impl Default for HubMetrics {
    fn default() -> Self {
        Self {
            watchers: Gauge::default(),
            users: Gauge::default(),
            conversations: Gauge::default(),
            upgraded: Family::default(),
            closed: Family::default(),
            received: Counter::default(),
            received_lag: lag_seconds(),
            sent: Counter::default(),
            missed: Counter::default(),
            recheck_changes: Counter::default(),
        }
    }
}

impl HubMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("watchers", "Watchers: connections with a subscription", self.watchers.clone());
        let help = "Watched users, once per worker that watches them";
        r.register("watched_users", help, self.users.clone());
        let help = "Watched conversations, once per worker that watches them";
        r.register("watched_conversations", help, self.conversations.clone());
        r.register("upgraded_connections", "Upgraded connections, by protocol", self.upgraded.clone());
        let help = "Upgraded connections that ended, by protocol and reason";
        r.register("upgraded_connections_closed", help, self.closed.clone());
        r.register("topic_messages", "Changes and typing signals received, once per worker", self.received.clone());
        let help = "From the decision of a change until a worker with watchers received it";
        r.register_with_unit("topic_lag", help, Unit::Seconds, self.received_lag.clone());
        r.register("updates_sent", "Changes and typing signals sent to connections", self.sent.clone());
        r.register(
            "topics_missed",
            "Times that topic messages may have been lost and watched users were read again",
            self.missed.clone(),
        );
        let help = "Watched users found changed without a topic message, and announced";
        r.register("recheck_changes", help, self.recheck_changes.clone());
    }

    /// The sizes of one worker's registry changed.
    pub(crate) fn watching(&self, before: Sizes, now: Sizes) {
        self.watchers.inc_by(now.watchers - before.watchers);
        self.users.inc_by(now.users - before.users);
        self.conversations.inc_by(now.conversations - before.conversations);
    }

    /// An upgraded connection was opened.
    pub(crate) fn opened(&self, protocol: &'static str) {
        self.upgraded.get_or_create(&ProtocolLabel { protocol }).inc();
    }

    /// An upgraded connection ended; `None` if it broke.
    pub(crate) fn closed(&self, protocol: &'static str, close: Option<Close>) {
        self.upgraded.get_or_create(&ProtocolLabel { protocol }).dec();
        let outcome = close.map_or("broken", Close::name);
        self.closed.get_or_create(&ProtocolOutcome { protocol, outcome }).inc();
    }

    /// Topic messages were received.
    pub(crate) fn received(&self, count: usize) {
        self.received.inc_by(count as u64);
    }

    /// A change was received this long after its decision.
    pub(crate) fn received_after(&self, ms: u64) {
        self.received_lag.observe(ms as f64 / 1000.0);
    }

    /// Updates were sent to a connection.
    pub(crate) fn sent(&self, count: usize) {
        self.sent.inc_by(count as u64);
    }

    /// Topic messages may have been lost.
    pub(crate) fn missed(&self) {
        self.missed.inc();
    }

    /// Watched users were found changed without a topic message.
    pub(crate) fn recheck_changes(&self, count: usize) {
        self.recheck_changes.inc_by(count as u64);
    }
}
