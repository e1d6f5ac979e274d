//! Runs asynchronous code where every call answers at once: one poll is enough.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

thread_local! {
    /// How long the next wait for a change may last.
    static WAIT_MS: Cell<u32> = const { Cell::new(0) };
}

/// The output of a future that does not wait.
#[allow(clippy::panic, reason = "a bug in a function; the host sees a trap with this message")]
#[cfg_attr(feature = "wasi-0.2", allow(dead_code, unreachable_pub, reason = "triggers and adapters may wait"))]
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a synchronous function waited for something other than a call"),
    }
}

/// Polls a future once. Its first wait for a change lasts at most this long, and any further one not at all; then the poll
/// is pending.
pub fn poll_for<T>(wait_ms: u32, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    WAIT_MS.set(wait_ms);
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// How long this wait may last. Only the first one of a poll may last at all: there is no clock to tell what is left.
#[cfg(feature = "capabilities")]
pub(super) fn take_wait_ms() -> u32 {
    WAIT_MS.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_future_needs_one_poll() {
        assert_eq!(at_once(async { 7 }), 7);
    }

    #[test]
    #[should_panic(expected = "waited for something other than a call")]
    fn waiting_function_traps() {
        at_once(std::future::pending::<()>());
    }
}
