//! The counters and histograms of `/v1/stats`, read from the text of the host's own metrics, as Prometheus would.
//!
//! `prometheus-client` exposes neither the buckets of a histogram nor the members of a family other than as text. Counting
//! everything twice would cost every call; parsing costs a fraction of a millisecond per `/v1/stats`.

use rollcall_api::responses::{ConnectionStats, Histogram, Times, Totals};

/// The part of `/v1/stats` that the metrics contain.
#[derive(Debug, Default)]
pub(crate) struct MetricsStats {
    /// Connections and watchers; the most watched users are not among the metrics.
    pub(crate) connections: ConnectionStats,
    /// Counters.
    pub(crate) totals: Totals,
    /// Histograms.
    pub(crate) times: Times,
}

impl MetricsStats {
    /// Reads the metrics' text. A missing metric reads as zero.
    pub(crate) fn read(text: &str) -> Self {
        let mut stats = Self::default();
        for line in text.lines().filter_map(Line::read) {
            stats.connect(&line);
            stats.count(&line);
            stats.time(&line);
        }
        for histogram in [&mut stats.times.settle_lag, &mut stats.times.topic_lag, &mut stats.times.request] {
            if histogram.buckets.is_empty() {
                histogram.buckets.push((None, 0));
            }
        }
        stats
    }

    fn connect(&mut self, line: &Line<'_>) {
        let connections = &mut self.connections;
        match (line.name, line.label("protocol")) {
            ("rollcall_connections", _) => connections.open = line.count(),
            ("rollcall_watchers", _) => connections.watchers = line.count(),
            ("rollcall_watched_users", _) => connections.watched_users = line.count(),
            ("rollcall_watched_conversations", _) => connections.watched_conversations = line.count(),
            ("rollcall_upgraded_connections", Some("websocket")) => connections.sockets = line.count(),
            ("rollcall_upgraded_connections", Some("sse")) => connections.streams = line.count(),
            _ => {}
        }
    }

    fn count(&mut self, line: &Line<'_>) {
        let totals = &mut self.totals;
        match line.name {
            "rollcall_heartbeats_total" => totals.heartbeats += line.count(),
            "rollcall_transitions_total" => match line.label("state") {
                Some("online") => totals.transitions.online += line.count(),
                Some("away") => totals.transitions.away += line.count(),
                Some("busy") => totals.transitions.busy += line.count(),
                Some("offline") => totals.transitions.offline += line.count(),
                _ => {}
            },
            "rollcall_updates_sent_total" => totals.updates_sent += line.count(),
            "rollcall_http_requests_total" => {
                totals.requests += line.count();
                let status = line.label("status").and_then(|status| status.parse::<u16>().ok());
                if status.is_some_and(|status| status >= 500) {
                    totals.failures += line.count();
                }
            }
            "rollcall_archived_total" => totals.archived += line.count(),
            "rollcall_recheck_changes_total" => totals.recheck_changes += line.count(),
            "rollcall_store_calls_total" if line.label("outcome") == Some("error") => {
                totals.store_errors += line.count();
            }
            "rollcall_function_replacements_total" => totals.replacements += line.count(),
            _ => {}
        }
    }

    /// A labelled histogram is either summed over its label or kept per label.
    fn time(&mut self, line: &Line<'_>) {
        let Some((family, part)) = line.name.rsplit_once("_seconds_") else { return };
        let times = &mut self.times;
        let label = |name| line.label(name).unwrap_or_default().to_owned();
        let histogram = match family {
            "rollcall_settle_lag" => &mut times.settle_lag,
            "rollcall_topic_lag" => &mut times.topic_lag,
            "rollcall_http_request" => &mut times.request,
            "rollcall_function_call" => times.functions.entry(label("function")).or_default(),
            "rollcall_store_call" => times.store.entry(label("operation")).or_default(),
            _ => return,
        };
        match part {
            "count" => histogram.count += line.count(),
            "sum" => histogram.sum_ms += milliseconds(line.value),
            "bucket" => add(histogram, bound(line.label("le")), line.count()),
            _ => {}
        }
    }
}

/// Adds to the bucket of this bound. All histograms of a family have the same bounds, in order.
fn add(histogram: &mut Histogram, bound: Option<f64>, count: u64) {
    match histogram.buckets.iter_mut().find(|(known, _)| *known == bound) {
        Some((_, counted)) => *counted += count,
        None => histogram.buckets.push((bound, count)),
    }
}

/// A bound in milliseconds, or `None` for infinity.
fn bound(le: Option<&str>) -> Option<f64> {
    le.and_then(|seconds| seconds.parse::<f64>().ok()).filter(|seconds| seconds.is_finite()).map(milliseconds)
}

/// Rounded to the nanosecond, which removes the noise of the multiplication.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}

/// One line of the text: a metric's name, its labels, and its value.
#[derive(Debug)]
struct Line<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Line<'a> {
    /// `None` for comments and anything else that is no sample.
    fn read(line: &'a str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (metric, value) = line.rsplit_once(' ')?;
        let (name, labels) = match metric.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (metric, ""),
        };
        Some(Self { name, labels, value: value.parse().ok()? })
    }

    /// A label's value. Labels hold constants only, so none contains a comma or a quote.
    fn label(&self, name: &str) -> Option<&'a str> {
        let values = self.labels.split(',').filter_map(|label| label.split_once('='));
        values.filter(|(label, _)| *label == name).map(|(_, value)| value.trim_matches('"')).next()
    }

    fn count(&self) -> u64 {
        // A count, below 2^53. A gauge may be negative for a moment between the updates of two workers.
        self.value.max(0.0) as u64
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use std::time::Duration;

    use rollcall_core::{Span, State};
    use rollcall_functions::capabilities::Committed;
    use rollcall_functions::sweep::Settled;

    use super::*;
    use crate::hub::Sizes;
    use crate::metrics::Metrics;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1000.0)
    }

    #[test]
    fn every_counter_is_read_from_the_metrics() {
        let metrics = Metrics::default();
        metrics.heartbeats_recorded(5);
        metrics.committed(&[Some(State::Online), Some(State::Offline), None], &[const { Ok(Committed::Applied) }; 3]);
        metrics.answered("/v1/presence/{user}", 200, ms(1.0));
        metrics.answered("/v1/heartbeat", 503, ms(2.0));
        metrics.archived(3);
        metrics.store_call("touch", ms(0.5), true);
        metrics.store_call("load", ms(0.5), false);
        metrics.replaced("query");
        metrics.connected();
        metrics.hub.sent(7);
        metrics.hub.recheck_changes(2);
        metrics.hub.opened("websocket");
        metrics.hub.opened("sse");
        metrics.hub.opened("sse");
        metrics.hub.watching(Sizes::default(), Sizes { watchers: 3, users: 4, conversations: 1 });
        let MetricsStats { connections, totals, .. } = MetricsStats::read(&metrics.text());
        assert_eq!((totals.heartbeats, totals.transitions.online, totals.transitions.offline), (5, 1, 1));
        assert_eq!((totals.transitions.sum(), totals.updates_sent, totals.requests, totals.failures), (2, 7, 2, 1));
        assert_eq!((totals.archived, totals.recheck_changes, totals.store_errors, totals.replacements), (3, 2, 1, 1));
        assert_eq!((connections.open, connections.sockets, connections.streams), (1, 1, 2));
        let ConnectionStats { watchers, watched_users, watched_conversations, .. } = connections;
        assert_eq!((watchers, watched_users, watched_conversations), (3, 4, 1));
    }

    #[test]
    fn histograms_are_kept_per_label_or_summed() {
        let metrics = Metrics::default();
        metrics.called("heartbeat", ms(0.3));
        metrics.called("heartbeat", ms(10_000.0));
        metrics.called("query", ms(0.0005));
        let settled = |lag| Settled { lags: vec![Span(lag)], ..Settled::default() };
        metrics.settled("expiry", &settled(3));
        metrics.settled("sweep", &settled(700));
        metrics.hub.received_after(1);
        let Times { settle_lag, topic_lag, request, functions, store } = MetricsStats::read(&metrics.text()).times;
        let heartbeat = &functions["heartbeat"];
        assert_eq!((heartbeat.count, heartbeat.sum_ms), (2, 10_000.3));
        assert_eq!(heartbeat.buckets.first(), Some(&(Some(0.001), 0)));
        assert!(heartbeat.buckets.contains(&(Some(1.024), 1)) && heartbeat.buckets.contains(&(Some(0.256), 0)));
        assert_eq!(heartbeat.buckets.last(), Some(&(None, 2)), "above every bound");
        assert_eq!(functions["query"].buckets.first(), Some(&(Some(0.001), 1)));
        assert_eq!((settle_lag.count, settle_lag.sum_ms), (2, 703.0), "summed over causes");
        assert!(settle_lag.buckets.contains(&(Some(4.0), 1)) && settle_lag.buckets.contains(&(Some(1024.0), 2)));
        assert!(settle_lag.buckets.is_sorted_by_key(|(bound, _)| bound.unwrap_or(f64::INFINITY)));
        assert_eq!((topic_lag.count, topic_lag.sum_ms), (1, 1.0));
        assert_eq!((request.buckets, store.len()), (vec![(None, 0)], 0), "no requests yet");
    }

    #[test]
    fn lines_that_are_no_samples_are_skipped() {
        let stats = MetricsStats::read(
            "# EOF\n\nrollcall_heartbeats_total\nrollcall_updates_sent_total{state=\"x\" 5\n{} 1\nx NaN\n",
        );
        assert_eq!(stats.totals, Totals::default());
    }
}
