//! What triggers and adapters use of WASI: clocks, random numbers, timeouts and TCP. The same functions exist for WASI 0.3, its
//! release candidate and WASI 0.2, so that code above them is written once.
//!
//! WASI 0.3 waits in the host. WASI 0.2 has only `poll`: there, [`block_on`] runs a future until it is done, and waits for all
//! that it waits for at once.
//!
//! Built natively, for unit tests, every call fails: they use nothing of it.

#[cfg(feature = "wasi-rc")]
extern crate wasip3_rc as wasip3;

#[cfg(feature = "wasi-0.2")]
mod p2;
#[cfg(all(any(feature = "wasi", feature = "wasi-rc"), not(feature = "wasi-0.2")))]
mod p3;

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};

#[cfg(feature = "wasi-0.2")]
pub use p2::{
    Incoming, Outgoing, Signal, block_on, connect, idle, monotonic_ns, random, ready, signal, sleep, unix_now,
    write_all,
};
#[cfg(all(any(feature = "wasi", feature = "wasi-rc"), not(feature = "wasi-0.2")))]
pub use p3::{Incoming, Outgoing, Signal, connect, monotonic_ns, random, signal, sleep, unix_now};

/// The most bytes in one read: more than the replies to a batch of a thousand beats.
const READ_BYTES: usize = 64 * 1024;

/// The output of a future; none after the timeout.
pub async fn within<T>(timeout: Duration, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(sleep(timeout))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
