//! What is counted, in one place, in the text format that Prometheus reads.

mod hub;
mod optional_gauge;
mod policy;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use rollcall_api::responses::state_name;
use rollcall_core::{Error, State};
use rollcall_functions::capabilities::Committed;
use rollcall_functions::sweep::Settled;
use rollcall_redis::native::Redis;

use crate::config::FUNCTIONS;
use hub::HubMetrics;
use optional_gauge::OptionalGauge;
use policy::PolicyMetrics;

/// One label and its value, which is always one of a few constants: no label ever holds anything from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    of: &'static str,
}

/// A label and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    of: &'static str,
    outcome: &'static str,
}

/// A route and a status class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    status: u16,
}

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    heartbeats: Counter,
    transitions: Family<Of, Counter>,
    stale_commits: Counter,
    settle_lag: Family<Of, Histogram>,
    settled: Family<Outcome, Counter>,
    calls: Family<Of, Counter>,
    call_seconds: Family<Of, Histogram>,
    replacements: Family<Of, Counter>,
    store_calls: Family<Outcome, Counter>,
    store_seconds: Family<Of, Histogram>,
    requests: Family<Answered, Counter>,
    request_seconds: Family<Of, Histogram>,
    archived: Counter,
    connections: Gauge,
    /// What is counted of connections that stay.
    pub(crate) hub: HubMetrics,
    /// What is counted of who may see whom.
    pub(crate) policy: PolicyMetrics,
    sessions: Gauge<i64>,
    here: OptionalGauge,
}

/// 1 µs to about 4 s in factors of four: wide enough for a warm call and for a store that is away.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 4.0, 12))
}

/// 1 ms to about 16 s in factors of two: the promise is one second.
fn lag_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("rollcall"),
            heartbeats: Counter::default(),
            transitions: Family::default(),
            stale_commits: Counter::default(),
            settle_lag: Family::new_with_constructor(lag_seconds),
            settled: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(seconds),
            replacements: Family::default(),
            store_calls: Family::default(),
            store_seconds: Family::new_with_constructor(seconds),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            archived: Counter::default(),
            connections: Gauge::default(),
            hub: HubMetrics::default(),
            policy: PolicyMetrics::default(),
            sessions: Gauge::<i64>::default(),
            here: OptionalGauge::default(),
        };
        metrics.register();
        // From the start, so that the first time is seen to be one more than none.
        for function in FUNCTIONS {
            metrics.replacements.get_or_create(&Of { of: function }).inc_by(0);
        }
        metrics
    }
}

impl Metrics {
    /// Counts also what a store in Redis counts by itself.
    pub fn with_redis(store: Arc<Redis>) -> Self {
        let mut metrics = Self::default();
        metrics.registry.register_collector(Box::new(redis::RedisCollector(store)));
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("heartbeats", "Heartbeats taken", self.heartbeats.clone());
        r.register("transitions", "Records published, by the new state", self.transitions.clone());
        r.register("stale_commits", "Decisions that somebody else overtook", self.stale_commits.clone());
        r.register_with_unit(
            "settle_lag",
            "From the instant a change became true until it was published, by what noticed it",
            Unit::Seconds,
            self.settle_lag.clone(),
        );
        let help = "People looked at because their time had come, by what noticed it and what came of it";
        r.register("settled", help, self.settled.clone());
        r.register("function_calls", "Calls that a function answered", self.calls.clone());
        let help = "Time of a call of a function, its store calls included";
        r.register_with_unit("function_call", help, Unit::Seconds, self.call_seconds.clone());
        r.register("function_replacements", "Instances that trapped or got stuck", self.replacements.clone());
        r.register("store_calls", "Calls of the store, by outcome", self.store_calls.clone());
        r.register_with_unit("store_call", "Time of a call of the store", Unit::Seconds, self.store_seconds.clone());
        r.register("http_requests", "Requests answered, by route and status", self.requests.clone());
        let help = "Time from a request's head until its answer is ready";
        r.register_with_unit("http_request", help, Unit::Seconds, self.request_seconds.clone());
        r.register("archived", "Last seen written to the archive", self.archived.clone());
        r.register("connections", "Connections open now", self.connections.clone());
        self.hub.register(r);
        self.policy.register(r);
        r.register("sessions", "Sessions in the embedded store", self.sessions.clone());
        let help = "People who are not offline; on Redis with the invisible who are connected and the absent whose status ends";
        r.register("here", help, self.here.clone());
    }

    /// Heartbeats taken.
    pub fn beaten(&self, count: usize) {
        self.heartbeats.inc_by(count as u64);
    }

    /// A function answered a call.
    pub fn called(&self, function: &'static str, took: Duration) {
        self.calls.get_or_create(&Of { of: function }).inc();
        self.call_seconds.get_or_create(&Of { of: function }).observe(took.as_secs_f64());
    }

    /// An instance was lost.
    pub fn replaced(&self, function: &'static str) {
        self.replacements.get_or_create(&Of { of: function }).inc();
    }

    /// A call of the store ended.
    pub fn store_call(&self, operation: &'static str, took: Duration, ok: bool) {
        let outcome = if ok { "ok" } else { "error" };
        self.store_calls.get_or_create(&Outcome { of: operation, outcome }).inc();
        self.store_seconds.get_or_create(&Of { of: operation }).observe(took.as_secs_f64());
    }

    /// Commits ended; `published` says what each would publish.
    pub fn committed(&self, published: &[Option<State>], outcomes: &[Result<Committed, Error>]) {
        for (published, outcome) in published.iter().zip(outcomes) {
            match (published, outcome) {
                (Some(state), Ok(Committed::Applied)) => {
                    self.transitions.get_or_create(&Of { of: state_name(*state) }).inc();
                }
                (_, Ok(Committed::Stale)) => {
                    self.stale_commits.inc();
                }
                (None, Ok(Committed::Applied)) | (_, Err(_)) => {}
            }
        }
    }

    /// People were settled; `cause` is what noticed them. Whoever was looked at and found as they should be was looked
    /// at in vain: somebody else was quicker, or nothing had happened.
    pub fn settled(&self, cause: &'static str, settled: &Settled) {
        let lag_seconds = self.settle_lag.get_or_create(&Of { of: cause });
        for lag in &settled.lags {
            lag_seconds.observe(lag.0 as f64 / 1000.0);
        }
        let Settled { examined, published, rescheduled, stale, failed, .. } = *settled;
        let vain = examined.saturating_sub(published + rescheduled + stale + failed);
        let outcomes = [published, rescheduled, stale, failed, vain];
        for (outcome, count) in ["published", "rescheduled", "stale", "failed", "vain"].into_iter().zip(outcomes) {
            if count > 0 {
                self.settled.get_or_create(&Outcome { of: cause, outcome }).inc_by(u64::from(count));
            }
        }
    }

    /// Last seen were archived.
    pub fn archived(&self, count: u32) {
        self.archived.inc_by(u64::from(count));
    }

    /// A request was answered.
    pub fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Answered { route, status }).inc();
        self.request_seconds.get_or_create(&Of { of: route }).observe(took.as_secs_f64());
    }

    /// A connection was opened.
    pub fn connected(&self) {
        self.connections.inc();
    }

    /// A connection was closed.
    pub fn disconnected(&self) {
        self.connections.dec();
    }

    /// So many people are not offline; none: nobody can say.
    pub fn here(&self, here: Option<u64>) {
        self.here.set(here);
    }

    /// How full the embedded store is.
    pub fn occupied(&self, sessions: usize, here: usize) {
        self.sessions.set(i64::try_from(sessions).unwrap_or(i64::MAX));
        self.here.set(Some(here as u64));
    }

    /// Everything, as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_here_is_not_told_while_nobody_can_say() {
        let metrics = Metrics::default();
        let told = || metrics.text().lines().find(|line| line.starts_with("rollcall_here")).map(str::to_owned);
        assert_eq!(told(), None, "nobody has counted yet");
        metrics.here(Some(0));
        assert_eq!(told().as_deref(), Some("rollcall_here 0"));
        metrics.here(None);
        assert_eq!(told(), None, "not as it was before");
    }
}
