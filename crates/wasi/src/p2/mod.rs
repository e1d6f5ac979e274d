//! WASI 0.2.

mod reactor;
mod tcp;

use std::time::Duration;

use futures::channel::oneshot;
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::random::random::get_random_u64;

use crate::nanoseconds;

pub use reactor::{block_on, idle, ready};
pub use tcp::{Incoming, Outgoing, connect, write_all};

/// Wakes a waiting future when dropped.
pub type Signal = oneshot::Sender<()>;

/// Nanoseconds on a monotonic clock.
pub fn monotonic_ns() -> u64 {
    monotonic_clock::now()
}

/// Unix seconds.
pub fn unix_now() -> u64 {
    wall_clock::now().seconds
}

/// A random number.
pub fn random() -> u64 {
    get_random_u64()
}

/// Waits this long.
pub async fn sleep(duration: Duration) {
    reactor::sleep_until(monotonic_ns().saturating_add(nanoseconds(duration))).await;
}

/// A signal and a future that resolves when the signal is dropped.
pub fn signal() -> (Signal, impl Future<Output = ()>) {
    let (signal, signalled) = oneshot::channel();
    (signal, async move { signalled.await.unwrap_or_default() })
}
