//! Routes a message to the mailboxes that subscribed to its topic.
//!
//! The embedded store publishes while it holds a shard's lock, so this must be fast: without subscriptions in the topic's
//! part it costs one atomic load, otherwise one lock of the part and one of each mailbox.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rollcall_core::{ConversationId, Published, UserId};
use rollcall_functions::capabilities::PresenceChange;
use smallvec::SmallVec;

use super::mailbox::Mailbox;
use super::{PublishedTyping, Topic};

/// The number of parts, each with its own lock: several times the number of cores.
const PARTS: usize = 64;

/// The subscriptions of one topic: at most one per worker.
#[derive(Debug, Default)]
struct TopicEntry {
    mailboxes: SmallVec<[Arc<Mailbox>; 2]>,
    /// Whether messages of the topic arrive since it was subscribed to: if the feed restarts after that, some may be lost.
    active: bool,
}

/// The subscriptions of all topics.
#[derive(Debug)]
pub struct Dispatcher {
    users: TopicTable<UserId>,
    conversations: TopicTable<ConversationId>,
}

/// Since when the messages of a topic arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// Without interruption.
    Uninterrupted,
    /// From now on.
    Restarted,
}

/// The subscriptions of one kind of topic.
#[derive(Debug)]
struct TopicTable<K> {
    parts: Box<[Part<K>]>,
    hasher: RandomState,
}

/// Aligned, so that the locks of two parts never share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Part<K> {
    /// The number of topics, readable without the lock.
    watched: AtomicUsize,
    topics: Mutex<HashMap<K, TopicEntry, RandomState>>,
}

impl<K: Eq + Hash + Clone> TopicTable<K> {
    fn new() -> Self {
        let part = |_| Part { watched: AtomicUsize::new(0), topics: Mutex::default() };
        Self { parts: (0..PARTS).map(part).collect(), hasher: RandomState::default() }
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder is below what it was divided by")]
    fn part(&self, key: &K) -> &Part<K> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    fn subscribe(&self, key: &K, mailbox: &Arc<Mailbox>) {
        let part = self.part(key);
        let mut topics = part.topics.lock();
        topics.entry(key.clone()).or_default().mailboxes.push(Arc::clone(mailbox));
        part.watched.store(topics.len(), Ordering::SeqCst);
    }

    fn unsubscribe(&self, key: &K, mailbox: &Arc<Mailbox>) {
        let part = self.part(key);
        let mut topics = part.topics.lock();
        if let Entry::Occupied(mut topic) = topics.entry(key.clone()) {
            topic.get_mut().mailboxes.retain(|known| !Arc::ptr_eq(known, mailbox));
            if topic.get().mailboxes.is_empty() {
                topic.remove();
            }
        }
        // Returns the memory of a burst of subscriptions.
        if topics.len() * 4 < topics.capacity() {
            let room = topics.len() * 2;
            topics.shrink_to(room);
        }
        part.watched.store(topics.len(), Ordering::SeqCst);
    }

    /// Calls `deliver` with the mailboxes of the topic. The lock is held meanwhile, so that nothing arrives after
    /// `unsubscribe`.
    fn deliver(&self, key: &K, deliver: impl FnOnce(&[Arc<Mailbox>])) {
        let part = self.part(key);
        if part.watched.load(Ordering::SeqCst) > 0
            && let Some(entry) = part.topics.lock().get(key)
        {
            deliver(&entry.mailboxes);
        }
    }

    fn activate(&self, key: &K, feed: Feed) {
        if let Some(entry) = self.part(key).topics.lock().get_mut(key) {
            let was_active = std::mem::replace(&mut entry.active, true);
            if was_active && feed == Feed::Restarted {
                entry.mailboxes.iter().for_each(|mailbox| mailbox.put_missed());
            }
        }
    }

    fn is_watched(&self, key: &K) -> bool {
        self.part(key).topics.lock().contains_key(key)
    }

    fn keys(&self) -> impl Iterator<Item = K> {
        self.parts.iter().flat_map(|part| part.topics.lock().keys().cloned().collect::<Vec<_>>())
    }
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Dispatcher {
    /// A dispatcher without subscriptions.
    pub fn new() -> Self {
        Self { users: TopicTable::new(), conversations: TopicTable::new() }
    }

    /// Delivers a publication to all subscriptions of the user.
    pub fn publish(&self, user: &UserId, published: &Published) {
        self.users.deliver(user, |mailboxes| {
            let change = Arc::new(PresenceChange { user: user.clone(), published: published.clone() });
            mailboxes.iter().for_each(|mailbox| mailbox.put_change(&change));
        });
    }

    /// Delivers a typing signal to all subscriptions of the conversation.
    pub fn publish_typing(&self, typing: PublishedTyping) {
        let typing = Arc::new(typing);
        self.conversations.deliver(&typing.conversation, |mailboxes| {
            mailboxes.iter().for_each(|mailbox| mailbox.put_typing(&typing));
        });
    }

    /// Records that the messages of a topic arrive. If the feed restarted, subscriptions that received it before get
    /// [`TopicUpdate::missed`](super::TopicUpdate::missed).
    pub fn activate(&self, topic: &Topic, feed: Feed) {
        match topic {
            Topic::User(user) => self.users.activate(user, feed),
            Topic::Conversation(conversation) => self.conversations.activate(conversation, feed),
        }
    }

    /// Whether the topic has a subscription.
    pub fn is_watched(&self, topic: &Topic) -> bool {
        match topic {
            Topic::User(user) => self.users.is_watched(user),
            Topic::Conversation(conversation) => self.conversations.is_watched(conversation),
        }
    }

    /// All topics that have a subscription.
    pub fn topics(&self) -> impl Iterator<Item = Topic> {
        self.users.keys().map(Topic::User).chain(self.conversations.keys().map(Topic::Conversation))
    }

    /// Adds a mailbox to a topic that it is not subscribed to.
    pub(super) fn subscribe(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::User(user) => self.users.subscribe(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.subscribe(conversation, mailbox),
        }
    }

    /// Removes a mailbox from a topic, and the topic's messages from the mailbox.
    pub(super) fn unsubscribe(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::User(user) => self.users.unsubscribe(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.unsubscribe(conversation, mailbox),
        }
        mailbox.forget(topic);
    }
}
