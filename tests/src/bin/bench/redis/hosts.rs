//! Duplicate work of hosts on one Redis: users fall silent, every host is notified of all of them, and each should be settled by
//! one host.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rollcall_servers::redis::Redis as Server;
use rollcall_tests::Host;

use super::lag::beat;
use crate::report::{Goal, Section, number};

/// Users who fall silent.
const USERS: u64 = 20_000;

/// Numbers of hosts on the Redis.
const HOSTS: [usize; 3] = [1, 2, 4];

/// Time after the deadline within which all must be offline.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures with one host and with several.
pub(crate) fn run() -> Result<Section> {
    let columns = ["hosts", "expiry detection", "users offline", "read", "in vain or too late", "wasted share"];
    let mut section = Section::new("redis-hosts: duplicate work of several hosts", &columns);
    for hosts in HOSTS {
        for detection in ["sweep", "both"] {
            let [published, vain] = measure(hosts, detection)?;
            let looked_at = published + vain;
            let cells = [
                hosts.to_string(),
                detection.to_owned(),
                number(published),
                number(looked_at),
                number(vain),
                format!("{:.1} %", 100.0 * vain / looked_at),
            ];
            section.row(cells, Goal::None, 0.0);
        }
    }
    section.note(&format!(
        "{} users beat once within a second or two and are then silent for 6 s. Read: sessions read because they were due. In \
         vain: another host settled them before they were read; too late: before the commit.",
        number(USERS as f64),
    ));
    Ok(section)
}

/// Users published as offline, and sessions read in vain.
fn measure(hosts: usize, detection: &str) -> Result<[f64; 2]> {
    let server = Server::start()?;
    let url = server.url();
    let arguments = [
        "--store",
        &url,
        "--interval",
        "4s",
        "--tolerance",
        "2s",
        "--evict-after",
        "10m",
        "--expiry-detection",
        detection,
    ];
    let hosts: Vec<Host> = (0..hosts).map(|_| Host::start_in(Path::new("none"), &arguments)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(host) = hosts.first() {
        runtime.block_on(beat(host.address(), 0..USERS))?;
    }
    let give_up = std::time::Instant::now() + Duration::from_secs(6) + PATIENCE;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let counted =
            |outcome: &str| -> f64 { hosts.iter().map(|host| settled(host, outcome)).fold(0.0, |sum, one| sum + one) };
        let published = counted("published");
        if published >= USERS as f64 {
            return Ok([published, counted("unchanged") + counted("stale")]);
        }
        ensure!(std::time::Instant::now() < give_up, "only {published} of {USERS} users were published as offline");
    }
}

/// Sessions that this host settled with this outcome, by any cause.
fn settled(host: &Host, outcome: &str) -> f64 {
    let text = host.client("bench").get("/metrics").text;
    let ending = format!("outcome=\"{outcome}\"}} ");
    let lines = text.lines().filter(|line| line.starts_with("rollcall_settled_total{"));
    lines.filter_map(|line| line.split_once(&ending)?.1.parse::<f64>().ok()).sum()
}
