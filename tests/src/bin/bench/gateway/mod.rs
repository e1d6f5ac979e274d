//! The gateway: how soon a watcher is told, what a celebrity costs, what an idle connection takes, and what it costs to open
//! one.

mod fan_out;
mod idle;
mod opening;
mod push;

pub(crate) use fan_out::run as fan_out;
pub(crate) use idle::run as idle;
pub(crate) use opening::run as opening;
pub(crate) use push::run as push;

use rollcall_tests::Host;
use rollcall_tests::watcher::Transport;
use rollcall_tests::watcher_pool::{allow_descriptors, descriptors};

/// Beats so rare that nobody expires while something else is measured, and as many connections as anybody wants.
const QUIET: [&str; 6] = ["--interval", "10m", "--max-connections", "60000", "--crowd", "1000000"];

/// The most connections that anything here opens.
const MOST_CONNECTIONS: usize = 20_000;

/// Files and sockets that a process has beside its connections.
const SPARE: usize = 500;

/// So many connections, or as many as a process may have here.
fn at_most(wanted: usize) -> usize {
    wanted.min(descriptors().1.saturating_sub(SPARE))
}

/// A host for measurements, with these further arguments.
fn host(further: &[&str]) -> Host {
    allow_descriptors(at_most(MOST_CONNECTIONS) + SPARE);
    let mut arguments = QUIET.to_vec();
    arguments.extend(further);
    Host::start(&arguments)
}

fn name(transport: Transport) -> &'static str {
    match transport {
        Transport::Events => "events (SSE)",
        Transport::Socket => "WebSocket",
    }
}
