//! Publications about users and typing signals in conversations: the contract's `topics`, natively.
//!
//! A worker opens a [`TopicSubscription`], watches topics and takes [`TopicUpdate`]s. They are conflated: only the
//! newest record of each user and the newest signal of each typist wait. So a slow worker holds no more than what it
//! watches, and delays no other.
//!
//! Delivery is at most once, and losses are reported: [`TopicUpdate::missed`] means that everything must be read again, and
//! [`TopicSubscription::received_until`] is the instant up to which every loss has been reported.

pub mod debounce;
pub mod dispatcher;
mod mailbox;
mod native;
mod subscription;

use std::sync::Arc;

use rollcall_core::{ConversationId, Error, Span, Time, UserId};
use rollcall_functions::capabilities::{PresenceChange, TypingSignal, Typist};

use crate::StoreFuture;

pub use native::NativeChanges;
pub use subscription::TopicSubscription;

/// How long a worker's count of watchers is valid unless it is renewed: three times the ten seconds between two counts of
/// a worker.
pub const WATCHERS_TTL: Span = Span::seconds(30);

/// The most typists per conversation. More names could not be shown; the signals of further users are dropped without an
/// error.
pub const MAX_TYPISTS: usize = rollcall_core::typing::MAX_TYPISTS;

/// A topic that can be watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Publications about a user.
    User(UserId),
    /// Typing signals in a conversation.
    Conversation(ConversationId),
}

/// A published typing signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTyping {
    /// The conversation.
    pub conversation: ConversationId,
    /// The user.
    pub user: UserId,
    /// When the signal expires, unless it is renewed; `None` if the user stopped typing.
    pub until: Option<Time>,
}

/// What arrived since the last call, conflated.
#[derive(Debug, Default)]
pub struct TopicUpdate {
    /// The newest publication about each user, in no particular order.
    pub changes: Vec<Arc<PresenceChange>>,
    /// The newest signal of each typist in each conversation, in no particular order.
    pub typing: Vec<Arc<PublishedTyping>>,
    /// Messages may have been lost, and the topics arrive again: read everything again.
    pub missed: bool,
}

/// A store's topics: subscriptions, typing signals and watcher counts.
pub trait TopicStore: Send + Sync + 'static {
    /// Opens a subscription: one for each worker's hub, or for each watch of a component.
    fn subscription(&self) -> TopicSubscription;
    /// Stores and publishes typing signals, at most 1,024. Returns the outcome of each, in the order asked.
    fn set_typing(&self, signals: Vec<TypingSignal>) -> StoreFuture<'_, Vec<Result<(), Error>>>;
    /// The typists of each conversation, sorted by id, in the order asked. At most 1,024 conversations.
    fn typists(&self, conversations: Vec<ConversationId>) -> StoreFuture<'_, Vec<Result<Vec<Typist>, Error>>>;
    /// Stores how many watchers of each user `worker` has, for [`WATCHERS_TTL`]. Returns the sums over all workers, in the
    /// order asked.
    fn count_watchers(&self, worker: &str, counts: Vec<(UserId, u32)>) -> StoreFuture<'_, Vec<u64>>;
    /// The store's time.
    fn now(&self) -> Time;
}

/// How topics reach this process: what a [`TopicSubscription`] needs from the store behind it.
pub trait TopicSource: Send + Sync + 'static {
    /// Returns once everything published on these topics from now on arrives at the dispatcher. The caller has subscribed
    /// at the dispatcher already.
    fn subscribe(&self, topics: Vec<Topic>) -> StoreFuture<'_, ()>;
    /// A subscription no longer watches these topics; others may. Must not wait.
    fn release(&self, topics: Vec<Topic>);
    /// The instant before which everything published has arrived at the dispatcher.
    fn received_until(&self) -> Time;
}
