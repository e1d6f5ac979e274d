//! Who is interested in what: from a topic to the mailboxes of those who watch it.
//!
//! A publication comes while somebody holds the lock of a person's session, so it must be quick: where nobody watches
//! anybody of a part it costs one look at a number, else one lock of that part and one of each mailbox.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rollcall_core::{ConversationId, Published, UserId};
use rollcall_functions::capabilities::Change;
use smallvec::SmallVec;

use super::mailbox::Mailbox;
use super::{Topic, Typed};

/// Parts with a lock each: several times as many as there are cores.
const PARTS: usize = 64;

/// Those interested in one topic: as many as there are workers that watch it.
#[derive(Debug, Default)]
struct TopicEntry {
    mailboxes: SmallVec<[Arc<Mailbox>; 2]>,
    /// It was heard before, since somebody is interested: if it has to be listened to anew, something may be lost.
    active: bool,
}

/// Who is interested in what.
#[derive(Debug)]
pub struct Dispatcher {
    users: TopicTable<UserId>,
    conversations: TopicTable<ConversationId>,
}

/// How a topic comes to be heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// It was all the time.
    Kept,
    /// From now on.
    Restarted,
}

/// Who is interested in one sort of topic.
#[derive(Debug)]
struct TopicTable<K> {
    parts: Box<[Part<K>]>,
    hasher: RandomState,
}

/// A cache line of its own, lest two parts' locks fight over one.
#[derive(Debug)]
#[repr(align(128))]
struct Part<K> {
    /// How many topics are watched; to be asked without the lock.
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
        // What a burst of watching took is given back.
        if topics.len() * 4 < topics.capacity() {
            let room = topics.len() * 2;
            topics.shrink_to(room);
        }
        part.watched.store(topics.len(), Ordering::SeqCst);
    }

    /// Does something for everybody interested in this. The lock is held meanwhile, so that whoever left hears nothing
    /// afterwards.
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

impl Dispatcher {
    /// Without topics.
    pub fn new() -> Self {
        Self { users: TopicTable::new(), conversations: TopicTable::new() }
    }

    /// Hands what is published about a person to everybody who watches them.
    pub fn publish(&self, user: &UserId, published: &Published) {
        self.users.deliver(user, |mailboxes| {
            let change = Arc::new(Change { user: user.clone(), published: published.clone() });
            mailboxes.iter().for_each(|mailbox| mailbox.put_change(&change));
        });
    }

    /// Hands a sign of typing to everybody who watches the conversation.
    pub fn publish_typed(&self, typed: Typed) {
        let typed = Arc::new(typed);
        self.conversations.deliver(&typed.conversation, |mailboxes| {
            mailboxes.iter().for_each(|mailbox| mailbox.put_typed(&typed));
        });
    }

    /// Notes that a topic is heard. If it is heard anew, everybody who heard it before is told that something may have
    /// been lost.
    pub fn hear(&self, topic: &Topic, feed: Feed) {
        match topic {
            Topic::Person(user) => self.users.activate(user, feed),
            Topic::Conversation(conversation) => self.conversations.activate(conversation, feed),
        }
    }

    /// Whether anybody watches this.
    pub fn is_watched(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Person(user) => self.users.is_watched(user),
            Topic::Conversation(conversation) => self.conversations.is_watched(conversation),
        }
    }

    /// Everything that anybody watches.
    pub fn topics(&self) -> impl Iterator<Item = Topic> {
        self.users.keys().map(Topic::Person).chain(self.conversations.keys().map(Topic::Conversation))
    }

    /// Makes somebody interested, who was not.
    pub(super) fn subscribe(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::Person(user) => self.users.subscribe(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.subscribe(conversation, mailbox),
        }
    }

    /// Somebody is interested no more.
    pub(super) fn unsubscribe(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::Person(user) => self.users.unsubscribe(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.unsubscribe(conversation, mailbox),
        }
        mailbox.forget(topic);
    }
}
