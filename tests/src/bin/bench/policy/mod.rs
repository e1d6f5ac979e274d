//! Policy: the cost of a check compared with alternatives, memory, how soon a block is in force on another host, and the load on
//! the store.

mod baselines;
mod checks;
mod enforced;
mod instance;
mod loading;
mod memory;
mod pairs;
mod plot;
mod population;
mod queries;
mod starts;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rollcall_tests::Host;

use crate::load::Connection;
use crate::report::number;
use crate::users;

pub(crate) use checks::run as checks;
pub(crate) use enforced::run as enforced;
pub(crate) use loading::run as loading;
pub(crate) use memory::run as memory;
pub(crate) use pairs::run as pairs;
pub(crate) use queries::run as queries;
pub(crate) use starts::run as starts;

/// Arguments of the hosts.
const QUIET: [&str; 6] = ["--interval", "10m", "--workers", "2", "--expiry-detection", "notifications"];

/// Deadline for a host to have all policy in memory.
const PATIENCE: Duration = Duration::from_secs(120);

/// The gauge of instances that have all policy in memory.
const WARM: &str = r#"rollcall_policy_instances{cache_state="warm"}"#;

/// A host on this Redis whose policy instances are all warm. The interval is so long that no user expires meanwhile.
fn host(data: &Path, store: &str, instances: u32) -> Result<Host> {
    let host =
        Host::start_in(data, &[&QUIET[..], &["--store", store, "--policy-instances", &instances.to_string()]].concat());
    let give_up = Instant::now() + PATIENCE;
    while host.metric(WARM) < f64::from(instances) {
        ensure!(Instant::now() < give_up, "the host does not have all policy in memory after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(host)
}

/// Brings these users online.
async fn beat(host: &Host, user_count: u64) -> Result<()> {
    let mut open = Connection::open(host.address()).await?;
    for first in (0..user_count).step_by(500) {
        open.ask(&users::heartbeats(first..(first + 500).min(user_count))).await?;
    }
    Ok(())
}

/// Formats a count.
fn count(things: f64) -> String {
    if things < 1000.0 { format!("{things:.0}") } else { number(things) }
}

/// Formats a share in per cent.
fn per_cent(share: f64) -> String {
    if share < 0.001 { format!("{:.4} %", share * 100.0) } else { format!("{:.2} %", share * 100.0) }
}
