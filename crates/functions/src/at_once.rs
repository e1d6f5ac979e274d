//! For tests over capabilities that answer at once.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Nothing there ever waits, so one look at a future is enough.
#[allow(clippy::panic, reason = "a test that cannot go on has failed")]
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("waits"),
    }
}
