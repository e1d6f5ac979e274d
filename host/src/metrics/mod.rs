//! The host's metrics, in the OpenMetrics text format.

mod hub;
mod labels;
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
use rollcall_redis::native::NativeRedis;

use crate::config::FUNCTIONS;
use hub::HubMetrics;
use labels::{
    CauseLabel, CauseOutcome, FunctionLabel, JobLabel, OperationLabel, OperationOutcome, RouteLabel, StateLabel,
};
use optional_gauge::OptionalGauge;
use policy::PolicyMetrics;

/// A route and a status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteStatus {
    route: &'static str,
    status: u16,
}

/// The host's metrics.
pub struct Metrics {
    registry: Registry,
    heartbeats: Counter,
    transitions: Family<StateLabel, Counter>,
    stale_commits: Counter,
    settle_lag: Family<CauseLabel, Histogram>,
    settled: Family<CauseOutcome, Counter>,
    calls: Family<FunctionLabel, Counter>,
    call_seconds: Family<FunctionLabel, Histogram>,
    replacements: Family<FunctionLabel, Counter>,
    store_calls: Family<OperationOutcome, Counter>,
    store_seconds: Family<OperationLabel, Histogram>,
    requests: Family<RouteStatus, Counter>,
    request_seconds: Family<RouteLabel, Histogram>,
    archived: Counter,
    connections: Gauge,
    job_restarts: Family<JobLabel, Counter>,
    /// Metrics of upgraded connections.
    pub(crate) hub: HubMetrics,
    /// Metrics of policy.
    pub(crate) policy: PolicyMetrics,
    sessions: Gauge<i64>,
    users_online: OptionalGauge,
}

/// 1 µs to about 4 s in factors of four: wide enough for a warm call and for an unreachable store.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 4.0, 12))
}

/// 1 ms to about 16 s in factors of two: the target is one second.
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
            job_restarts: Family::default(),
            hub: HubMetrics::default(),
            policy: PolicyMetrics::default(),
            sessions: Gauge::<i64>::default(),
            users_online: OptionalGauge::default(),
        };
        metrics.register();
        // Exported from the start, so that the first replacement shows as an increase.
        for function in FUNCTIONS {
            metrics.replacements.get_or_create(&FunctionLabel { function }).inc_by(0);
        }
        metrics
    }
}

impl Metrics {
    /// Also exports the counters of a Redis store.
    pub fn with_redis(store: Arc<NativeRedis>) -> Self {
        let mut metrics = Self::default();
        metrics.registry.register_collector(Box::new(redis::RedisCollector(store)));
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("heartbeats", "Heartbeats recorded", self.heartbeats.clone());
        r.register("transitions", "Records published, by the new state", self.transitions.clone());
        r.register("stale_commits", "Commits that lost the compare-and-swap", self.stale_commits.clone());
        r.register_with_unit(
            "settle_lag",
            "From the instant a change became true until it was published, by what found it",
            Unit::Seconds,
            self.settle_lag.clone(),
        );
        let help = "Users examined because their deadline had passed, by what found them and the outcome";
        r.register("settled", help, self.settled.clone());
        r.register("function_calls", "Calls that a function answered", self.calls.clone());
        let help = "Time of a call of a function, its store calls included";
        r.register_with_unit("function_call", help, Unit::Seconds, self.call_seconds.clone());
        r.register(
            "function_replacements",
            "Instances replaced because they trapped or got stuck",
            self.replacements.clone(),
        );
        r.register("store_calls", "Calls of the store, by outcome", self.store_calls.clone());
        r.register_with_unit("store_call", "Time of a call of the store", Unit::Seconds, self.store_seconds.clone());
        r.register("http_requests", "Requests answered, by route and status", self.requests.clone());
        let help = "Time from a request's head until its answer is ready";
        r.register_with_unit("http_request", help, Unit::Seconds, self.request_seconds.clone());
        r.register("archived", "Last seen written to the archive", self.archived.clone());
        r.register("connections", "Open connections", self.connections.clone());
        let help = "Background jobs restarted because they panicked or ended";
        r.register("job_restarts", help, self.job_restarts.clone());
        self.hub.register(r);
        self.policy.register(r);
        r.register("sessions", "Sessions in the embedded store", self.sessions.clone());
        let help = "Users who are not offline; on Redis including invisible users who are connected and offline users whose choice ends";
        r.register("users_online", help, self.users_online.clone());
    }

    /// Heartbeats recorded.
    pub fn heartbeats_recorded(&self, count: usize) {
        self.heartbeats.inc_by(count as u64);
    }

    /// A function answered a call.
    pub fn called(&self, function: &'static str, took: Duration) {
        self.calls.get_or_create(&FunctionLabel { function }).inc();
        self.call_seconds.get_or_create(&FunctionLabel { function }).observe(took.as_secs_f64());
    }

    /// An instance was lost.
    pub fn replaced(&self, function: &'static str) {
        self.replacements.get_or_create(&FunctionLabel { function }).inc();
    }

    /// A call of the store ended.
    pub fn store_call(&self, operation: &'static str, took: Duration, ok: bool) {
        let outcome = if ok { "ok" } else { "error" };
        self.store_calls.get_or_create(&OperationOutcome { operation, outcome }).inc();
        self.store_seconds.get_or_create(&OperationLabel { operation }).observe(took.as_secs_f64());
    }

    /// Commits ended; `published` says what each would publish.
    pub fn committed(&self, published: &[Option<State>], outcomes: &[Result<Committed, Error>]) {
        for (published, outcome) in published.iter().zip(outcomes) {
            match (published, outcome) {
                (Some(state), Ok(Committed::Applied)) => {
                    self.transitions.get_or_create(&StateLabel { state: state_name(*state) }).inc();
                }
                (_, Ok(Committed::Stale)) => {
                    self.stale_commits.inc();
                }
                (None, Ok(Committed::Applied)) | (_, Err(_)) => {}
            }
        }
    }

    /// Users were settled; `cause` is what found them. A user counts as `unchanged` if another caller had settled them or
    /// their deadline had moved.
    pub fn settled(&self, cause: &'static str, settled: &Settled) {
        let lag_seconds = self.settle_lag.get_or_create(&CauseLabel { cause });
        for lag in &settled.lags {
            lag_seconds.observe(lag.0 as f64 / 1000.0);
        }
        let Settled { examined, published, rescheduled, stale, failed, .. } = *settled;
        let unchanged = examined.saturating_sub(published + rescheduled + stale + failed);
        let outcomes = [published, rescheduled, stale, failed, unchanged];
        for (outcome, count) in ["published", "rescheduled", "stale", "failed", "unchanged"].into_iter().zip(outcomes) {
            if count > 0 {
                self.settled.get_or_create(&CauseOutcome { cause, outcome }).inc_by(u64::from(count));
            }
        }
    }

    /// Last seen entries were archived.
    pub fn archived(&self, count: u32) {
        self.archived.inc_by(u64::from(count));
    }

    /// A request was answered.
    pub fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RouteStatus { route, status }).inc();
        self.request_seconds.get_or_create(&RouteLabel { route }).observe(took.as_secs_f64());
    }

    /// A connection was opened.
    pub fn connected(&self) {
        self.connections.inc();
    }

    /// A connection was closed.
    pub fn disconnected(&self) {
        self.connections.dec();
    }

    /// A job was started. Exports its counter, so that the first restart shows as an increase.
    pub(crate) fn job_started(&self, job: &'static str) {
        self.job_restarts.get_or_create(&JobLabel { background_job: job }).inc_by(0);
    }

    /// A job panicked or ended, and is restarted.
    pub(crate) fn job_restarted(&self, job: &'static str) {
        self.job_restarts.get_or_create(&JobLabel { background_job: job }).inc();
    }

    /// How many users are not offline; `None` if that is unknown.
    pub fn users_online(&self, count: Option<u64>) {
        self.users_online.set(count);
    }

    /// How full the embedded store is.
    pub fn set_embedded_counts(&self, sessions: usize, users_online: usize) {
        self.sessions.set(i64::try_from(sessions).unwrap_or(i64::MAX));
        self.users_online.set(Some(users_online as u64));
    }

    /// All metrics, as text.
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
    fn unknown_online_count_is_not_exported() {
        let metrics = Metrics::default();
        let exported =
            || metrics.text().lines().find(|line| line.starts_with("rollcall_users_online")).map(str::to_owned);
        assert_eq!(exported(), None, "not counted yet");
        metrics.users_online(Some(0));
        assert_eq!(exported().as_deref(), Some("rollcall_users_online 0"));
        metrics.users_online(None);
        assert_eq!(exported(), None, "no stale value");
    }
}
