//! How late offline events are when very many are due: a million users beat once, evenly over ten seconds, and then never again.
//!
//! The lag is exact and needs no clock of ours: a published record has the store's time in microseconds as its version, and its
//! deadline is the last beat plus `d + ε`, in the store's time too.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rollcall_tests::Host;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http::metric;
use crate::load::Connection;
use crate::process::{cpu_us, resident_bytes};
use crate::report::{Goal, Section, number};
use crate::sample::quantile;
use crate::users;

/// Users who beat once.
const USERS: u64 = 1_000_000;

/// The time over which they beat.
const SPREAD: Duration = Duration::from_secs(10);

/// Beats per request.
const BATCH: u64 = 1000;

/// Users per query: the most that the host accepts.
const ASKED: u64 = 500;

/// Connections.
const CONNECTIONS: u64 = 4;

/// `d + ε` of the host, in milliseconds.
const ALIVE_FOR_MS: f64 = 30_000.0;

/// Deadline for all users to be offline.
const PATIENCE: Duration = Duration::from_secs(180);

/// Measures one mass expiry.
pub(crate) fn run() -> Result<Section> {
    let times = ["--interval", "20s", "--tolerance", "10s", "--evict-after", "10m"];
    let host = Host::start_in(Path::new("none"), &times);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let empty_bytes = resident_bytes(host.pid())?;
    let before = cpu_us(host.pid())?;
    let took = runtime.block_on(beat_all(host.address()))?;
    let cpu_to_come = cpu_us(host.pid())? - before;
    let full_bytes = resident_bytes(host.pid())?;
    let before = cpu_us(host.pid())?;
    wait_until_all_offline(&host)?;
    let cpu_to_go = cpu_us(host.pid())? - before;
    let mut lags_ms = runtime.block_on(read_lags(host.address()))?;
    lags_ms.sort_unstable_by(f64::total_cmp);

    let mut section = Section::new("lag: a million users go offline within ten seconds", &["figure", "value"]);
    for (name, share, goal) in [("p50", 0.5, Goal::None), ("p99", 0.99, Goal::AtMost(1000.0)), ("max", 1.0, Goal::None)]
    {
        let lag_ms = quantile(&lags_ms, share);
        section.row([format!("offline published after the deadline, {name}, ms"), number(lag_ms)], goal, lag_ms);
    }
    let beats = [
        ("the million first beats took, s (evenly over 10 if the machine can)", took.as_secs_f64()),
        ("host CPU per first beat in batches of 1000 (JSON, function, publication), µs", cpu_to_come / USERS as f64),
        ("host CPU per user going offline, waiting included, µs", cpu_to_go / USERS as f64),
        ("resident memory per online user, bytes", full_bytes.saturating_sub(empty_bytes) as f64 / USERS as f64),
        ("resident memory of the empty host, MB", empty_bytes as f64 / 1e6),
    ];
    for (name, value) in beats {
        section.row([name.to_owned(), number(value)], Goal::None, 0.0);
    }
    section.note(
        "All of the million are read back. The lag is the version (the store's time of publication) minus the last beat and \
         30 s. Beats arrive 1000 per request over 4 connections; the client shares the host's cores meanwhile and is idle \
         while they expire.",
    );
    Ok(section)
}

/// All users beat, at an even pace. Returns how long it took.
async fn beat_all(address: &str) -> Result<Duration> {
    let began = Instant::now();
    let address: Arc<str> = address.into();
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let address = Arc::clone(&address);
        tasks.spawn(async move {
            let mut open = Connection::open(&address).await?;
            for batch in (connection..USERS / BATCH).step_by(CONNECTIONS as usize) {
                let request = users::heartbeats(batch * BATCH..(batch + 1) * BATCH);
                let due = began + SPREAD.mul_f64(batch as f64 * BATCH as f64 / USERS as f64);
                tokio::time::sleep_until(due.into()).await;
                open.ask(&request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(began.elapsed())
}

fn wait_until_all_offline(host: &Host) -> Result<()> {
    let client = host.client("bench");
    let began = Instant::now();
    loop {
        let online = metric(&client.get("/metrics").text, "rollcall_users_online")?;
        if online == 0.0 {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{online} users are still online after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The lag of every user in milliseconds.
async fn read_lags(address: &str) -> Result<Vec<f64>> {
    let mut open = Connection::open(address).await?;
    let mut lags_ms = Vec::with_capacity(USERS as usize);
    for first in (0..USERS).step_by(ASKED as usize) {
        let answer: Value = serde_json::from_slice(open.ask(&users::presences(first..first + ASKED)).await?)?;
        let presences = answer.get("presences").and_then(Value::as_array).context("no presences")?;
        for presence in presences {
            lags_ms.push(lag_ms(presence).with_context(|| format!("not gone offline in good order: {presence}"))?);
        }
    }
    ensure!(lags_ms.len() as u64 == USERS, "{} answers for {USERS} users", lags_ms.len());
    Ok(lags_ms)
}

fn lag_ms(presence: &Value) -> Option<f64> {
    let number = |name: &str| presence.get(name).and_then(Value::as_f64);
    (presence.get("state")?.as_str()? == "offline").then_some(())?;
    Some(number("version")? / 1000.0 - (number("last_seen")? + ALIVE_FOR_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_version_minus_deadline() {
        let beat_ms = 1_700_000_000_000_u64;
        let presence = serde_json::json!({
            "user": "bob", "state": "offline", "last_seen": beat_ms, "version": (beat_ms + 30_025) * 1000,
        });
        assert_eq!(lag_ms(&presence), Some(25.0));
        assert_eq!(lag_ms(&serde_json::json!({ "state": "online", "last_seen": 1, "version": 1 })), None);
    }
}
