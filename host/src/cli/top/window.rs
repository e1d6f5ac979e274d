//! The difference between two samples of a host: rates and latencies.

use std::collections::BTreeMap;

use rollcall_api::responses::{ConnectionStats, Histogram, HostStats, Stats, StoreStats, Times, Totals, UserStats};
use serde::Serialize;

/// The difference between two samples, and the second sample's gauges.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Window {
    pub(super) host: HostStats,
    /// The time between the samples.
    pub(super) window_ms: u64,
    pub(super) store: StoreStats,
    pub(super) users: UserStats,
    pub(super) connections: ConnectionStats,
    pub(super) rates: Rates,
    pub(super) times: Latencies,
}

/// Events per second.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Rates {
    pub(super) heartbeats: f64,
    pub(super) transitions: BTreeMap<&'static str, f64>,
    pub(super) updates_sent: f64,
    pub(super) requests: f64,
    pub(super) failures: f64,
    pub(super) archived: f64,
    pub(super) recheck_changes: f64,
    pub(super) store_errors: f64,
    pub(super) replacements: f64,
}

/// Latencies by what took the time.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct Latencies {
    pub(super) settle_lag: Latency,
    pub(super) topic_lag: Latency,
    pub(super) request: Latency,
    pub(super) functions: BTreeMap<String, Latency>,
    pub(super) store: BTreeMap<String, Latency>,
}

/// Events per second, their total time, median and 99th percentile.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Latency {
    pub(super) per_s: f64,
    pub(super) sum_ms: f64,
    /// `None` without events.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

impl Window {
    pub(super) fn of(from: &Stats, to: &Stats) -> Self {
        let window_ms = to.host.now.saturating_sub(from.host.now).max(1);
        let seconds = window_ms as f64 / 1000.0;
        Self {
            host: to.host.clone(),
            window_ms,
            store: to.store.clone(),
            users: to.users.clone(),
            connections: to.connections.clone(),
            rates: Rates::of(&from.totals, &to.totals, seconds),
            times: Latencies::of(&from.times, &to.times, seconds),
        }
    }
}

impl Rates {
    fn of(from: &Totals, to: &Totals, seconds: f64) -> Self {
        let rate = |read: fn(&Totals) -> u64| read(to).saturating_sub(read(from)) as f64 / seconds;
        let (before, after) = (&from.transitions, &to.transitions);
        let change = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let transitions = BTreeMap::from([
            ("online", change(before.online, after.online)),
            ("away", change(before.away, after.away)),
            ("busy", change(before.busy, after.busy)),
            ("offline", change(before.offline, after.offline)),
        ]);
        Self {
            heartbeats: rate(|totals| totals.heartbeats),
            transitions,
            updates_sent: rate(|totals| totals.updates_sent),
            requests: rate(|totals| totals.requests),
            failures: rate(|totals| totals.failures),
            archived: rate(|totals| totals.archived),
            recheck_changes: rate(|totals| totals.recheck_changes),
            store_errors: rate(|totals| totals.store_errors),
            replacements: rate(|totals| totals.replacements),
        }
    }

    /// Transitions to any state.
    pub(super) fn changes(&self) -> f64 {
        self.transitions.values().sum()
    }
}

impl Latencies {
    fn of(from: &Times, to: &Times, seconds: f64) -> Self {
        let nothing = Histogram::default();
        let each = |from: &BTreeMap<String, Histogram>, to: &BTreeMap<String, Histogram>| {
            let latency = |(name, to): (&String, &Histogram)| {
                (name.clone(), Latency::of(from.get(name).unwrap_or(&nothing), to, seconds))
            };
            to.iter().map(latency).collect()
        };
        Self {
            settle_lag: Latency::of(&from.settle_lag, &to.settle_lag, seconds),
            topic_lag: Latency::of(&from.topic_lag, &to.topic_lag, seconds),
            request: Latency::of(&from.request, &to.request, seconds),
            functions: each(&from.functions, &to.functions),
            store: each(&from.store, &to.store),
        }
    }
}

impl Latency {
    fn of(from: &Histogram, to: &Histogram, seconds: f64) -> Self {
        let before = |bound: Option<f64>| from.buckets.iter().find(|(known, _)| *known == bound).map_or(0, |(_, n)| *n);
        let buckets: Vec<(Option<f64>, u64)> =
            to.buckets.iter().map(|(bound, count)| (*bound, count.saturating_sub(before(*bound)))).collect();
        let count = to.count.saturating_sub(from.count);
        Self {
            per_s: count as f64 / seconds,
            sum_ms: (to.sum_ms - from.sum_ms).max(0.0),
            p50_ms: quantile(&buckets, 0.5),
            p99_ms: quantile(&buckets, 0.99),
        }
    }
}

/// A quantile in milliseconds, interpolated linearly within a bucket. Above the last bound it is that bound.
fn quantile(buckets: &[(Option<f64>, u64)], part: f64) -> Option<f64> {
    let all = buckets.last().map_or(0, |(_, count)| *count);
    if all == 0 {
        return None;
    }
    let wanted = all as f64 * part;
    let (mut lower, mut below) = (0.0, 0);
    for (bound, count) in buckets {
        let upper = bound.unwrap_or(lower);
        if *count as f64 >= wanted {
            let within = count.saturating_sub(below).max(1) as f64;
            let share = (wanted - below as f64) / within;
            return Some(lower + (upper - lower) * share);
        }
        (lower, below) = (upper, *count);
    }
    Some(lower)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn histogram(counts: [u64; 3]) -> Histogram {
        let [one, four, all] = counts;
        Histogram { count: all, sum_ms: 0.0, buckets: vec![(Some(1.0), one), (Some(4.0), four), (None, all)] }
    }

    #[test]
    fn quantiles_are_of_the_window() {
        let latency = Latency::of(&histogram([90, 90, 90]), &histogram([90, 190, 190]), 10.0);
        assert_eq!((latency.per_s, latency.p50_ms), (10.0, Some(2.5)), "halfway between one and four");
        assert!((latency.p99_ms.unwrap() - 3.97).abs() < 1e-9);
        let still = Latency::of(&histogram([5, 5, 5]), &histogram([5, 5, 5]), 1.0);
        assert_eq!((still.per_s, still.p50_ms, still.p99_ms), (0.0, None, None));
    }

    #[test]
    fn quantile_above_all_bounds_is_the_last() {
        let latency = Latency::of(&Histogram::default(), &histogram([0, 1, 100]), 1.0);
        assert_eq!(latency.p99_ms, Some(4.0));
    }

    #[test]
    fn missing_earlier_sample_counts_as_zero() {
        let mut to = Stats::default();
        to.host.now = 2000;
        to.totals.heartbeats = 50;
        to.totals.transitions.busy = 4;
        to.times.functions.insert("typing".to_owned(), histogram([8, 8, 8]));
        let window = Window::of(&Stats::default(), &to);
        assert_eq!((window.rates.heartbeats, window.rates.changes()), (25.0, 2.0));
        assert_eq!(window.times.functions["typing"].per_s, 4.0);
    }
}
