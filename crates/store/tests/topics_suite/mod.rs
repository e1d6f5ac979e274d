//! The suite of every store's topics: each claim is a function that takes new topics.
//!
//! The macro lists every claim once; an unlisted one is dead code, which the lints refuse.

pub(crate) mod typing;
pub(crate) mod watching;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use rollcall_core::settle::Decision;
use rollcall_core::{ConversationId, Next, Published, Span, State, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, TypingSignal};
use rollcall_store::{Clock, PublishedTyping, SessionStore, Topic, TopicStore, TopicSubscription};

/// Timeout of every wait in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const START: Time = Time(1_700_000_000_000);

/// New topics with the store that publishes to them, on a clock that the test moves.
pub(crate) struct Subject {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) topics: Arc<dyn TopicStore>,
    /// The same topics through another host.
    pub(crate) elsewhere: Arc<dyn TopicStore>,
    pub(crate) clock: Clock,
    /// How many connections are subscribed to a topic; `None` for a store without connections.
    pub(crate) subscribed: Option<Subscribed>,
}

pub(crate) type Subscribed = Box<dyn Fn(&Topic) -> usize + Send + Sync>;

/// Makes a test of every claim; `$subject` creates new topics for each.
#[macro_export]
macro_rules! topics_suite {
    ($subject:expr) => {
        $crate::topics_suite! { @list $subject;
            watching:
                commits_reach_all_watchers,
                watching_delivers_no_earlier_changes,
                slow_reader_gets_newest_change_per_user,
                unwatched_topics_are_silent,
                topics_stay_subscribed_until_last_unwatch,
                watching_twice_counts_once,
                abandoned_watch_leaves_no_subscription,
                thousands_of_topics_are_watched_and_unwatched,
                watch_and_unwatch_leave_exactly_the_watched,
                watcher_counts_add_up_and_expire,
                functions_receive_changes_one_by_one;
            typing:
                typing_start_is_published_and_expires,
                refresh_is_published_after_one_second,
                only_effective_stops_are_published,
                last_of_many_signals_is_published,
                conversations_and_users_are_kept_apart,
                typists_are_bounded,
                oversized_batches_are_refused;
        }
    };
    (@list $subject:expr; $($module:ident: $($claim:ident),+;)+) => {
        $(mod $module {
            #[allow(unused_imports, reason = "a factory may use anything of its module")]
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $claim() {
                    $crate::topics_suite::$module::$claim($subject).await;
                }
            )+
        })+
    };
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn person(name: &str) -> Topic {
    Topic::User(user(name))
}

pub(crate) fn conversation_id(name: &str) -> ConversationId {
    ConversationId::parse(name).unwrap()
}

pub(crate) fn conversation(name: &str) -> Topic {
    Topic::Conversation(conversation_id(name))
}

pub(crate) fn signal(conversation: &str, name: &str, lasts_ms: u64) -> TypingSignal {
    TypingSignal { conversation: conversation_id(conversation), user: user(name), lasts: Span(lasts_ms) }
}

/// Commits a publication of this version, as a function does.
pub(crate) async fn publish(store: &dyn SessionStore, name: &str, version: u64) {
    let published = Published { state: State::Online, note: None, since: Some(START), last_seen: Some(START), version };
    let next = Next::Settle(Time(START.0 * 2));
    let decision = Decision { publish: Some(published), choice: None, prune_expired_by: Time(0), next, lag: Span(0) };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let loaded = store.load_many(vec![user(name)]).await.unwrap().sessions.remove(0);
        // During a Cluster failover the call fails and is retried.
        if let Ok(session) = loaded {
            let commit = Commit { user: user(name), expected: session.revision, decision: decision.clone() };
            if store.commit_many(vec![commit]).await.unwrap().remove(0) == Ok(Committed::Applied) {
                return;
            }
        }
        assert!(Instant::now() < deadline, "cannot publish about {name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Subject {
    /// Sends one typing signal through a host.
    pub(crate) async fn set_typing(&self, host: &dyn TopicStore, signal: TypingSignal) {
        assert_eq!(host.set_typing(vec![signal]).await.unwrap(), [Ok(())]);
    }

    /// The typists of a conversation, each with the end in milliseconds after the start.
    pub(crate) async fn typists(&self, conversation: &str) -> Vec<(String, u64)> {
        let typists = self.elsewhere.typists(vec![conversation_id(conversation)]).await.unwrap().remove(0).unwrap();
        typists.into_iter().map(|typist| (typist.user.into_string(), (typist.until - START).0)).collect()
    }

    /// Waits until everything published so far has arrived.
    pub(crate) async fn settle(&self, subscription: &TopicSubscription) {
        self.clock.advance(Span(1));
        let now = self.clock.now();
        until("all publications to arrive", || subscription.received_until() >= now).await;
    }

    /// Waits until everything published so far has arrived, and asserts that it is nothing.
    pub(crate) async fn assert_silent(&self, subscription: &TopicSubscription) {
        self.settle(subscription).await;
        let update = subscription.next().now_or_never();
        assert!(update.is_none(), "{update:?}");
    }

    /// Waits until `wanted` connections are subscribed to this topic.
    pub(crate) async fn subscribed(&self, topic: &Topic, wanted: usize) {
        if let Some(subscribed) = &self.subscribed {
            until("the subscriptions of the server", || subscribed(topic) == wanted).await;
        }
    }
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Everything that a subscription received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) versions: HashMap<String, u64>,
    pub(crate) typing: Vec<Arc<PublishedTyping>>,
    pub(crate) missed: bool,
}

impl Received {
    /// Receives until this holds.
    pub(crate) async fn until(mut self, subscription: &TopicSubscription, holds: impl Fn(&Self) -> bool) -> Self {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(update) = tokio::time::timeout(left, subscription.next()).await else {
                panic!("timed out: {self:?}")
            };
            for change in update.changes {
                let before = self.versions.insert(change.user.as_str().to_owned(), change.published.version);
                assert!(
                    before.is_none_or(|before| before <= change.published.version),
                    "an older version after a newer one"
                );
            }
            self.typing.extend(update.typing);
            self.missed |= update.missed;
        }
        self
    }

    /// The typing updates in order: conversation, user, and end in milliseconds after the start.
    pub(crate) fn typing(&self) -> Vec<(&str, &str, Option<u64>)> {
        let typing = self.typing.iter();
        typing
            .map(|typing| {
                (typing.conversation.as_str(), typing.user.as_str(), typing.until.map(|until| (until - START).0))
            })
            .collect()
    }
}

/// Receives the next update; none may be missed.
pub(crate) async fn receive(subscription: &TopicSubscription) -> Received {
    let received = Received::default()
        .until(subscription, |received| !received.versions.is_empty() || !received.typing.is_empty())
        .await;
    assert!(!received.missed, "{received:?}");
    received
}
