//! WASI 0.3.

mod tcp;

use std::time::Duration;

use wasip3::clocks::{monotonic_clock, system_clock};
use wasip3::random::random::get_random_u64;
use wasip3::wit_bindgen::StreamWriter;
use wasip3::wit_stream;

use crate::nanoseconds;

pub use tcp::{Incoming, Outgoing, connect};

/// Wakes a waiting call when dropped.
pub type Signal = StreamWriter<u8>;

/// Nanoseconds on a monotonic clock.
pub fn monotonic_ns() -> u64 {
    monotonic_clock::now()
}

/// Unix seconds.
pub fn unix_now() -> u64 {
    u64::try_from(system_clock::now().seconds).unwrap_or_default()
}

/// A random number.
pub fn random() -> u64 {
    get_random_u64()
}

/// Waits this long.
pub async fn sleep(duration: Duration) {
    monotonic_clock::wait_for(nanoseconds(duration)).await;
}

/// A signal and a future that resolves when the signal is dropped. One call wakes another with it; otherwise only the host can.
pub fn signal() -> (Signal, impl Future<Output = ()>) {
    // A stream that only ends. A future would do, but a component may not read its own future if it carries a result.
    let (signal, mut signalled) = wit_stream::new();
    (signal, async move { drop(signalled.read(Vec::with_capacity(1)).await) })
}
