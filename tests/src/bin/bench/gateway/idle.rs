//! Memory of an idle connection.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rollcall_tests::Host;
use rollcall_tests::watcher::Protocol;
use rollcall_tests::watcher_pool::{Plan, WatcherPool, allow_descriptors};
use serde_json::json;

use crate::process::resident_bytes;
use crate::report::{Goal, Section, number};

/// Users watched per connection, and users in total.
const EACH: usize = 10;
const USERS: usize = 1000;

/// Connections opened before measuring. The first ones mostly pay for what any busy host has: instances, stacks, allocator pages.
const BEFORE: usize = 1000;

pub(crate) fn run() -> Result<Section> {
    let columns = ["protocol", "further connections", "resident bytes each", "the same, if they also beat"];
    let mut section = Section::new("Idle connections: resident memory of the host", &columns);
    for protocol in [Protocol::Events, Protocol::Socket] {
        for count in [1000, super::at_most(super::MOST_CONNECTIONS) - BEFORE] {
            let watching = measure(protocol, count, "watch_only=true")?;
            let beating = measure(protocol, count, "watch_only=false")?;
            let cells = [super::name(protocol).to_owned(), number(count as f64), number(watching), number(beating)];
            section.row(cells, Goal::AtMost(8192.0), beating);
        }
    }
    section.note(
        "The host runs without huge pages (`MIMALLOC_ALLOW_THP=0`): with them memory becomes resident two megabytes at a time, \
         two thousand bytes for each of a thousand connections. Measured on top of a thousand open connections. Each watches ten users out of a thousand. The last column is of connections that are heartbeats too: it includes the \
         user's session in the embedded store, and is what the target is held against.",
    );
    Ok(section)
}

fn measure(protocol: Protocol, count: usize, manner: &str) -> Result<f64> {
    allow_descriptors(super::at_most(super::MOST_CONNECTIONS) + super::SPARE);
    let variables = [("MIMALLOC_ALLOW_THP", "0")];
    let host = Host::try_start_with(Path::new("none"), &super::QUIET, &variables).map_err(anyhow::Error::msg)?;
    let gather = |first: usize, count: usize| {
        WatcherPool::connect(plan(protocol, host.address(), first, count, manner), Duration::from_secs(180))
    };
    let _before = gather(0, BEFORE);
    let before = resident_bytes(host.pid())?;
    let _after = gather(BEFORE, count);
    Ok((resident_bytes(host.pid())? as f64 - before as f64) / count as f64)
}

/// Connections that watch a few of the same users.
pub(super) fn plan(protocol: Protocol, address: &str, first: usize, count: usize, manner: &str) -> Plan {
    let mut plan = Plan::watching(protocol, address, "nobody", count);
    for (index, path) in plan.paths.iter_mut().enumerate() {
        let watcher = first + index;
        let users: Vec<String> = (0..EACH).map(|place| format!("p{}", (watcher * 7 + place * 101) % USERS)).collect();
        match protocol {
            Protocol::Events => {
                *path = format!("/v1/subscribe?{manner}&users={}&as=watcher-{watcher}", users.join(","));
            }
            Protocol::Socket => {
                *path = format!("/v1/socket?{manner}&as=watcher-{watcher}");
                if let Some(message) = plan.messages.get_mut(index) {
                    *message = json!({ "op": "watch", "users": users }).to_string();
                }
            }
        }
    }
    plan
}
