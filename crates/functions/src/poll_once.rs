//! Runs a future whose capabilities never wait, for tests.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The future's output after one poll.
#[allow(clippy::panic, reason = "a test that cannot go on has failed")]
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future waits"),
    }
}
