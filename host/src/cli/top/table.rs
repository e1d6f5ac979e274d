//! The window as lines: the most important first, numbers aligned.

use std::collections::BTreeMap;

use super::window::{Latency, Window};
use crate::cli::clock::{span, utc};
use crate::cli::terminal::{Line, Style};

/// The widths of a name, of a name in the second column, and of a number.
const NAME: usize = 22;
const OTHER: usize = 25;
const NUMBER: usize = 11;

/// How many operations of the store are shown: those that take the most time.
const OPERATIONS: usize = 6;

/// All lines, or why there are none yet.
pub(super) fn lines(host: &str, window: Option<&Window>, trouble: Option<&str>) -> Vec<Line> {
    let mut lines = head(host, window);
    if let Some(trouble) = trouble {
        lines.push(Line::new().text(Style::Red, format!("{trouble}; retrying")));
    }
    let Some(window) = window else {
        if trouble.is_none() {
            lines.push(Line::new().text(Style::Dim, "counting"));
        }
        return lines;
    };
    lines.push(Line::new());
    lines.extend(users(window));
    lines.push(Line::new());
    lines.extend(times(window));
    lines.push(Line::new());
    lines.extend(latencies("Functions", &window.times.functions, usize::MAX));
    lines.push(Line::new());
    lines.extend(store(window));
    lines.push(Line::new());
    lines.extend(most_watched(window));
    lines
}

fn head(host: &str, window: Option<&Window>) -> Vec<Line> {
    let line = Line::new().text(Style::Bold, "rollcall top").text(Style::Dim, format!("  {host}"));
    let Some(Window { host, window_ms, .. }) = window else { return vec![line] };
    let up = span(host.now.saturating_sub(host.started));
    let (version, store, archive) = (&host.version, &host.store, &host.archive);
    let facts = format!("{version}, store {store}, archive {archive}, up {up}, the last {}", span(*window_ms + 500));
    vec![line.text(Style::Dim, format!("  {}", utc(host.now))), Line::new().text(Style::Dim, facts)]
}

fn users(window: &Window) -> Vec<Line> {
    let Window { connections, rates, users, .. } = window;
    let online = users.online.map_or_else(|| "–".to_owned(), whole);
    let pair = |name: &str, number: String, other: &str, count: u64| {
        let line = Line::new().column(Style::Plain, name, NAME).number(Style::Bold, number, NUMBER);
        line.text(Style::Plain, "     ").column(Style::Plain, other, OTHER).number(Style::Bold, whole(count), NUMBER)
    };
    let states = rates.transitions.iter().filter(|(_, rate)| **rate > 0.0);
    let states: Vec<String> = states.map(|(state, rate)| format!("{state} {}", rate_text(*rate))).collect();
    let mut lines = vec![
        pair("Users online", online, "Connections", connections.open),
        pair("Heartbeats a second", rate_text(rates.heartbeats), "  sockets", connections.sockets),
        pair("Changes a second", rate_text(rates.changes()), "  streams", connections.streams),
        pair("Updates sent a second", rate_text(rates.updates_sent), "Watchers", connections.watchers),
        pair("Requests a second", rate_text(rates.requests), "Watched users, per worker", connections.watched_users),
        pair(
            "Failures a second",
            rate_text(rates.failures),
            "Conversations, per worker",
            connections.watched_conversations,
        ),
    ];
    if !states.is_empty() {
        lines.push(Line::new().text(Style::Dim, format!("  changes to {}", states.join(", "))));
    }
    lines
}

fn times(window: &Window) -> Vec<Line> {
    let times = &window.times;
    vec![
        columns("How long it takes"),
        latency("Settle lag", &times.settle_lag),
        latency("Topic lag", &times.topic_lag),
        latency("Requests", &times.request),
    ]
}

fn store(window: &Window) -> Vec<Line> {
    let mut lines = latencies("Store", &window.times.store, OPERATIONS);
    let line = match window.store.answers {
        true => {
            Line::new().text(Style::Green, "● ").text(Style::Plain, format!("answers in {}", ms(window.store.took_ms)))
        }
        false => Line::new().text(Style::Red, "● does not answer"),
    };
    let (errors, replaced) = (window.rates.store_errors, window.rates.replacements);
    let style = |rate: f64| if rate > 0.0 { Style::Red } else { Style::Dim };
    let line = line.text(style(errors), format!("   errors {} a second", rate_text(errors)));
    let line = line.text(style(replaced), format!("   functions replaced {} a second", rate_text(replaced)));
    lines.insert(1.min(lines.len()), line);
    lines
}

fn most_watched(window: &Window) -> Vec<Line> {
    // The id is last, so that it is not cut: looking a user up needs all of it.
    let title = Line::new().text(Style::Bold, "Most watched").text(Style::Dim, "  watchers");
    let row = |entry: &rollcall_api::responses::MostWatchedUser| {
        let line = Line::new().number(Style::Bold, whole(entry.watchers), NUMBER);
        line.text(Style::Plain, format!(" {}", entry.user))
    };
    match window.connections.most_watched.as_slice() {
        [] => vec![title, Line::new().text(Style::Dim, "no watchers")],
        entries => [title].into_iter().chain(entries.iter().map(row)).collect(),
    }
}

/// The entries that take the most time, by name.
fn latencies(title: &str, entries: &BTreeMap<String, Latency>, most: usize) -> Vec<Line> {
    let mut busy: Vec<(&String, &Latency)> = entries.iter().filter(|(_, latency)| latency.per_s > 0.0).collect();
    busy.sort_by(|(_, one), (_, other)| other.sum_ms.total_cmp(&one.sum_ms));
    busy.truncate(most);
    busy.sort_unstable_by_key(|(name, _)| *name);
    let rows = busy.into_iter().map(|(name, busy)| latency(name, busy));
    [columns(title)].into_iter().chain(rows).collect()
}

fn columns(title: &str) -> Line {
    let line = Line::new().column(Style::Bold, title, NAME);
    ["a second", "p50", "p99"].into_iter().fold(line, |line, column| line.number(Style::Dim, column, NUMBER))
}

fn latency(name: &str, latency: &Latency) -> Line {
    let line = Line::new().column(Style::Plain, name, NAME).number(Style::Plain, rate_text(latency.per_s), NUMBER);
    let times = [latency.p50_ms, latency.p99_ms].map(|time| time.map_or_else(|| "–".to_owned(), ms));
    times.into_iter().fold(line, |line, time| line.number(Style::Plain, time, NUMBER))
}

/// A time with three digits and a unit.
fn ms(ms: f64) -> String {
    match ms {
        _ if ms < 0.9995 => format!("{:.0} µs", ms * 1000.0),
        _ if ms < 9.995 => format!("{ms:.2} ms"),
        _ if ms < 99.95 => format!("{ms:.1} ms"),
        _ if ms < 999.5 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1000.0),
    }
}

fn rate_text(rate: f64) -> String {
    if rate > 0.0 && rate < 100.0 { format!("{rate:.1}") } else { whole(rate.round() as u64) }
}

/// A number with a comma between thousands.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use rollcall_api::responses::{Histogram, MostWatchedUser, Stats};

    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(whole), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.04, 41.25, 1234.5].map(rate_text), ["0", "0.0", "41.2", "1,235"]);
        assert_eq!(
            [0.0123, 0.31, 1.5, 12.34, 150.2, 2500.0].map(ms),
            ["12 µs", "310 µs", "1.50 ms", "12.3 ms", "150 ms", "2.50 s"]
        );
    }

    #[test]
    fn page_has_aligned_numbers() {
        let (from, mut to) = (Stats::default(), Stats::default());
        to.host.now = 1000;
        to.users.online = Some(1234);
        to.store.answers = true;
        to.totals.heartbeats = 41;
        to.totals.transitions.busy = 2;
        let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
        to.connections.most_watched = vec![MostWatchedUser { user: format!("{uuid}\x1b[2J"), watchers: 1200 }];
        let busy = Histogram { count: 4, sum_ms: 4.0, buckets: vec![(Some(1.0), 4), (None, 4)] };
        to.times.functions.insert("heartbeat".to_owned(), busy);
        let page: Vec<String> =
            lines("http://h", Some(&Window::of(&from, &to)), None).iter().map(Line::plain).collect();
        let line = |beginning: &str| page.iter().find(|line| line.starts_with(beginning)).unwrap().as_str();
        assert_eq!(
            line("Users online"),
            "Users online                 1,234      Connections                         0"
        );
        assert_eq!(
            line("Heartbeats a second"),
            "Heartbeats a second           41.0        sockets                           0"
        );
        assert_eq!(line("heartbeat "), "heartbeat                      4.0      500 µs      990 µs");
        assert_eq!(line("Settle lag"), "Settle lag                       0           –           –");
        assert!(page.contains(&format!("      1,200  {uuid}\u{fffd}[2J")), "whole: {page:#?}");
        assert_eq!(line("  changes to"), "  changes to busy 2.0");
        assert!(line("● answers in").contains("errors 0 a second"));
    }

    #[test]
    fn slowest_operations_are_shown_not_most_called() {
        let latency = |per_s, sum_ms| Latency { per_s, sum_ms, p50_ms: Some(1.0), p99_ms: Some(2.0) };
        let all = [("load", latency(1.0, 900.0)), ("touch", latency(99.0, 90.0)), ("idle", latency(0.0, 0.0))];
        let all: BTreeMap<String, Latency> =
            all.into_iter().map(|(name, latency)| (name.to_owned(), latency)).collect();
        let page = latencies("Store", &all, 1);
        assert_eq!(page.len(), 2);
        assert!(page.last().unwrap().plain().starts_with("load "), "{page:?}");
    }

    #[test]
    fn unreachable_host_is_reported() {
        let page = lines("http://h", None, Some("it cannot be reached"));
        assert_eq!(page.last().unwrap().plain(), "it cannot be reached; retrying");
        assert_eq!(lines("http://h", None, None).last().unwrap().plain(), "counting");
    }
}
