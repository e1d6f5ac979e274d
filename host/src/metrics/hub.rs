//! What is counted of connections that stay.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use rollcall_api::Close;

use super::{Of, Outcome, lag_seconds};
use crate::hub::Sizes;

/// What is counted of connections that stay.
#[derive(Debug)]
pub(crate) struct HubMetrics {
    watchers: Gauge,
    users: Gauge,
    conversations: Gauge,
    streams: Family<Of, Gauge>,
    closed: Family<Outcome, Counter>,
    heard: Counter,
    heard_lag: Histogram,
    told: Counter,
    missed: Counter,
    repaired: Counter,
}

impl Default for HubMetrics {
    fn default() -> Self {
        Self {
            watchers: Gauge::default(),
            users: Gauge::default(),
            conversations: Gauge::default(),
            streams: Family::default(),
            closed: Family::default(),
            heard: Counter::default(),
            heard_lag: lag_seconds(),
            told: Counter::default(),
            missed: Counter::default(),
            repaired: Counter::default(),
        }
    }
}

impl HubMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("watchers", "Connections that may watch", self.watchers.clone());
        let help = "People who are watched, once per worker that watches them";
        r.register("watched_people", help, self.users.clone());
        let help = "Conversations that are watched, once per worker that watches them";
        r.register("watched_conversations", help, self.conversations.clone());
        r.register("streams", "Connections that stay, by transport", self.streams.clone());
        r.register("streams_closed", "Connections that stayed, by transport and why they ended", self.closed.clone());
        r.register("topic_messages", "Changes and signs of typing heard, once per worker", self.heard.clone());
        let help = "From when a change was decided until a worker with watchers heard of it";
        r.register_with_unit("topic_lag", help, Unit::Seconds, self.heard_lag.clone());
        r.register("told", "Changes and signs of typing told to connections", self.told.clone());
        r.register(
            "topics_missed",
            "Times that something may have been missed and was read again",
            self.missed.clone(),
        );
        let help = "People found to have changed without a word, and told of after all";
        r.register("repaired", help, self.repaired.clone());
    }

    /// How much one worker watches changed.
    pub(crate) fn watching(&self, before: Sizes, now: Sizes) {
        self.watchers.inc_by(now.watchers - before.watchers);
        self.users.inc_by(now.users - before.users);
        self.conversations.inc_by(now.conversations - before.conversations);
    }

    /// A connection that stays was opened.
    pub(crate) fn opened(&self, transport: &'static str) {
        self.streams.get_or_create(&Of { of: transport }).inc();
    }

    /// It ended; none: it broke.
    pub(crate) fn closed(&self, transport: &'static str, close: Option<Close>) {
        self.streams.get_or_create(&Of { of: transport }).dec();
        let outcome = close.map_or("broken", Close::name);
        self.closed.get_or_create(&Outcome { of: transport, outcome }).inc();
    }

    /// The topics told something.
    pub(crate) fn heard(&self, count: usize) {
        self.heard.inc_by(count as u64);
    }

    /// A change was heard so long after it was decided.
    pub(crate) fn heard_after(&self, ms: u64) {
        self.heard_lag.observe(ms as f64 / 1000.0);
    }

    /// A connection was told something.
    pub(crate) fn told(&self, count: usize) {
        self.told.inc_by(count as u64);
    }

    /// Something may have been missed.
    pub(crate) fn missed(&self) {
        self.missed.inc();
    }

    /// People were found changed without a word.
    pub(crate) fn repaired(&self, count: usize) {
        self.repaired.inc_by(count as u64);
    }
}
