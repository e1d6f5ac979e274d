//! Commits: all or nothing, and only on the loaded revision.

use rollcall_core::{Next, Note, Revision, Session, Span, Stance, State};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent};

use super::{Subject, beat, choice, commit, load, now, publish, settle, touch, touch_one, touch_with, user, wait_for};

pub(crate) async fn absent_user_has_an_empty_session(subject: impl Subject) {
    let store = subject.store();
    assert_eq!(load(&*store, "absent").await, Session::default());
}

pub(crate) async fn commit_is_applied_completely(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    let before = load(&*store, "bob").await;
    let note = Note { text: "at lunch".to_owned(), emoji: "🍜".to_owned(), until: Some(at + Span(900)) };
    let mut decision = publish(State::Away, at);
    decision.choice = Some(rollcall_core::Choice {
        note: Some(note.clone()),
        until: Some(at + Span(900)),
        ..choice(Stance::Away, at)
    });
    let mut published = decision.publish.clone().unwrap();
    published.note = Some(note);
    published.since = None;
    decision.publish = Some(published.clone());
    assert_eq!(commit(&*store, "bob", before.revision, decision.clone()).await, Committed::Applied);
    let after = load(&*store, "bob").await;
    assert_eq!((&after.choice, &after.published), (&decision.choice, &Some(published.clone())));
    assert_eq!((after.next, &after.devices), (decision.next, &before.devices));
    assert_ne!(after.revision, before.revision);
    assert_eq!(subject.published(&user("bob"), 1).await, [published]);
}

pub(crate) async fn commit_keeps_unnamed_fields(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    let mut decision = publish(State::Busy, at);
    decision.choice = Some(choice(Stance::Busy, at));
    settle(&*store, "bob", decision).await;
    let before = load(&*store, "bob").await;
    settle(&*store, "bob", wait_for(Next::Evict(at + Span(9)))).await;
    let after = load(&*store, "bob").await;
    assert_ne!(after.revision, before.revision);
    assert_eq!(after.next, Next::Evict(at + Span(9)));
    assert_eq!(Session { revision: before.revision, next: before.next, ..after }, before);
    assert_eq!(subject.published(&user("bob"), 1).await.len(), 1, "nothing new was published");
}

pub(crate) async fn pruning_drops_exactly_the_expired_devices(subject: impl Subject) {
    let store = subject.store();
    let lasting = |on, ms| {
        let event = DeviceEvent::Beat { kind: rollcall_core::DeviceKind::Web, active: true, alive_for: Span(ms) };
        touch_with("bob", on, event)
    };
    let touches = vec![lasting("before", 99), lasting("then", 100), lasting("after", 101)];
    let at = touch(&*store, touches).await.now;
    settle(&*store, "bob", publish(State::Online, at)).await;
    assert_eq!(load(&*store, "bob").await.devices.len(), 3, "0 prunes none");
    let mut decision = publish(State::Online, at + Span(1));
    decision.prune_expired_by = at + Span(100);
    settle(&*store, "bob", decision).await;
    let left: Vec<_> = load(&*store, "bob").await.devices.into_iter().map(|device| device.id.into_string()).collect();
    assert_eq!(left, ["after"]);
}

pub(crate) async fn touch_after_load_makes_commit_stale(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    for between in [
        beat("bob", "web-1"),
        beat("bob", "web-2"),
        touch_with("bob", "web-1", DeviceEvent::Dropped(Span(5))),
        touch_with("bob", "web-1", DeviceEvent::Logout),
    ] {
        let revision = load(&*store, "bob").await.revision;
        touch_one(&*store, between).await;
        let before = load(&*store, "bob").await;
        let mut decision = publish(State::Offline, at);
        decision.choice = Some(choice(Stance::Busy, at));
        decision.prune_expired_by = at + Span::seconds(1000);
        assert_eq!(commit(&*store, "bob", revision, decision).await, Committed::Stale);
        assert_eq!(load(&*store, "bob").await, before, "nothing changed");
    }
    assert!(subject.published(&user("bob"), 0).await.is_empty());
}

pub(crate) async fn first_of_two_commits_wins(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    let revision = load(&*store, "bob").await.revision;
    assert_eq!(commit(&*store, "bob", revision, publish(State::Online, at)).await, Committed::Applied);
    assert_eq!(commit(&*store, "bob", revision, publish(State::Busy, at + Span(1))).await, Committed::Stale);
    // A commit without any change still changes the revision.
    let revision = load(&*store, "bob").await.revision;
    let next = load(&*store, "bob").await.next;
    assert_eq!(commit(&*store, "bob", revision, wait_for(next)).await, Committed::Applied);
    assert_eq!(commit(&*store, "bob", revision, wait_for(next)).await, Committed::Stale);
    assert_eq!(subject.published(&user("bob"), 1).await.len(), 1);
}

pub(crate) async fn commit_on_absence_is_stale_after_a_touch(subject: impl Subject) {
    let store = subject.store();
    let absent = load(&*store, "bob").await.revision;
    assert_eq!(absent, Revision::default());
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    assert_eq!(commit(&*store, "bob", absent, publish(State::Online, at)).await, Committed::Stale);
    let unknown = Revision { commits: 7, touches: 7 };
    assert_eq!(commit(&*store, "eve", unknown, publish(State::Online, at)).await, Committed::Stale);
    assert_eq!(load(&*store, "eve").await, Session::default());
}

pub(crate) async fn commits_of_a_batch_are_independent(subject: impl Subject) {
    let store = subject.store();
    let at = touch(&*store, vec![beat("a", "x"), beat("b", "x"), beat("c", "x")]).await.now;
    let mut commits = Vec::new();
    for (name, state) in [("a", State::Online), ("b", State::Online), ("a", State::Busy), ("c", State::Away)] {
        let expected = load(&*store, name).await.revision;
        commits.push(Commit { user: user(name), expected, decision: publish(state, at) });
    }
    touch_one(&*store, beat("b", "x")).await;
    let outcomes = store.commit_many(commits).await.unwrap();
    assert_eq!(outcomes, [Committed::Applied, Committed::Stale, Committed::Stale, Committed::Applied].map(Ok));
    assert_eq!(load(&*store, "a").await.published.map(|published| published.state), Some(State::Online));
    assert_eq!(load(&*store, "b").await.published, None);
    assert_eq!(load(&*store, "c").await.published.map(|published| published.state), Some(State::Away));
}

pub(crate) async fn choice_alone_creates_a_session(subject: impl Subject) {
    let store = subject.store();
    let at = now(&*store).await;
    let mut decision = wait_for(Next::Evict(at + Span(5)));
    decision.choice = Some(choice(Stance::Invisible, at));
    assert_eq!(commit(&*store, "bob", Revision::default(), decision.clone()).await, Committed::Applied);
    let bob = load(&*store, "bob").await;
    assert_eq!((bob.devices.len(), bob.published, bob.next), (0, None, decision.next));
    assert_eq!(bob.choice, decision.choice);
    assert_ne!(bob.revision, Revision::default());
    let prior = touch(&*store, vec![beat("bob", "web-1")]).await.prior.remove(0).unwrap();
    assert_eq!((prior.state, prior.version, prior.stance), (State::Offline, 0, Stance::Invisible));
    assert!(subject.published(&user("bob"), 0).await.is_empty());
}
