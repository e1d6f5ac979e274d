//! What the host counted, as the answer to `/v1/stats` has it: read from the host's own metrics, as Prometheus would.
//!
//! The library that counts does not give a histogram back other than as text, and counting everything twice would cost
//! each call something, all the time, for a page that is open now and then. Reading takes a fraction of a millisecond.

use rollcall_api::responses::{GatewayStats, Histogram, Times, Totals};

/// What the metrics say.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Connections, and what they watch; who is watched most is not among the metrics.
    pub(crate) gateway: GatewayStats,
    /// How often what happened.
    pub(crate) totals: Totals,
    /// How long it took.
    pub(crate) times: Times,
}

impl Figures {
    /// Reads the metrics' text. What is not there counts as nothing.
    pub(crate) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter_map(Line::read) {
            figures.connect(&line);
            figures.count(&line);
            figures.time(&line);
        }
        for histogram in [&mut figures.times.settle_lag, &mut figures.times.topic_lag, &mut figures.times.request] {
            if histogram.buckets.is_empty() {
                histogram.buckets.push((None, 0));
            }
        }
        figures
    }

    fn connect(&mut self, line: &Line<'_>) {
        let gateway = &mut self.gateway;
        match (line.name, line.label("of")) {
            ("rollcall_connections", _) => gateway.connections = line.count(),
            ("rollcall_watchers", _) => gateway.watchers = line.count(),
            ("rollcall_watched_people", _) => gateway.people = line.count(),
            ("rollcall_watched_conversations", _) => gateway.conversations = line.count(),
            ("rollcall_streams", Some("socket")) => gateway.sockets = line.count(),
            ("rollcall_streams", Some("subscribe")) => gateway.streams = line.count(),
            _ => {}
        }
    }

    fn count(&mut self, line: &Line<'_>) {
        let totals = &mut self.totals;
        match line.name {
            "rollcall_heartbeats_total" => totals.heartbeats += line.count(),
            "rollcall_transitions_total" => match line.label("of") {
                Some("online") => totals.transitions.online += line.count(),
                Some("away") => totals.transitions.away += line.count(),
                Some("busy") => totals.transitions.busy += line.count(),
                Some("offline") => totals.transitions.offline += line.count(),
                _ => {}
            },
            "rollcall_told_total" => totals.told += line.count(),
            "rollcall_http_requests_total" => {
                totals.requests += line.count();
                let status = line.label("status").and_then(|status| status.parse::<u16>().ok());
                if status.is_some_and(|status| status >= 500) {
                    totals.failures += line.count();
                }
            }
            "rollcall_archived_total" => totals.archived += line.count(),
            "rollcall_repaired_total" => totals.repaired += line.count(),
            "rollcall_store_calls_total" if line.label("outcome") == Some("error") => {
                totals.store_errors += line.count();
            }
            "rollcall_function_replacements_total" => totals.replacements += line.count(),
            _ => {}
        }
    }

    /// A histogram that has a label is added up over its values, or kept by them.
    fn time(&mut self, line: &Line<'_>) {
        let Some((family, part)) = line.name.rsplit_once("_seconds_") else { return };
        let times = &mut self.times;
        let of = || line.label("of").unwrap_or_default().to_owned();
        let histogram = match family {
            "rollcall_settle_lag" => &mut times.settle_lag,
            "rollcall_topic_lag" => &mut times.topic_lag,
            "rollcall_http_request" => &mut times.request,
            "rollcall_function_call" => times.functions.entry(of()).or_default(),
            "rollcall_store_call" => times.store.entry(of()).or_default(),
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

/// Adds to the bucket of this bound. All histograms of a family have the same bounds, and tell them in order.
fn add(histogram: &mut Histogram, bound: Option<f64>, count: u64) {
    match histogram.buckets.iter_mut().find(|(known, _)| *known == bound) {
        Some((_, counted)) => *counted += count,
        None => histogram.buckets.push((bound, count)),
    }
}

/// A bound in milliseconds; none: any time.
fn bound(le: Option<&str>) -> Option<f64> {
    le.and_then(|seconds| seconds.parse::<f64>().ok()).filter(|seconds| seconds.is_finite()).map(milliseconds)
}

/// To the nanosecond: more digits than that are the noise of the multiplication.
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
    /// None for a comment, and for what is no such line.
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

    /// A label's value. No label here holds anything from outside, so none has a comma or a quote in it.
    fn label(&self, name: &str) -> Option<&'a str> {
        let values = self.labels.split(',').filter_map(|label| label.split_once('='));
        values.filter(|(label, _)| *label == name).map(|(_, value)| value.trim_matches('"')).next()
    }

    fn count(&self) -> u64 {
        // A number of times, below 2^53; a gauge may dip below nothing for a moment between two workers.
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
    fn everything_that_is_counted_is_found_in_the_metrics() {
        let metrics = Metrics::default();
        metrics.beaten(5);
        metrics.committed(&[Some(State::Online), Some(State::Offline), None], &[const { Ok(Committed::Applied) }; 3]);
        metrics.answered("/v1/presence/{user}", 200, ms(1.0));
        metrics.answered("/v1/heartbeat", 503, ms(2.0));
        metrics.archived(3);
        metrics.store_call("touch", ms(0.5), true);
        metrics.store_call("load", ms(0.5), false);
        metrics.replaced("query");
        metrics.connected();
        metrics.hub.told(7);
        metrics.hub.repaired(2);
        metrics.hub.opened("socket");
        metrics.hub.opened("subscribe");
        metrics.hub.opened("subscribe");
        metrics.hub.watching(Sizes::default(), Sizes { watchers: 3, users: 4, conversations: 1 });
        let Figures { gateway, totals, .. } = Figures::read(&metrics.text());
        assert_eq!((totals.heartbeats, totals.transitions.online, totals.transitions.offline), (5, 1, 1));
        assert_eq!((totals.transitions.sum(), totals.told, totals.requests, totals.failures), (2, 7, 2, 1));
        assert_eq!((totals.archived, totals.repaired, totals.store_errors, totals.replacements), (3, 2, 1, 1));
        assert_eq!((gateway.connections, gateway.sockets, gateway.streams), (1, 1, 2));
        assert_eq!((gateway.watchers, gateway.people, gateway.conversations), (3, 4, 1));
    }

    #[test]
    fn times_are_kept_by_what_took_them_and_added_up_where_it_does_not_matter() {
        let metrics = Metrics::default();
        metrics.called("heartbeat", ms(0.3));
        metrics.called("heartbeat", ms(10_000.0));
        metrics.called("query", ms(0.0005));
        let settled = |lag| Settled { lags: vec![Span(lag)], ..Settled::default() };
        metrics.settled("expiry", &settled(3));
        metrics.settled("sweep", &settled(700));
        metrics.hub.heard_after(1);
        let Times { settle_lag, topic_lag, request, functions, store } = Figures::read(&metrics.text()).times;
        let heartbeat = &functions["heartbeat"];
        assert_eq!((heartbeat.count, heartbeat.sum_ms), (2, 10_000.3));
        assert_eq!(heartbeat.buckets.first(), Some(&(Some(0.001), 0)));
        assert!(heartbeat.buckets.contains(&(Some(1.024), 1)) && heartbeat.buckets.contains(&(Some(0.256), 0)));
        assert_eq!(heartbeat.buckets.last(), Some(&(None, 2)), "what took longer than all bounds");
        assert_eq!(functions["query"].buckets.first(), Some(&(Some(0.001), 1)));
        assert_eq!((settle_lag.count, settle_lag.sum_ms), (2, 703.0), "whatever noticed it");
        assert!(settle_lag.buckets.contains(&(Some(4.0), 1)) && settle_lag.buckets.contains(&(Some(1024.0), 2)));
        assert!(settle_lag.buckets.is_sorted_by_key(|(bound, _)| bound.unwrap_or(f64::INFINITY)));
        assert_eq!((topic_lag.count, topic_lag.sum_ms), (1, 1.0));
        assert_eq!((request.buckets, store.len()), (vec![(None, 0)], 0), "nothing was asked yet");
    }

    #[test]
    fn what_is_no_metric_is_passed_over() {
        let figures =
            Figures::read("# EOF\n\nrollcall_heartbeats_total\nrollcall_told_total{of=\"x\" 5\n{} 1\nx NaN\n");
        assert_eq!(figures.totals, Totals::default());
    }
}
