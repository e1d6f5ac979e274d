//! A subscription's conflating mailbox: one slot per user and per typist, not a queue.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rollcall_core::{ConversationId, UserId};
use rollcall_functions::capabilities::PresenceChange;
use tokio::sync::Notify;

use super::{PublishedTyping, Topic, TopicUpdate};

/// The most typing signals that wait in one mailbox. A worker that takes them in time stays far below; for one that does
/// not, they are dropped and [`TopicUpdate::missed`] is set.
const MAX_WAITING: usize = 65_536;

/// A subscription's mailbox.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: HashMap<UserId, Arc<PresenceChange>, foldhash::fast::RandomState>,
    typing: HashMap<ConversationId, HashMap<UserId, Arc<PublishedTyping>>, foldhash::fast::RandomState>,
    /// The number of waiting typing signals, in all conversations.
    typists: usize,
    missed: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.typing.is_empty() && !self.missed
    }

    fn put_typing(&mut self, typing: &Arc<PublishedTyping>) {
        if self.typists >= MAX_WAITING {
            self.typing.clear();
            self.typists = 0;
            self.missed = true;
        }
        let signals = match self.typing.get_mut(&typing.conversation) {
            Some(signals) => signals,
            None => self.typing.entry(typing.conversation.clone()).or_default(),
        };
        if signals.insert(typing.user.clone(), Arc::clone(typing)).is_none() {
            self.typists += 1;
        }
    }

    fn take(&mut self) -> TopicUpdate {
        self.typists = 0;
        TopicUpdate {
            changes: self.changes.drain().map(|(_, change)| change).collect(),
            typing: self.typing.drain().flat_map(|(_, signals)| signals.into_values()).collect(),
            missed: std::mem::take(&mut self.missed),
        }
    }
}

impl Mailbox {
    /// Stores a change, unless a newer one of the same user waits.
    pub(super) fn put_change(&self, change: &Arc<PresenceChange>) {
        self.put(|waiting| match waiting.changes.get_mut(&change.user) {
            Some(known) if known.published.version > change.published.version => {}
            Some(known) => *known = Arc::clone(change),
            None => {
                waiting.changes.insert(change.user.clone(), Arc::clone(change));
            }
        });
    }

    /// Stores a typing signal in place of the previous one.
    pub(super) fn put_typing(&self, typing: &Arc<PublishedTyping>) {
        self.put(|waiting| waiting.put_typing(typing));
    }

    /// Records that messages may have been lost.
    pub(super) fn put_missed(&self) {
        self.put(|waiting| waiting.missed = true);
    }

    /// Drops the messages of a topic that is no longer watched.
    pub(super) fn forget(&self, topic: &Topic) {
        let mut waiting = self.waiting.lock();
        match topic {
            Topic::User(user) => {
                waiting.changes.remove(user);
            }
            Topic::Conversation(conversation) => {
                let gone = waiting.typing.remove(conversation).map_or(0, |signals| signals.len());
                waiting.typists -= gone;
            }
        }
    }

    /// Waits until the mailbox is not empty, and takes everything.
    pub(super) async fn next(&self) -> TopicUpdate {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if !waiting.is_empty() {
                    return waiting.take();
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Changes the content, and wakes the reader if the mailbox was empty.
    fn put(&self, put: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        let was_empty = waiting.is_empty();
        put(&mut waiting);
        drop(waiting);
        if was_empty {
            self.arrived.notify_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use futures::FutureExt;
    use rollcall_core::{Published, State, Time};

    use super::*;

    fn change(user: &str, version: u64) -> Arc<PresenceChange> {
        let published = Published { state: State::Online, note: None, since: None, last_seen: None, version };
        Arc::new(PresenceChange { user: UserId::parse(user).unwrap(), published })
    }

    fn typing(conversation: &str, user: &str, until: Option<u64>) -> Arc<PublishedTyping> {
        let conversation = ConversationId::parse(conversation).unwrap();
        Arc::new(PublishedTyping { conversation, user: UserId::parse(user).unwrap(), until: until.map(Time) })
    }

    #[test]
    fn newest_version_of_each_user_waits() {
        let mailbox = Mailbox::default();
        for version in [3, 5, 4] {
            mailbox.put_change(&change("bob", version));
        }
        mailbox.put_change(&change("eve", 1));
        let mut update = mailbox.next().now_or_never().unwrap();
        update.changes.sort_by_key(|change| change.published.version);
        assert_eq!(update.changes, [change("eve", 1), change("bob", 5)]);
        assert!(mailbox.next().now_or_never().is_none(), "it was taken");
    }

    #[test]
    fn last_signal_of_each_typist_waits() {
        let mailbox = Mailbox::default();
        for until in [Some(5), Some(7), None] {
            mailbox.put_typing(&typing("c", "bob", until));
        }
        mailbox.put_typing(&typing("d", "bob", Some(9)));
        mailbox.forget(&Topic::Conversation(ConversationId::parse("d").unwrap()));
        assert_eq!(mailbox.next().now_or_never().unwrap().typing, [typing("c", "bob", None)]);
    }

    #[test]
    fn typing_signals_above_the_limit_are_dropped() {
        let mailbox = Mailbox::default();
        for index in 0..=MAX_WAITING {
            mailbox.put_typing(&typing("c", &format!("user-{index}"), Some(1)));
        }
        let update = mailbox.next().now_or_never().unwrap();
        assert!(update.missed && update.typing.len() == 1, "{}", update.typing.len());
    }

    #[test]
    fn forgotten_topic_does_not_arrive() {
        let mailbox = Mailbox::default();
        mailbox.put_change(&change("bob", 1));
        mailbox.forget(&Topic::User(UserId::parse("bob").unwrap()));
        assert!(mailbox.next().now_or_never().is_none());
        mailbox.put_missed();
        assert!(mailbox.next().now_or_never().unwrap().missed);
    }
}
