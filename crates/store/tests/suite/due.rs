//! Deadlines: which users are due, in which order, in which shards.

use rollcall_core::{Next, Span, Time};
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_store::{SessionStore, shard_of};

use super::{Random, Subject, all, beat, due, evictable, load, now, settle, touch, touch_one, user, wait_for};

/// Creates users with these deadlines.
async fn schedule(store: &dyn SessionStore, deadlines: &[(String, Next)]) {
    for some in deadlines.chunks(MAX_BATCH) {
        touch(store, some.iter().map(|(name, _)| beat(name, "web-1")).collect()).await;
        for (name, next) in some {
            settle(store, name, wait_for(*next)).await;
        }
    }
}

pub(crate) async fn user_is_due_from_the_deadline_on(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    assert!(due(&*store).await.is_empty(), "the beat has not expired");
    settle(&*store, "bob", wait_for(Next::Settle(at + Span(10)))).await;
    subject.advance(Span(9));
    assert!(due(&*store).await.is_empty());
    subject.advance(Span(1));
    assert_eq!(due(&*store).await, [user("bob")], "due from this instant on");
    subject.advance(Span::seconds(1000));
    assert_eq!(due(&*store).await, [user("bob")], "due until it is settled");
}

pub(crate) async fn earliest_deadlines_come_first(subject: impl Subject) {
    let store = subject.store();
    let start = now(&*store).await;
    let mut random = Random(7);
    let mut deadlines: Vec<(String, Next)> = Vec::new();
    for index in 0..600 {
        deadlines.push((format!("user-{index}"), Next::Settle(start + Span(random.below(1_000_000)))));
    }
    schedule(&*store, &deadlines).await;
    deadlines.sort_by_key(|(_, next)| match next {
        Next::Settle(at) => *at,
        _ => Time(0),
    });
    subject.advance(Span(500_000));
    let passed: Vec<_> = deadlines
        .iter()
        .filter(|(_, next)| matches!(next, Next::Settle(at) if *at <= start + Span(500_000)))
        .map(|(name, _)| user(name))
        .collect();
    assert!(passed.len() > 200, "about half of them");
    assert_eq!(due(&*store).await, passed);
    for limit in [1, 10, 199] {
        assert_eq!(store.due(all(&*store), limit).await.unwrap(), passed[..limit as usize], "limit {limit}");
    }
}

pub(crate) async fn due_query_changes_nothing(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", wait_for(Next::Settle(at))).await;
    let before = load(&*store, "bob").await;
    assert_eq!(due(&*store).await, due(&*store).await);
    assert_eq!(load(&*store, "bob").await, before);
}

pub(crate) async fn new_deadline_replaces_the_old(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", wait_for(Next::Settle(at + Span(10)))).await;
    settle(&*store, "bob", wait_for(Next::Settle(at + Span(20)))).await;
    subject.advance(Span(19));
    assert!(due(&*store).await.is_empty());
    settle(&*store, "bob", wait_for(Next::Settle(at + Span(5)))).await;
    assert_eq!(due(&*store).await, [user("bob")], "also a deadline in the past");
    settle(&*store, "bob", wait_for(Next::Nothing)).await;
    subject.advance(Span::seconds(1000));
    assert!(due(&*store).await.is_empty());
}

pub(crate) async fn due_and_evictable_are_separate(subject: impl Subject) {
    let store = subject.store();
    let at = now(&*store).await;
    let deadlines = [
        ("settle".to_owned(), Next::Settle(at)),
        ("later".to_owned(), Next::Evict(at + Span(1))),
        ("evict".to_owned(), Next::Evict(at)),
        ("nothing".to_owned(), Next::Nothing),
    ];
    schedule(&*store, &deadlines).await;
    assert_eq!(due(&*store).await, [user("settle")]);
    assert_eq!(evictable(&*store).await, [user("evict")]);
    subject.advance(Span(1));
    assert_eq!(evictable(&*store).await, [user("evict"), user("later")]);
    settle(&*store, "evict", wait_for(Next::Settle(at))).await;
    settle(&*store, "settle", wait_for(Next::Evict(at))).await;
    assert_eq!(due(&*store).await, [user("evict")]);
    assert_eq!(evictable(&*store).await, [user("settle"), user("later")]);
}

pub(crate) async fn shard_ranges_cover_every_user_once(subject: impl Subject) {
    let store = subject.store();
    let at = now(&*store).await;
    let deadlines: Vec<_> = (0..500)
        .map(|index| (format!("user-{index}"), if index % 2 == 0 { Next::Settle(at) } else { Next::Evict(at) }))
        .collect();
    schedule(&*store, &deadlines).await;
    let mut expected: Vec<_> = deadlines.iter().map(|(name, _)| user(name)).collect();
    expected.sort();
    for width in [1, 7, store.shards() / 2, store.shards()] {
        let mut found = Vec::new();
        for first in (0..store.shards()).step_by(width.max(1) as usize) {
            let shards = Shards { first, end: (first + width.max(1)).min(store.shards()) };
            let mut here = store.due(shards, 1000).await.unwrap();
            here.extend(store.evictable(shards, 1000).await.unwrap());
            for user in &here {
                let shard = shard_of(user.as_str(), store.shards());
                assert!((shards.first..shards.end).contains(&shard), "{user} is in {shard}, not in {shards:?}");
            }
            found.extend(here);
        }
        found.sort();
        assert_eq!(found, expected, "in ranges of {width}");
    }
}

pub(crate) async fn empty_ranges_and_limits_return_nothing(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", wait_for(Next::Settle(at))).await;
    let end = store.shards();
    assert!(store.due(all(&*store), 0).await.unwrap().is_empty());
    for shards in [Shards { first: 0, end: 0 }, Shards { first: end, end: 0 }, Shards { first: end, end: u32::MAX }] {
        assert!(store.due(shards, 10).await.unwrap().is_empty(), "{shards:?}");
        assert!(store.evictable(shards, 10).await.unwrap().is_empty(), "{shards:?}");
    }
    assert_eq!(store.due(Shards { first: 0, end: u32::MAX }, u32::MAX).await.unwrap(), [user("bob")]);
}
