//! What the tests share: where the built things are, a running host, an ordinary HTTP client, people by the thousand, and
//! one who hears all that is published about them.
//!
//! Everything here is real: the host is the binary, on a free loopback port, with its own data directory, and it is
//! killed when it goes out of scope.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

pub mod bonds;
mod client;
pub mod crowd;
mod deafening;
pub mod diary;
mod host;
mod instance_queue;
pub mod line;
mod mint;
pub mod places;
mod recorder;
mod resp;
mod socket;
pub mod stage;
mod stream;
pub mod swarm;
pub mod vigil;
mod wasi;
mod wishes;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use client::{Answer, Client};
pub use deafening::Deafening;
pub use host::{Host, binary};
pub use instance_queue::{Bench, function_handles, on_a_worker, warm_up};
pub use mint::Mint;
pub use recorder::{Event, Heard, Recorder};
pub use socket::Socket;
pub use stage::Stage;
pub use stream::Stream;

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

/// Waits until something holds, with a deadline. Answers with how long it took.
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    began.elapsed()
}
