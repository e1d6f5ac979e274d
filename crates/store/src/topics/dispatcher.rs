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
struct Interested {
    mailboxes: SmallVec<[Arc<Mailbox>; 2]>,
    /// It was heard before, since somebody is interested: if it has to be listened to anew, something may be lost.
    heard: bool,
}

/// Who is interested in what.
#[derive(Debug)]
pub struct Dispatcher {
    people: Register<UserId>,
    conversations: Register<ConversationId>,
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
struct Register<K> {
    parts: Box<[Part<K>]>,
    hasher: RandomState,
}

/// A cache line of its own, lest two parts' locks fight over one.
#[derive(Debug)]
#[repr(align(128))]
struct Part<K> {
    /// How many topics are watched; to be asked without the lock.
    watched: AtomicUsize,
    topics: Mutex<HashMap<K, Interested, RandomState>>,
}

impl<K: Eq + Hash + Clone> Register<K> {
    fn new() -> Self {
        let part = |_| Part { watched: AtomicUsize::new(0), topics: Mutex::default() };
        Self { parts: (0..PARTS).map(part).collect(), hasher: RandomState::default() }
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder is below what it was divided by")]
    fn part(&self, key: &K) -> &Part<K> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    fn enter(&self, key: &K, mailbox: &Arc<Mailbox>) {
        let part = self.part(key);
        let mut topics = part.topics.lock();
        topics.entry(key.clone()).or_default().mailboxes.push(Arc::clone(mailbox));
        part.watched.store(topics.len(), Ordering::SeqCst);
    }

    fn leave(&self, key: &K, mailbox: &Arc<Mailbox>) {
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
    fn tell(&self, key: &K, tell: impl FnOnce(&[Arc<Mailbox>])) {
        let part = self.part(key);
        if part.watched.load(Ordering::SeqCst) > 0
            && let Some(interested) = part.topics.lock().get(key)
        {
            tell(&interested.mailboxes);
        }
    }

    fn hear(&self, key: &K, feed: Feed) {
        if let Some(interested) = self.part(key).topics.lock().get_mut(key) {
            let heard_before = std::mem::replace(&mut interested.heard, true);
            if heard_before && feed == Feed::Restarted {
                interested.mailboxes.iter().for_each(|mailbox| mailbox.put_missed());
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
        Self { people: Register::new(), conversations: Register::new() }
    }

    /// Hands what is published about a person to everybody who watches them.
    pub fn publish(&self, user: &UserId, published: &Published) {
        self.people.tell(user, |interested| {
            let change = Arc::new(Change { user: user.clone(), published: published.clone() });
            interested.iter().for_each(|mailbox| mailbox.put_change(&change));
        });
    }

    /// Hands a sign of typing to everybody who watches the conversation.
    pub fn publish_typed(&self, typed: Typed) {
        let typed = Arc::new(typed);
        self.conversations.tell(&typed.conversation, |interested| {
            interested.iter().for_each(|mailbox| mailbox.put_typed(&typed));
        });
    }

    /// Notes that a topic is heard. If it is heard anew, everybody who heard it before is told that something may have
    /// been lost.
    pub fn hear(&self, topic: &Topic, feed: Feed) {
        match topic {
            Topic::Person(user) => self.people.hear(user, feed),
            Topic::Conversation(conversation) => self.conversations.hear(conversation, feed),
        }
    }

    /// Whether anybody watches this.
    pub fn is_watched(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Person(user) => self.people.is_watched(user),
            Topic::Conversation(conversation) => self.conversations.is_watched(conversation),
        }
    }

    /// Everything that anybody watches.
    pub fn topics(&self) -> impl Iterator<Item = Topic> {
        self.people.keys().map(Topic::Person).chain(self.conversations.keys().map(Topic::Conversation))
    }

    /// Makes somebody interested, who was not.
    pub(super) fn enter(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::Person(user) => self.people.enter(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.enter(conversation, mailbox),
        }
    }

    /// Somebody is interested no more.
    pub(super) fn leave(&self, topic: &Topic, mailbox: &Arc<Mailbox>) {
        match topic {
            Topic::Person(user) => self.people.leave(user, mailbox),
            Topic::Conversation(conversation) => self.conversations.leave(conversation, mailbox),
        }
        mailbox.forget(topic);
    }
}
