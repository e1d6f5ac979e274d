//! Watching: what arrives at which subscription, and what the server has to keep.

use futures::FutureExt;
use rollcall_core::Span;
use rollcall_functions::capabilities::{PresenceChanges, Watching};
use rollcall_store::{NativeTopics, WATCHERS_TTL};

use super::{Received, Subject, person, publish, receive, user};

pub(crate) async fn commits_reach_all_watchers(subject: Subject) {
    let (here, there) = (subject.topics.subscription(), subject.elsewhere.subscription());
    for subscription in [&here, &there] {
        subscription.watch(&[person("bob")]).await.unwrap();
    }
    for version in 1..=3 {
        publish(&*subject.store, "bob", version).await;
        for subscription in [&here, &there] {
            assert_eq!(receive(subscription).await.versions["bob"], version);
        }
    }
}

pub(crate) async fn watching_delivers_no_earlier_changes(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[person("eve")]).await.unwrap();
    publish(&*subject.store, "bob", 1).await;
    subscription.watch(&[person("bob")]).await.unwrap();
    subject.assert_silent(&subscription).await;
    publish(&*subject.store, "bob", 2).await;
    assert_eq!(receive(&subscription).await.versions["bob"], 2);
}

pub(crate) async fn slow_reader_gets_newest_change_per_user(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&["ann", "bob", "cid"].map(person)).await.unwrap();
    for version in 1..=20 {
        publish(&*subject.store, "ann", version).await;
        publish(&*subject.store, "bob", version * 2).await;
    }
    subject.settle(&subscription).await;
    let update = subscription.next().await;
    let mut versions: Vec<_> =
        update.changes.iter().map(|change| (change.user.as_str(), change.published.version)).collect();
    versions.sort_unstable();
    assert_eq!((versions, update.missed), (vec![("ann", 20), ("bob", 40)], false));
    assert!(subscription.next().now_or_never().is_none());
}

pub(crate) async fn unwatched_topics_are_silent(subject: Subject) {
    let (subscription, other) = (subject.topics.subscription(), subject.topics.subscription());
    subscription.watch(&["bob", "eve"].map(person)).await.unwrap();
    other.watch(&[person("bob")]).await.unwrap();
    publish(&*subject.store, "bob", 1).await;
    subject.settle(&subscription).await;
    subscription.unwatch(&["bob", "absent"].map(person));
    subject.assert_silent(&subscription).await;
    publish(&*subject.store, "bob", 2).await;
    subject.assert_silent(&subscription).await;
    assert_eq!(receive(&other).await.versions["bob"], 2, "other subscriptions continue");
    publish(&*subject.store, "eve", 1).await;
    assert_eq!(receive(&subscription).await.versions.len(), 1);
}

pub(crate) async fn topics_stay_subscribed_until_last_unwatch(subject: Subject) {
    let (one, other) = (subject.topics.subscription(), subject.topics.subscription());
    for subscription in [&one, &other] {
        subscription.watch(&["bob", "eve"].map(person)).await.unwrap();
    }
    subject.subscribed(&person("bob"), 1).await;
    drop(one);
    other.unwatch(&[person("eve")]);
    subject.subscribed(&person("eve"), 0).await;
    publish(&*subject.store, "bob", 1).await;
    assert_eq!(receive(&other).await.versions["bob"], 1);
    subject.subscribed(&person("bob"), 1).await;
    drop(other);
    subject.subscribed(&person("bob"), 0).await;
    let again = subject.topics.subscription();
    again.watch(&[person("bob")]).await.unwrap();
    publish(&*subject.store, "bob", 2).await;
    assert_eq!(receive(&again).await.versions["bob"], 2);
}

pub(crate) async fn watching_twice_counts_once(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&["bob", "bob"].map(person)).await.unwrap();
    subscription.watch(&[person("bob")]).await.unwrap();
    subscription.watch(&[]).await.unwrap();
    publish(&*subject.store, "bob", 1).await;
    assert_eq!(receive(&subscription).await.versions["bob"], 1);
    subject.assert_silent(&subscription).await;
    subscription.unwatch(&[person("bob")]);
    subject.subscribed(&person("bob"), 0).await;
    publish(&*subject.store, "bob", 2).await;
    subject.assert_silent(&subscription).await;
}

pub(crate) async fn abandoned_watch_leaves_no_subscription(subject: Subject) {
    let subscription = subject.topics.subscription();
    subscription.watch(&[person("eve")]).await.unwrap();
    for _ in 0..100 {
        // Polled once and dropped. It may be ready at once if bob is still subscribed; then it watches.
        if subscription.watch(&["bob", "eve"].map(person)).now_or_never().is_some() {
            subscription.unwatch(&[person("bob")]);
        }
    }
    subject.subscribed(&person("bob"), 0).await;
    publish(&*subject.store, "bob", 1).await;
    subject.assert_silent(&subscription).await;
    publish(&*subject.store, "eve", 1).await;
    assert_eq!(receive(&subscription).await.versions["eve"], 1, "earlier topics are still watched");
}

pub(crate) async fn thousands_of_topics_are_watched_and_unwatched(subject: Subject) {
    let subscription = subject.topics.subscription();
    let names: Vec<String> = (0..3000).map(|index| format!("user-{index}")).collect();
    let topics: Vec<_> = names.iter().map(|name| person(name)).collect();
    subscription.watch(&topics).await.unwrap();
    let some: Vec<&String> = names.iter().step_by(100).collect();
    for name in &some {
        publish(&*subject.store, name, 1).await;
    }
    let received = Received::default().until(&subscription, |received| received.versions.len() == some.len()).await;
    assert!(!received.missed && some.iter().all(|name| received.versions.contains_key(*name)));
    subscription.unwatch(&topics);
    for topic in topics.iter().step_by(300) {
        subject.subscribed(topic, 0).await;
    }
}

pub(crate) async fn watch_and_unwatch_leave_exactly_the_watched(subject: Subject) {
    let subscription = subject.topics.subscription();
    let names: Vec<String> = (0..20).map(|index| format!("user-{index}")).collect();
    for round in 0..50 {
        let watched: Vec<_> = names.iter().skip(round % 7).step_by(2).map(|name| person(name)).collect();
        let unwatched: Vec<_> = names.iter().skip(round % 5).step_by(3).map(|name| person(name)).collect();
        subscription.unwatch(&unwatched);
        subscription.watch(&watched).await.unwrap();
    }
    subscription.unwatch(&names.iter().step_by(2).map(|name| person(name)).collect::<Vec<_>>());
    subscription.watch(&[person("user-0"), person("user-1")]).await.unwrap();
    let kept = ["user-0", "user-1"];
    subscription.unwatch(
        &names.iter().filter(|name| !kept.contains(&name.as_str())).map(|name| person(name)).collect::<Vec<_>>(),
    );
    for name in &names {
        subject.subscribed(&person(name), usize::from(kept.contains(&name.as_str()))).await;
        publish(&*subject.store, name, 1).await;
    }
    let received = Received::default().until(&subscription, |received| received.versions.len() == 2).await;
    assert!(kept.iter().all(|name| received.versions.contains_key(*name)), "{received:?}");
    subject.assert_silent(&subscription).await;
}

pub(crate) async fn watcher_counts_add_up_and_expire(subject: Subject) {
    let count = async |host: &str, counts: &[(&str, u32)]| {
        let counts = counts.iter().map(|(name, count)| (user(name), *count)).collect();
        subject.elsewhere.count_watchers(host, counts).await.unwrap()
    };
    assert_eq!(count("one", &[("bob", 7), ("eve", 2), ("ann", 0)]).await, [7, 2, 0]);
    assert_eq!(count("two", &[("eve", 40), ("bob", 5)]).await, [42, 12], "in request order");
    assert_eq!(count("one", &[("bob", 8)]).await, [13], "a host's new count replaces its old one");
    subject.clock.advance(Span(WATCHERS_TTL.0 / 2));
    assert_eq!(count("one", &[("bob", 8)]).await, [13]);
    subject.clock.advance(Span(WATCHERS_TTL.0 / 2));
    assert_eq!(count("three", &[("bob", 1), ("eve", 1)]).await, [9, 1], "the counts of the second host expired");
    assert_eq!(count("one", &[("bob", 0)]).await, [1]);
    assert_eq!(count("three", &[("bob", 0)]).await, [0]);
    assert_eq!(count("three", &[]).await, [] as [u64; 0]);
}

pub(crate) async fn functions_receive_changes_one_by_one(subject: Subject) {
    let native = NativeTopics(subject.topics.clone());
    let mut changes = native.watch(vec![user("bob"), user("eve")]).await.unwrap();
    for (name, version) in [("bob", 1), ("eve", 2), ("bob", 3)] {
        publish(&*subject.store, name, version).await;
        let next = tokio::time::timeout(super::PATIENCE, changes.next()).await.unwrap().unwrap();
        assert_eq!((next.user.as_str(), next.published.version), (name, version));
    }
    assert_eq!(changes.end().await, Ok(()));
    let crowd = (0..1025).map(|index| user(&format!("user-{index}"))).collect();
    assert!(native.watch(crowd).await.is_err());
}
