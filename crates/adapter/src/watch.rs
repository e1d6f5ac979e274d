//! Telling whoever watches what changes, at the reader's pace.
//!
//! One change at a time, and only once the reader asks for it: until then it waits where a newer one about the same
//! person replaces it.

use std::pin::pin;

use futures::future::{Either, select};
use rollcall_core::Error;
use rollcall_functions::capabilities::Change;
use rollcall_redis::resp::{Dial, Listening};

/// People being watched on behalf of one reader. Dropping it ends the watch.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait Watch: 'static {
    /// After how many times of nothing for now, one after the other, it has been two minutes.
    const TWO_MINUTES: u32;

    /// Waits for a change; of somebody who changed more than once, the newest. None: nothing for now; it is said every
    /// few seconds, so that whoever asks can look whether anybody still reads. An error: changes may have been lost.
    ///
    /// Nothing is lost if it is given up while it waits.
    async fn next(&mut self) -> Result<Option<Change>, Error>;

    /// Goes on listening while nobody reads, and ends only if changes may have been lost. It may be given up.
    async fn lost(&mut self) -> Error;
}

impl<D: Dial> Watch for Listening<D> {
    const TWO_MINUTES: u32 = Self::TWO_MINUTES;

    async fn next(&mut self) -> Result<Option<Change>, Error> {
        self.next().await
    }

    async fn lost(&mut self) -> Error {
        self.lost().await
    }
}

/// Whoever reads.
pub(crate) trait Reader {
    /// Waits until the next change is asked for.
    async fn wants_more(&mut self) -> Result<(), Gone>;
    /// Tells a change to a reader who asked for it.
    async fn tell(&mut self, change: Change) -> Result<(), Gone>;
}

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Tells every change until nobody reads any more, or until some may have been lost.
///
/// A function that feeds somebody finds out that they are gone when it has something to tell them. Where nothing happens
/// for two minutes the watch ends, as it may at any time: whoever is still there begins another, and others are let go.
pub(crate) async fn tell<W: Watch>(mut watch: W, reader: &mut impl Reader) -> Result<(), Error> {
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

    /// What comes, in order; then it is lost.
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

    /// Reads so many and goes; or never reads at all.
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
    fn everything_is_told_until_something_may_have_been_lost() {
        let mut reader = Listener { left: 9, told: Vec::new(), reads: true };
        assert_eq!(block_on(tell(script(), &mut reader)), Err(Error::Unavailable(7)));
        assert_eq!(reader.told, [change("bob", 1), change("eve", 2)]);
    }

    #[test]
    fn where_nothing_happens_for_long_the_watch_ends() {
        let mut reader = Listener { left: 9, told: Vec::new(), reads: true };
        let quiet = Script(VecDeque::from([None, Some(change("bob", 1)), None, None, Some(change("eve", 2))]));
        assert_eq!(block_on(tell(quiet, &mut reader)), Err(Error::Unavailable(0)));
        assert_eq!(reader.told, [change("bob", 1)]);
    }

    #[test]
    fn one_who_goes_is_told_nothing_more() {
        let mut reader = Listener { left: 1, told: Vec::new(), reads: true };
        assert_eq!(block_on(tell(script(), &mut reader)), Ok(()));
        assert_eq!(reader.told, [change("bob", 1)]);
    }

    #[test]
    fn a_loss_is_told_also_to_one_who_does_not_read() {
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
