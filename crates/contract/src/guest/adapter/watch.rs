//! Streams changes at the reader's pace.
//!
//! One change at a time, and only when the reader asks for it. Until then it waits where a newer one about the same user
//! replaces it.

#[cfg(any(test, not(feature = "sync")))]
use std::pin::pin;

#[cfg(any(test, not(feature = "sync")))]
use futures::future::{Either, select};
use rollcall_core::Error;
use rollcall_functions::capabilities::PresenceChange;

/// Users watched for one reader. Dropping it ends the watch.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait ChangeSource: 'static {
    /// How many times in a row [`ChangeSource::next`] returns `None` within two minutes.
    const MAX_QUIET_POLLS: u32;

    /// Waits for a change; if a user changed more than once, the newest. `None` after a few seconds without one, so
    /// that the caller can check whether the reader is still there. Fails if changes may have been lost.
    ///
    /// Cancel safe.
    async fn next(&mut self) -> Result<Option<PresenceChange>, Error>;

    /// Keeps receiving while nothing is read; resolves only if changes may have been lost. Cancel safe.
    async fn lost(&mut self) -> Error;
}

/// A stream of changes to one reader.
#[cfg(any(test, not(feature = "sync")))]
pub(super) trait ChangeSink {
    /// Waits until the reader asks for a change.
    async fn ready(&mut self) -> Result<(), Closed>;
    /// Sends a change that was asked for.
    async fn send(&mut self, change: PresenceChange) -> Result<(), Closed>;
}

/// The reader went away.
#[cfg(any(test, not(feature = "sync")))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

/// Streams changes until the reader goes away or changes may have been lost.
///
/// A function that feeds a client notices that the client is gone only when it has an update to send. So a watch ends
/// after two minutes without a change, as it may at any time: a client that is still there is watched again.
#[cfg(any(test, not(feature = "sync")))]
pub(super) async fn stream_changes<S: ChangeSource>(mut source: S, sink: &mut impl ChangeSink) -> Result<(), Error> {
    let mut quiet = 0;
    while quiet < S::MAX_QUIET_POLLS {
        match select(pin!(sink.ready()), pin!(source.lost())).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(Closed), _)) => return Ok(()),
            Either::Right((error, _)) => return Err(error),
        }
        let Some(change) = source.next().await? else {
            quiet += 1;
            continue;
        };
        if sink.send(change).await == Err(Closed) {
            return Ok(());
        }
        quiet = 0;
    }
    Err(Error::Unavailable(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::collections::VecDeque;
    use std::future::pending;

    use futures::executor::block_on;
    use rollcall_core::{Published, State, UserId};

    use super::*;

    fn change(user: &str, version: u64) -> PresenceChange {
        let published = Published { state: State::Online, note: None, since: None, last_seen: None, version };
        PresenceChange { user: UserId::parse(user).unwrap(), published }
    }

    /// Yields these in order; then changes are lost.
    struct Script(VecDeque<Option<PresenceChange>>);

    impl ChangeSource for Script {
        const MAX_QUIET_POLLS: u32 = 2;

        async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
            self.0.pop_front().ok_or(Error::Unavailable(7))
        }

        async fn lost(&mut self) -> Error {
            pending().await
        }
    }

    /// Reads this many and leaves, or never reads.
    struct FakeSink {
        left: usize,
        received: Vec<PresenceChange>,
        reads: bool,
    }

    impl ChangeSink for FakeSink {
        async fn ready(&mut self) -> Result<(), Closed> {
            if !self.reads {
                pending::<()>().await;
            }
            if self.left == 0 { Err(Closed) } else { Ok(()) }
        }

        async fn send(&mut self, change: PresenceChange) -> Result<(), Closed> {
            self.left = self.left.saturating_sub(1);
            self.received.push(change);
            Ok(())
        }
    }

    fn script() -> Script {
        Script(VecDeque::from([Some(change("bob", 1)), None, Some(change("eve", 2))]))
    }

    #[test]
    fn changes_are_streamed_until_some_may_be_lost() {
        let mut sink = FakeSink { left: 9, received: Vec::new(), reads: true };
        assert_eq!(block_on(stream_changes(script(), &mut sink)), Err(Error::Unavailable(7)));
        assert_eq!(sink.received, [change("bob", 1), change("eve", 2)]);
    }

    #[test]
    fn quiet_watch_ends() {
        let mut sink = FakeSink { left: 9, received: Vec::new(), reads: true };
        let quiet = Script(VecDeque::from([None, Some(change("bob", 1)), None, None, Some(change("eve", 2))]));
        assert_eq!(block_on(stream_changes(quiet, &mut sink)), Err(Error::Unavailable(0)));
        assert_eq!(sink.received, [change("bob", 1)]);
    }

    #[test]
    fn reader_that_left_receives_nothing_more() {
        let mut sink = FakeSink { left: 1, received: Vec::new(), reads: true };
        assert_eq!(block_on(stream_changes(script(), &mut sink)), Ok(()));
        assert_eq!(sink.received, [change("bob", 1)]);
    }

    #[test]
    fn loss_ends_a_stream_nobody_reads() {
        struct Lost;
        impl ChangeSource for Lost {
            const MAX_QUIET_POLLS: u32 = 1;

            async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
                pending().await
            }
            async fn lost(&mut self) -> Error {
                Error::Unavailable(3)
            }
        }
        let mut sink = FakeSink { left: 1, received: Vec::new(), reads: false };
        assert_eq!(block_on(stream_changes(Lost, &mut sink)), Err(Error::Unavailable(3)));
    }
}
