//! The gateway: push latency, fan-out to a crowd, memory of an idle connection, and the cost of opening one.

mod fan_out;
mod idle;
mod opening;
mod push;

pub(crate) use fan_out::run as fan_out;
pub(crate) use idle::run as idle;
pub(crate) use opening::run as opening;
pub(crate) use push::run as push;

use rollcall_tests::Host;
use rollcall_tests::watcher::Protocol;
use rollcall_tests::watcher_pool::{allow_descriptors, descriptors};

/// A long interval, so that no user expires during a measurement, and no connection limit.
const QUIET: [&str; 6] = ["--interval", "10m", "--max-connections", "60000", "--crowd", "1000000"];

/// The most connections of any benchmark here.
const MOST_CONNECTIONS: usize = 20_000;

/// File descriptors of a process besides its connections.
const SPARE: usize = 500;

/// This many connections, or as many as the limits allow.
fn at_most(wanted: usize) -> usize {
    wanted.min(descriptors().1.saturating_sub(SPARE))
}

/// A host for measurements, with these arguments added.
fn host(further: &[&str]) -> Host {
    allow_descriptors(at_most(MOST_CONNECTIONS) + SPARE);
    let mut arguments = QUIET.to_vec();
    arguments.extend(further);
    Host::start(&arguments)
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Events => "events (SSE)",
        Protocol::Socket => "WebSocket",
    }
}
