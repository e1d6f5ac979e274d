//! Who may see whom: what a check costs against what else one could ask, what everything takes in memory, how soon a
//! block is in force on another host, and what all of it asks of the store.

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

/// How hosts run here.
const QUIET: [&str; 6] = ["--interval", "10m", "--workers", "2", "--notice", "notifications"];

/// How long a host may take until it holds everything in memory.
const PATIENCE: Duration = Duration::from_secs(120);

/// The instances of a host that hold everything in memory.
const WARM: &str = r#"rollcall_policy_instances{of="warm"}"#;

/// A host on this Redis, with so many instances that all hold everything in memory already. Beats are so rare that
/// nobody expires meanwhile.
fn host(data: &Path, store: &str, instances: u32) -> Result<Host> {
    let host =
        Host::start_in(data, &[&QUIET[..], &["--store", store, "--policy-instances", &instances.to_string()]].concat());
    let give_up = Instant::now() + PATIENCE;
    while host.metric(WARM) < f64::from(instances) {
        ensure!(Instant::now() < give_up, "the host does not hold everything in memory after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(host)
}

/// Lets these people come online, and waits until all have.
async fn beat(host: &Host, people: u64) -> Result<()> {
    let mut open = Connection::open(host.address()).await?;
    for first in (0..people).step_by(500) {
        open.ask(&users::heartbeats(first..(first + 500).min(people))).await?;
    }
    Ok(())
}

/// A number of things.
fn count(things: f64) -> String {
    if things < 1000.0 { format!("{things:.0}") } else { number(things) }
}

/// A share in per cent.
fn per_cent(share: f64) -> String {
    if share < 0.001 { format!("{:.4} %", share * 100.0) } else { format!("{:.2} %", share * 100.0) }
}
