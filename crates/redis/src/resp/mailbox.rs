//! A conflating mailbox: it holds the newest change of each user until it is read.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use rollcall_functions::capabilities::PresenceChange;

/// The changes that wait for one reader, oldest first.
#[derive(Debug, Default)]
pub struct Mailbox {
    /// Bounded by the number of watched users.
    waiting: RefCell<VecDeque<PresenceChange>>,
    reader: RefCell<Option<Waker>>,
}

impl Mailbox {
    /// Puts in a change. It replaces a waiting change of the same user unless that is newer.
    pub fn put(&self, change: PresenceChange) {
        let mut waiting = self.waiting.borrow_mut();
        match waiting.iter_mut().find(|other| other.user == change.user) {
            Some(other) if other.published.version >= change.published.version => return,
            Some(other) => *other = change,
            None => waiting.push_back(change),
        }
        drop(waiting);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Takes out a change; `None` if it is empty.
    pub fn take(&self) -> Option<PresenceChange> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Takes out a change, or registers the reader to be woken. There is one reader: only the last one registered is
    /// woken.
    pub(crate) fn poll_take(&self, context: &mut Context<'_>) -> Poll<PresenceChange> {
        match self.take() {
            Some(change) => Poll::Ready(change),
            None => {
                *self.reader.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The reader no longer waits.
    pub(crate) fn forget_reader(&self) {
        self.reader.take();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use futures::task::noop_waker_ref;
    use rollcall_core::{Published, State, UserId};

    use super::*;

    fn change(user: &str, version: u64) -> PresenceChange {
        let published = Published { state: State::Online, note: None, since: None, last_seen: None, version };
        PresenceChange { user: UserId::parse(user).unwrap(), published }
    }

    #[test]
    fn mailbox_keeps_the_newest_per_user() {
        let mailbox = Mailbox::default();
        for (user, version) in [("bob", 1), ("eve", 5), ("bob", 3), ("bob", 2), ("eve", 5)] {
            mailbox.put(change(user, version));
        }
        let mut context = Context::from_waker(noop_waker_ref());
        assert_eq!(mailbox.poll_take(&mut context), Poll::Ready(change("bob", 3)));
        assert_eq!(mailbox.take(), Some(change("eve", 5)));
        assert_eq!(mailbox.poll_take(&mut context), Poll::Pending);
    }
}
