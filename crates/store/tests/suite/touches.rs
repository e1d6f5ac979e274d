//! Touches: what a touch records, and what it returns.

use rollcall_core::derive::{last_seen, state};
use rollcall_core::heartbeat::PriorState;
use rollcall_core::{
    DeviceKind, Error, MAX_DEVICES, Moment, Next, Revision, Rules, Session, Span, Stance, State, Time,
};
use rollcall_functions::capabilities::{Commit, DeviceEvent, Eviction, MAX_BATCH};

use super::{
    ALIVE_FOR, Subject, all, beat, choice, due, idle_beat, load, now, publish, settle, touch, touch_one, touch_with,
    user, wait_for,
};

const NOTHING: PriorState = PriorState { state: State::Offline, version: 0, stance: Stance::Auto, stance_until: None };

pub(crate) async fn first_touch_creates_a_device(subject: impl Subject) {
    let store = subject.store();
    let touched = touch(&*store, vec![beat("bob", "web-1"), idle_beat("eve", "web-1")]).await;
    assert_eq!(touched.prior, [Ok(NOTHING), Ok(NOTHING)]);
    let bob = load(&*store, "bob").await;
    let [web] = bob.devices.as_slice() else { panic!("{bob:?}") };
    assert_eq!((web.id.as_str(), web.kind, web.beat_at), ("web-1", DeviceKind::Web, touched.now));
    assert_eq!((web.active_at, web.expires_at), (Some(touched.now), touched.now + ALIVE_FOR));
    assert_eq!((bob.choice, bob.published, bob.next), (None, None, Next::Settle(touched.now + ALIVE_FOR)));
    assert_eq!(load(&*store, "eve").await.devices[0].active_at, None, "never used, so idle from the start");
}

pub(crate) async fn touch_returns_the_previous_state(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    let mut decision = publish(State::Busy, at);
    decision.choice = Some(rollcall_core::Choice { until: Some(at + Span(500)), ..choice(Stance::Busy, at) });
    settle(&*store, "bob", decision).await;
    let prior = PriorState {
        state: State::Busy,
        version: at.0 * 1000,
        stance: Stance::Busy,
        stance_until: Some(at + Span(500)),
    };
    let touched = touch(&*store, vec![beat("bob", "web-1"), touch_with("bob", "web-1", DeviceEvent::Logout)]).await;
    assert_eq!(touched.prior, [Ok(prior), Ok(prior)]);
}

pub(crate) async fn beat_renews_the_device(subject: impl Subject) {
    let store = subject.store();
    touch_one(&*store, beat("bob", "web-1")).await;
    subject.advance(Span::seconds(30));
    let event = DeviceEvent::Beat { kind: DeviceKind::Mobile, active: true, alive_for: Span(700) };
    let at = touch_one(&*store, touch_with("bob", "web-1", event)).await;
    let bob = load(&*store, "bob").await;
    assert_eq!(bob.devices.len(), 1);
    let web = &bob.devices[0];
    assert_eq!((web.kind, web.beat_at, web.expires_at), (DeviceKind::Mobile, at, at + Span(700)));
    assert_eq!(web.active_at, Some(at));
}

pub(crate) async fn inactive_beat_keeps_last_use(subject: impl Subject) {
    let store = subject.store();
    let used = touch_one(&*store, beat("bob", "web-1")).await;
    subject.advance(Span::seconds(30));
    let at = touch_one(&*store, idle_beat("bob", "web-1")).await;
    let web = load(&*store, "bob").await.devices.remove(0);
    assert_eq!((web.beat_at, web.active_at), (at, Some(used)));
}

pub(crate) async fn drop_only_shortens_expiry_to_the_grace(subject: impl Subject) {
    let store = subject.store();
    let dropped = |on, grace| touch_with("bob", on, DeviceEvent::Dropped(grace));
    let at = touch(&*store, vec![beat("bob", "short"), beat("bob", "long")]).await.now;
    touch(&*store, vec![dropped("short", Span::seconds(30)), dropped("long", Span::seconds(100))]).await;
    let bob = load(&*store, "bob").await;
    let expiry = |id| bob.devices.iter().find(|device| device.id.as_str() == id).map(|device| device.expires_at);
    assert_eq!(expiry("short"), Some(at + Span::seconds(30)));
    assert_eq!(expiry("long"), Some(at + ALIVE_FOR));
    assert!(bob.devices.iter().all(|device| device.beat_at == at), "a dropped connection is not a beat");
}

pub(crate) async fn logout_expires_device_and_keeps_last_beat(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    subject.advance(Span(10));
    let left = touch_one(&*store, touch_with("bob", "web-1", DeviceEvent::Logout)).await;
    let bob = load(&*store, "bob").await;
    assert_eq!(state(&bob, &Moment::at(left), &Rules::STANDARD), State::Offline);
    assert_eq!(last_seen(&bob), Some(at));
}

pub(crate) async fn device_returning_after_logout_is_new(subject: impl Subject) {
    let store = subject.store();
    touch(
        &*store,
        vec![beat("bob", "web-1"), touch_with("bob", "web-1", DeviceEvent::Logout), idle_beat("bob", "web-1")],
    )
    .await;
    let bob = load(&*store, "bob").await;
    assert_eq!(bob.devices.len(), 1);
    assert_eq!(bob.devices[0].active_at, None, "the logout cleared its last use");
    assert_eq!(state(&bob, &Moment::at(now(&*store).await), &Rules::STANDARD), State::Away);
}

pub(crate) async fn departure_of_absent_user_creates_nothing(subject: impl Subject) {
    let store = subject.store();
    let departures =
        vec![touch_with("bob", "a", DeviceEvent::Logout), touch_with("bob", "b", DeviceEvent::Dropped(Span(5)))];
    assert_eq!(touch(&*store, departures).await.prior, [Ok(NOTHING), Ok(NOTHING)]);
    assert_eq!(load(&*store, "bob").await, Session::default());
}

pub(crate) async fn departure_of_unknown_device_changes_only_revision(subject: impl Subject) {
    let store = subject.store();
    touch_one(&*store, beat("bob", "web-1")).await;
    let before = load(&*store, "bob").await;
    for event in [DeviceEvent::Logout, DeviceEvent::Dropped(Span(5))] {
        touch_one(&*store, touch_with("bob", "web-2", event)).await;
    }
    let after = load(&*store, "bob").await;
    assert_ne!(after.revision, before.revision);
    assert_eq!(Session { revision: before.revision, ..after }, before);
}

pub(crate) async fn beat_makes_session_due_by_its_expiry(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    for (waited_for, then) in [
        (Next::Nothing, at + ALIVE_FOR),
        (Next::Evict(at + Span(10)), at + Span(10)),
        (Next::Evict(at + ALIVE_FOR + Span(1)), at + ALIVE_FOR),
        (Next::Settle(at + ALIVE_FOR + Span(1)), at + ALIVE_FOR),
    ] {
        settle(&*store, "bob", wait_for(waited_for)).await;
        touch_one(&*store, beat("bob", "web-1")).await;
        assert_eq!(load(&*store, "bob").await.next, Next::Settle(then), "waited for {waited_for:?}");
    }
    subject.advance(ALIVE_FOR);
    assert_eq!(due(&*store).await, [user("bob")], "an unpublished beat is due");
}

pub(crate) async fn touch_never_postpones_the_deadline(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settle(&*store, "bob", wait_for(Next::Settle(at + Span(10)))).await;
    subject.advance(Span(10));
    touch_one(&*store, beat("bob", "web-1")).await;
    touch_one(&*store, touch_with("bob", "web-1", DeviceEvent::Logout)).await;
    assert_eq!(load(&*store, "bob").await.next, Next::Settle(at + Span(10)));
    assert_eq!(due(&*store).await, [user("bob")]);
}

pub(crate) async fn device_limit_drops_the_oldest_beat(subject: impl Subject) {
    let store = subject.store();
    for index in 0..MAX_DEVICES {
        touch_one(&*store, beat("bob", &format!("d-{index}"))).await;
        subject.advance(Span(1));
    }
    touch_one(&*store, beat("bob", "d-0")).await;
    subject.advance(Span(1));
    assert_eq!(load(&*store, "bob").await.devices.len(), MAX_DEVICES);
    touch_one(&*store, beat("bob", "one-more")).await;
    let bob = load(&*store, "bob").await;
    let has = |id: &str| bob.devices.iter().any(|device| device.id.as_str() == id);
    assert_eq!(bob.devices.len(), MAX_DEVICES);
    assert!(has("one-more") && has("d-0") && has("d-2") && !has("d-1"), "d-1 had the oldest beat");
}

pub(crate) async fn touches_of_one_user_apply_in_order(subject: impl Subject) {
    let store = subject.store();
    let touches = vec![
        beat("bob", "web-1"),
        touch_with("bob", "web-1", DeviceEvent::Dropped(Span(1))),
        beat("bob", "web-2"),
        beat("bob", "web-1"),
        touch_with("bob", "web-2", DeviceEvent::Logout),
    ];
    let at = touch(&*store, touches).await.now;
    let bob = load(&*store, "bob").await;
    let alive: Vec<&str> =
        bob.devices.iter().filter(|device| device.expires_at > at).map(|device| device.id.as_str()).collect();
    assert_eq!(alive, ["web-1"]);
    assert_eq!(bob.devices.iter().map(|device| device.expires_at).max(), Some(at + ALIVE_FOR));
}

pub(crate) async fn full_batch_is_answered_in_order(subject: impl Subject) {
    let store = subject.store();
    let name = |index: usize| format!("user-{index}");
    touch(&*store, (0..MAX_BATCH).map(|index| beat(&name(index), "web-1")).collect()).await;
    let users: Vec<_> = (0..MAX_BATCH).map(|index| user(&name(index))).collect();
    let loaded = store.load_many(users.clone()).await.unwrap();
    let commits = users.iter().zip(loaded.sessions).enumerate().map(|(index, (user, session))| {
        let mut decision = publish(State::Online, loaded.moment.now);
        decision.publish.as_mut().unwrap().version = index as u64 + 1;
        Commit { user: user.clone(), expected: session.unwrap().revision, decision }
    });
    assert_eq!(store.commit_many(commits.collect()).await.unwrap().len(), MAX_BATCH);
    let touched = touch(&*store, (0..MAX_BATCH).map(|index| beat(&name(index), "web-1")).collect()).await;
    let versions: Vec<u64> = touched.prior.into_iter().map(|prior| prior.unwrap().version).collect();
    assert_eq!(versions, (1..=MAX_BATCH as u64).collect::<Vec<_>>());
}

pub(crate) async fn empty_batches_are_answered(subject: impl Subject) {
    let store = subject.store();
    assert!(touch(&*store, Vec::new()).await.prior.is_empty());
    assert!(store.load_many(Vec::new()).await.unwrap().sessions.is_empty());
    assert!(store.commit_many(Vec::new()).await.unwrap().is_empty());
    assert!(store.evict_many(Vec::new()).await.unwrap().is_empty());
    assert!(store.due(all(&*store), 10).await.unwrap().is_empty());
    assert!(store.evictable(all(&*store), 10).await.unwrap().is_empty());
}

pub(crate) async fn oversized_batches_are_refused(subject: impl Subject) {
    let store = subject.store();
    let many = MAX_BATCH + 1;
    let too_many = Error::TooMany(MAX_BATCH as u32);
    let expected = Revision::default();
    let decision = publish(State::Online, Time(1));
    assert_eq!(store.touch_many(vec![beat("bob", "web-1"); many].into_iter().collect()).await, Err(too_many.clone()));
    assert_eq!(store.load_many(vec![user("bob"); many]).await, Err(too_many.clone()));
    let commits = vec![Commit { user: user("bob"), expected, decision }; many];
    assert_eq!(store.commit_many(commits).await, Err(too_many.clone()));
    assert_eq!(store.evict_many(vec![Eviction { user: user("bob"), expected }; many]).await, Err(too_many));
    assert_eq!(load(&*store, "bob").await, Session::default());
    assert!(subject.published(&user("bob"), 0).await.is_empty());
}

pub(crate) async fn user_ids_are_compared_byte_for_byte(subject: impl Subject) {
    let store = subject.store();
    let long = "x".repeat(128);
    let names = ["bob", "Bob", "bob ", "bo", "b{o}b", "é", "e\u{301}", "a:b", "名前@例.jp", &long, &long[..127]];
    for name in names {
        let touches = vec![beat(name, name), beat(name, "web-1")];
        assert_eq!(touch(&*store, touches).await.prior[0], Ok(NOTHING), "{name}");
        settle(&*store, name, wait_for(Next::Settle(Time(1)))).await;
    }
    for name in names {
        let mut devices: Vec<_> = load(&*store, name).await.devices.into_iter().map(|d| d.id.into_string()).collect();
        devices.sort();
        let mut expected = vec![name.to_owned(), "web-1".to_owned()];
        expected.sort();
        assert_eq!(devices, expected);
    }
    let mut waiting = due(&*store).await;
    waiting.sort();
    let mut expected: Vec<_> = names.iter().map(|name| user(name)).collect();
    expected.sort();
    assert_eq!(waiting, expected);
}

pub(crate) async fn every_touch_changes_the_revision(subject: impl Subject) {
    let store = subject.store();
    let mut revisions = vec![Revision::default()];
    for event in [
        DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: ALIVE_FOR },
        DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: ALIVE_FOR },
        DeviceEvent::Dropped(Span(5)),
        DeviceEvent::Dropped(Span(5)),
        DeviceEvent::Logout,
        DeviceEvent::Logout,
    ] {
        touch_one(&*store, touch_with("bob", "web-1", event)).await;
        let revision = load(&*store, "bob").await.revision;
        assert!(!revisions.contains(&revision), "{event:?}");
        assert_eq!(load(&*store, "bob").await.revision, revision, "reading changes nothing");
        revisions.push(revision);
    }
}
