//! Streams changes at the reader's pace.
//!
//! One change at a time, and only when the reader asks for it. Until then it waits where a newer one about the same user
//! replaces it.

use std::pin::pin;

use futures::future::{Either, select};
use rollcall_core::Error;
use rollcall_functions::capabilities::Change;

/// Users watched for one reader. Dropping it ends the watch.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait Watch: 'static {
    /// How many times in a row [`Watch::next`] returns none within two minutes.
    const TWO_MINUTES: u32;

    /// Waits for a change; if a user changed more than once, the newest. None after a few seconds without one, so that the
    /// caller can check whether the reader is still there. An error: changes may have been lost.
    ///
    /// Cancel safe.
    async fn next(&mut self) -> Result<Option<Change>, Error>;

    /// Keeps receiving while nothing is read; resolves only if changes may have been lost. Cancel safe.
    async fn lost(&mut self) -> Error;
}

/// The reader of a stream.
pub(super) trait Reader {
    /// Waits until the reader asks for a change.
    async fn wants_more(&mut self) -> Result<(), Gone>;
    /// Hands over a change that was asked for.
    async fn tell(&mut self, change: Change) -> Result<(), Gone>;
}

/// The reader went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Streams changes until the reader goes away or changes may have been lost.
///
/// A function that feeds a client notices that the client is gone only when it has an update to send. So a watch ends
/// after two minutes without a change, as it may at any time: a client that is still there is watched again.
pub(super) async fn tell<W: Watch>(mut watch: W, reader: &mut impl Reader) -> Result<(), Error> {
    let mut quiet = 0;
    while quiet < W::TWO_MINUTES {
        match select(pin!(reader.wants_more()), pin!(watch.lost())).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(Gone), _)) => return Ok(()),
            Either::Right((error, _)) => return Err(error),
        }
        let Some(change) = watch.next().await? else {
            quiet += 1;
            continue;
        };
        if reader.tell(change).await == Err(Gone) {
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

    fn change(user: &str, version: u64) -> Change {
        let published = Published { state: State::Online, note: None, since: None, last_seen: None, version };
        Change { user: UserId::parse(user).unwrap(), published }
    }

    /// Yields these in order; then changes are lost.
    struct Script(VecDeque<Option<Change>>);

    impl Watch for Script {
        const TWO_MINUTES: u32 = 2;

        async fn next(&mut self) -> Result<Option<Change>, Error> {
            self.0.pop_front().ok_or(Error::Unavailable(7))
        }

        async fn lost(&mut self) -> Error {
            pending().await
        }
    }

    /// Reads this many and leaves, or never reads.
    struct Listener {
        left: usize,
        told: Vec<Change>,
        reads: bool,
    }

    impl Reader for Listener {
        async fn wants_more(&mut self) -> Result<(), Gone> {
            if !self.reads {
                pending::<()>().await;
            }
            if self.left == 0 { Err(Gone) } else { Ok(()) }
        }

        async fn tell(&mut self, change: Change) -> Result<(), Gone> {
            self.left = self.left.saturating_sub(1);
            self.told.push(change);
            Ok(())
        }
    }

    fn script() -> Script {
        Script(VecDeque::from([Some(change("bob", 1)), None, Some(change("eve", 2))]))
    }

    #[test]
    fn changes_are_streamed_until_some_may_be_lost() {
        let mut reader = Listener { left: 9, told: Vec::new(), reads: true };
        assert_eq!(block_on(tell(script(), &mut reader)), Err(Error::Unavailable(7)));
        assert_eq!(reader.told, [change("bob", 1), change("eve", 2)]);
    }

    #[test]
    fn quiet_watch_ends() {
        let mut reader = Listener { left: 9, told: Vec::new(), reads: true };
        let quiet = Script(VecDeque::from([None, Some(change("bob", 1)), None, None, Some(change("eve", 2))]));
        assert_eq!(block_on(tell(quiet, &mut reader)), Err(Error::Unavailable(0)));
        assert_eq!(reader.told, [change("bob", 1)]);
    }

    #[test]
    fn reader_that_left_receives_nothing_more() {
        let mut reader = Listener { left: 1, told: Vec::new(), reads: true };
        assert_eq!(block_on(tell(script(), &mut reader)), Ok(()));
        assert_eq!(reader.told, [change("bob", 1)]);
    }

    #[test]
    fn loss_ends_a_stream_nobody_reads() {
        struct Lost;
        impl Watch for Lost {
            const TWO_MINUTES: u32 = 1;

            async fn next(&mut self) -> Result<Option<Change>, Error> {
                pending().await
            }
            async fn lost(&mut self) -> Error {
                Error::Unavailable(3)
            }
        }
        let mut reader = Listener { left: 1, told: Vec::new(), reads: false };
        assert_eq!(block_on(tell(Lost, &mut reader)), Err(Error::Unavailable(3)));
    }
}
