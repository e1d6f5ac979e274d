//! What changes, as it changes, and who types where: the contract's `topics`, natively.
//!
//! Whoever listens has a [`TopicSubscription`], says what it watches and takes the [`News`]. News are conflated where they wait: of a
//! person only the newest, of somebody who types only what is true last. So a listener that is slow, or asks late, holds
//! no more than what it watches, and nobody else waits for it.
//!
//! Delivery is at most once. What was lost on the way is owned up to: [`News::missed`] says that everything must be
//! read anew, and [`TopicSubscription::received_until`] up to when nothing can have been lost unnoticed.

pub mod debounce;
pub mod dispatcher;
mod mailbox;
mod native;
mod subscription;

use std::sync::Arc;

use rollcall_core::{ConversationId, Error, Span, Time, UserId};
use rollcall_functions::capabilities::{Change, TypingSignal, Typist};

use crate::Answer;

pub use native::NativeChanges;
pub use subscription::TopicSubscription;

/// How long a station's count of watchers is kept unless it is said again: three times as long as it takes a host to
/// say it, if it does so every ten seconds.
pub const WATCHERS_TTL: Span = Span::seconds(30);

/// The most people whose typing is kept per conversation. Where more type at once nobody could read who does: the
/// signs of those beyond are dropped, without an error.
pub const MAX_TYPISTS: usize = rollcall_core::typing::MAX_TYPISTS;

/// Something that can be watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// What is published about a person.
    Person(UserId),
    /// Who types in a conversation.
    Conversation(ConversationId),
}

/// Somebody began, goes on or stopped typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// Where.
    pub conversation: ConversationId,
    /// Who.
    pub user: UserId,
    /// Until when, unless they go on; none: they stopped.
    pub until: Option<Time>,
}

/// What came since the last time, conflated.
#[derive(Debug, Default)]
pub struct News {
    /// The newest publication about each person, in no particular order.
    pub changes: Vec<Arc<Change>>,
    /// The newest sign of each typist in each conversation, in no particular order.
    pub typed: Vec<Arc<Typed>>,
    /// Messages may have been lost, and listening works again: read everything anew.
    pub missed: bool,
}

/// Where what changes can be watched, and signs of typing are left.
pub trait Topics: Send + Sync + 'static {
    /// A listener of its own: one for each worker's hub, or for each watch of a component.
    fn subscription(&self) -> TopicSubscription;
    /// Leaves signs of typing, or takes them away; how each ended, in the order asked. At most 1,024.
    fn set_typing(&self, signals: Vec<TypingSignal>) -> Answer<'_, Vec<Result<(), Error>>>;
    /// Who types in each conversation, by name, in the order asked. At most 1,024.
    fn typists(&self, conversations: Vec<ConversationId>) -> Answer<'_, Vec<Result<Vec<Typist>, Error>>>;
    /// Says how many local watchers `station` has of each person, which is kept for [`WATCHERS_TTL`]; answers how many
    /// all stations have together, in the order asked.
    fn count_watchers(&self, worker: &str, counts: Vec<(UserId, u32)>) -> Answer<'_, Vec<u64>>;
    /// The store's time.
    fn now(&self) -> Time;
}

/// How topics reach this process: what a [`TopicSubscription`] asks of the store behind it.
pub trait TopicSource: Send + Sync + 'static {
    /// Answers once everything published on these from now on arrives at the dispatcher. Whoever asks is interested
    /// already.
    fn listen(&self, topics: Vec<Topic>) -> Answer<'_, ()>;
    /// Is told that these lost somebody interested, perhaps the last. It must not wait.
    fn release(&self, topics: Vec<Topic>);
    /// Everything published before this has arrived at the dispatcher.
    fn received_until(&self) -> Time;
}
