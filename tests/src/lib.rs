//! Fixtures of the end-to-end tests and the benchmark: a running host, HTTP and WebSocket clients, a recorder of everything
//! published, simulated users, pools of watchers, and scenarios built from them.
//!
//! Everything is real: the host is the binary, on a free loopback port, with its own data directory, and it is killed when the
//! value is dropped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::result_large_err,
    reason = "tests stop at the first surprise"
)]

mod client;
pub mod compatibility;
pub mod deployment;
pub mod history;
mod host;
mod in_process;
mod lossy_proxy;
pub mod outage_scenario;
mod policy_requests;
mod recorder;
mod resp;
pub mod service;
pub mod simulated_users;
mod socket;
mod stream;
mod token_issuer;
pub mod visibility_matrix;
mod wasi;
pub mod watcher;
pub mod watcher_pool;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use client::{Answer, Client};
pub use host::{Host, binary};
pub use in_process::{InProcess, functions, on_a_worker, warm_up};
pub use lossy_proxy::LossyProxy;
pub use recorder::{Event, Published, Recorder};
pub use service::Service;
pub use socket::Socket;
pub use stream::Stream;
pub use token_issuer::TokenIssuer;

/// The workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace").to_owned()
}

/// A built component: `heartbeat`, or `guests/hostile`.
pub fn component(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("ROLLCALL_COMPONENTS")).join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is not built: run `cargo xtask test`", path.display());
    path
}

/// Waits until a condition holds, with a deadline. Returns how long it took.
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}
