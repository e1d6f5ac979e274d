//! The cost of a fan-out to ten thousand watchers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rollcall_tests::watcher::Protocol;
use rollcall_tests::watcher_pool::{Plan, WatcherPool};
use serde_json::{Value, json};

use crate::process::cpu_us;
use crate::report::{Goal, Section, number};

const WATCHERS: usize = 10_000;

/// Changes of the user.
const ROUNDS: usize = 20;

pub(crate) fn run() -> Result<Section> {
    let columns = ["protocol", "deliveries per second of one core", "all delivered, median ms", "deliveries/s"];
    let mut section = Section::new("Fan-out: one user, 10,000 watchers", &columns);
    for protocol in [Protocol::Events, Protocol::Socket] {
        let host = super::host(&[]);
        let plan = Plan::watching(protocol, host.address(), "star", WATCHERS);
        let pool = WatcherPool::connect(plan, Duration::from_secs(120));
        let star = host.client("star");
        star.beat("d");
        let mut took = Vec::new();
        let mut cpu = 0.0;
        for round in 0..=ROUNDS {
            pool.received().deliveries.clear();
            let (before, sent) = (cpu_us(host.pid())?, Instant::now());
            let choice = if round % 2 == 0 { "busy" } else { "auto" };
            let answer = star.put("/v1/status", json!({ "choice": choice }));
            let version = answer.json.get("version").and_then(Value::as_u64).with_context(|| answer.text.clone())?;
            let last = pool.until_all_received(version, Duration::from_secs(30));
            // The first change is warm-up.
            if round > 0 {
                took.push(last.saturating_duration_since(sent).as_secs_f64());
                cpu += cpu_us(host.pid())? - before;
            }
        }
        took.sort_by(f64::total_cmp);
        let median = took.get(ROUNDS / 2).copied().unwrap_or_default();
        let per_core = (WATCHERS * ROUNDS) as f64 / (cpu / 1e6);
        let rate = WATCHERS as f64 / median;
        let cells = [super::name(protocol).to_owned(), number(per_core), number(median * 1000.0), number(rate)];
        section.row(cells, Goal::None, per_core);
    }
    section.note(
        "Every watcher gets every change: the crowd threshold is out of reach. The watchers share the two cores with the host, \
         so most of the time until all have the event is theirs.",
    );
    Ok(section)
}
