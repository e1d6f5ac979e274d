//! Evicting sessions, and what must not return with the next session of the user.

use rollcall_core::{Next, Revision, Session, Span, State};
use rollcall_functions::capabilities::{Committed, DeviceEvent, Eviction};

use super::{
    ALIVE_FOR, Subject, beat, commit, due, evict, evictable, load, now, publish, settle, touch_one, touch_with, user,
    wait_for,
};

pub(crate) async fn unchanged_session_is_evicted(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", publish(State::Online, at)).await;
    for next in [Next::Settle(at), Next::Evict(at)] {
        touch_one(&*store, beat("bob", "web-1")).await;
        settle(&*store, "bob", wait_for(next)).await;
        let revision = load(&*store, "bob").await.revision;
        assert_eq!(evict(&*store, "bob", revision).await, Committed::Applied);
        assert_eq!(load(&*store, "bob").await, Session::default());
        assert!(due(&*store).await.is_empty() && evictable(&*store).await.is_empty(), "{next:?}");
    }
}

pub(crate) async fn changed_session_is_not_evicted(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", wait_for(Next::Evict(at))).await;
    let touched = load(&*store, "bob").await.revision;
    touch_one(&*store, beat("bob", "web-1")).await;
    let before = load(&*store, "bob").await;
    assert_eq!(evict(&*store, "bob", touched).await, Committed::Stale);
    assert_eq!(load(&*store, "bob").await, before);
    settle(&*store, "bob", wait_for(Next::Evict(at))).await;
    assert_eq!(evict(&*store, "bob", before.revision).await, Committed::Stale);
    assert_eq!(evictable(&*store).await, [user("bob")]);
    // The same revision twice: the first evicts, the second is stale.
    let expected = load(&*store, "bob").await.revision;
    let twice = vec![Eviction { user: user("bob"), expected }; 2];
    assert_eq!(store.evict_many(twice).await.unwrap(), [Ok(Committed::Applied), Ok(Committed::Stale)]);
}

pub(crate) async fn evicting_an_absent_session_changes_nothing(subject: impl Subject) {
    let store = subject.store();
    assert_eq!(evict(&*store, "bob", Revision::default()).await, Committed::Applied);
    assert_eq!(evict(&*store, "bob", Revision { commits: 3, touches: 4 }).await, Committed::Stale);
    assert_eq!(load(&*store, "bob").await, Session::default());
}

pub(crate) async fn revision_never_repeats_after_eviction(subject: impl Subject) {
    let store = subject.store();
    let mut revisions: Vec<Revision> = Vec::new();
    for _ in 0..5 {
        // Each round takes the same steps.
        for _ in 0..3 {
            touch_one(&*store, beat("bob", "web-1")).await;
            revisions.push(load(&*store, "bob").await.revision);
        }
        settle(&*store, "bob", wait_for(Next::Nothing)).await;
        let revision = load(&*store, "bob").await.revision;
        for old in &revisions {
            assert_ne!(*old, revision);
            assert_eq!(commit(&*store, "bob", *old, wait_for(Next::Nothing)).await, Committed::Stale);
            assert_eq!(evict(&*store, "bob", *old).await, Committed::Stale);
        }
        assert_eq!(evict(&*store, "bob", revision).await, Committed::Applied);
        revisions.push(revision);
    }
}

/// Nothing of an evicted session is kept, and still a decision made before that session must not be published after it
/// with an older version.
pub(crate) async fn commit_on_absence_is_stale_after_an_eviction(subject: impl Subject) {
    let store = subject.store();
    let absent = load(&*store, "bob").await.revision;
    let decided = publish(State::Online, now(&*store).await);
    subject.advance(Span(3));
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", publish(State::Online, at)).await;
    touch_one(&*store, touch_with("bob", "web-1", DeviceEvent::Logout)).await;
    subject.advance(ALIVE_FOR);
    let revision = load(&*store, "bob").await.revision;
    assert_eq!(evict(&*store, "bob", revision).await, Committed::Applied);
    assert_eq!(commit(&*store, "bob", absent, decided).await, Committed::Stale);
    assert_eq!(load(&*store, "bob").await, Session::default());
    // A new decision on the same revision is applied.
    let fresh = publish(State::Online, now(&*store).await);
    assert_eq!(commit(&*store, "bob", absent, fresh).await, Committed::Applied);
    let versions: Vec<u64> =
        subject.published(&user("bob"), 2).await.iter().map(|published| published.version).collect();
    assert!(versions.is_sorted_by(|one, next| one < next) && versions.len() == 2, "{versions:?}");
}
