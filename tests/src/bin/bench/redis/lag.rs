//! How late offline events are with a million users online, by `--expiry-detection`: notifications, the sweep, and both.
//!
//! A first host with a long interval brings a million users online, whose keys all have a time to live. Then, for each value, a
//! host with a short interval on the same Redis takes one beat each of ten thousand others, who then fall silent. The lag is the
//! time of publication minus the deadline, both in the store's time.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rollcall_servers::redis::Redis as Server;
use rollcall_tests::Host;
use serde_json::Value;

use super::{info, plot};
use crate::load::Connection;
use crate::report::{Goal, Section, number};
use crate::sample::quantile;
use crate::users;

/// Users online throughout.
const ONLINE: u64 = 1_000_000;

/// Users who fall silent.
const SILENT: u64 = 10_000;

/// Beats per request, and users per query.
const BATCH: u64 = 500;

/// `d + ε` of the measured host.
const ALIVE_FOR_MS: u64 = 6000;

/// An event later than this counts as never.
const PATIENCE: Duration = Duration::from_secs(60);

/// The values of `--expiry-detection`.
const DETECTIONS: [&str; 3] = ["notifications", "sweep", "both"];

/// Measures the three side by side.
pub(crate) fn run() -> Result<Section> {
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lasting = Host::start_in(
        Path::new("none"),
        &[
            "--store",
            &server.url(),
            "--interval",
            "5h",
            "--tolerance",
            "5h",
            "--idle-after",
            "20h",
            "--expiry-detection",
            "sweep",
        ],
    );
    let before = info(&server, "memory", "used_memory")?;
    let began = Instant::now();
    runtime.block_on(beat(lasting.address(), 0..ONLINE))?;
    let took = began.elapsed().as_secs_f64();
    let bytes = (info(&server, "memory", "used_memory")? - before) / ONLINE as f64;
    drop(lasting);

    let mut section = Section::new(
        "redis-lag: offline after the deadline, a million users online",
        &["detected by", "p50 ms", "p99 ms", "max ms", "published within a minute"],
    );
    let mut curves = Vec::new();
    for (round, detection) in (0..).zip(DETECTIONS) {
        let silent = ONLINE + round * SILENT..ONLINE + (round + 1) * SILENT;
        let mut lags_ms = runtime.block_on(measure(&server, detection, silent))?;
        lags_ms.sort_unstable_by(f64::total_cmp);
        let published = lags_ms.iter().filter(|lag| lag.is_finite()).count();
        let goal = if detection == "notifications" { Goal::None } else { Goal::AtMost(1000.0) };
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| quantile(&lags_ms, share));
        let cells = [detection.to_owned(), ms(p50), ms(p99), ms(max), format!("{published} of {SILENT}")];
        section.row(cells, goal, p99);
        curves.push((detection, lags_ms));
    }
    let name = "Redis's memory per user online, bytes".to_owned();
    section.row([name, number(bytes), String::new(), String::new(), String::new()], Goal::AtMost(600.0), bytes);
    plot::write(&curves)?;
    section.note(&format!(
        "One host, one Redis without persistence, all on the same cores. {} users stay online with keys that live for \
         hours; {} beat once within a second and are then silent for {} s. Bringing a million users online took \
         {took:.0} s. The plot is offline-lag.svg.",
        number(ONLINE as f64),
        number(SILENT as f64),
        ALIVE_FOR_MS / 1000,
    ));
    Ok(section)
}

fn ms(lag: f64) -> String {
    if lag.is_finite() { number(lag) } else { "never".to_owned() }
}

pub(super) async fn beat(address: &str, indexes: std::ops::Range<u64>) -> Result<()> {
    let mut open = Connection::open(address).await?;
    let end = indexes.end;
    for first in indexes.step_by(BATCH as usize) {
        open.ask(&users::heartbeats(first..(first + BATCH).min(end))).await?;
    }
    Ok(())
}

/// The lag of every user in milliseconds; infinite if the event did not come in time.
async fn measure(server: &Server, detection: &str, silent: std::ops::Range<u64>) -> Result<Vec<f64>> {
    let url = server.url();
    let times = ["--interval", "4s", "--tolerance", "2s", "--evict-after", "10m", "--expiry-detection", detection];
    let host = Host::start_in(Path::new("none"), &[&["--store", &url][..], &times].concat());
    beat(host.address(), silent.clone()).await?;
    let give_up = Instant::now() + Duration::from_millis(ALIVE_FOR_MS) + PATIENCE;
    loop {
        tokio::time::sleep(Duration::from_millis(ALIVE_FOR_MS)).await;
        let lags = read(host.address(), silent.clone()).await?;
        if lags.iter().all(|lag| lag.is_finite()) || Instant::now() > give_up {
            return Ok(lags);
        }
    }
}

async fn read(address: &str, indexes: std::ops::Range<u64>) -> Result<Vec<f64>> {
    let mut open = Connection::open(address).await?;
    let mut lags_ms = Vec::new();
    let count = indexes.end - indexes.start;
    for first in indexes.step_by(BATCH as usize) {
        let answer: Value = serde_json::from_slice(open.ask(&users::presences(first..first + BATCH)).await?)?;
        let presences = answer.get("presences").and_then(Value::as_array).context("no presences")?;
        lags_ms.extend(presences.iter().map(|presence| lag_ms(presence).unwrap_or(f64::INFINITY)));
    }
    ensure!(lags_ms.len() as u64 == count, "{} answers for {count} users", lags_ms.len());
    Ok(lags_ms)
}

/// None for a user not published as offline. A query derives the state, so an offline state alone proves nothing; a published record
/// has a version later than the last beat by more than `d + ε`.
fn lag_ms(presence: &Value) -> Option<f64> {
    let number = |name: &str| presence.get(name).and_then(Value::as_f64);
    (presence.get("state")?.as_str()? == "offline").then_some(())?;
    let lag = number("version")? / 1000.0 - (number("last_seen")? + ALIVE_FOR_MS as f64);
    (lag >= -1.0).then_some(lag)
}
