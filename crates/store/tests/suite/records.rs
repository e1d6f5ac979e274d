//! Records: what readers get, and until when it holds.

use std::time::{Duration, Instant};

use rollcall_core::settle::Decision;
use rollcall_core::{Ids, Next, Note, Published, Record, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::{DeviceEvent, MAX_BATCH};
use rollcall_store::SessionStore;

use super::{
    ALIVE_FOR, Subject, beat, choice, evict, load, publish, settle, touch, touch_one, touch_with, user, wait_for,
};

/// The record of one user, and whether it holds.
async fn read(store: &dyn SessionStore, name: &str) -> (Record, bool) {
    let mut read = store.read_many([user(name)].into()).await.unwrap();
    let record = read.records.remove(0).unwrap();
    let holds = record.holds(read.now);
    (record, holds)
}

async fn holds(store: &dyn SessionStore, name: &str) -> bool {
    read(store, name).await.1
}

/// Waits until the record no longer holds. In Redis a key expires by the server's own clock, which a test cannot move.
async fn until_it_ends(store: &dyn SessionStore, name: &str) {
    let began = Instant::now();
    while holds(store, name).await {
        assert!(began.elapsed() < Duration::from_secs(20), "the record of {name} still holds");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn noted(decision: Decision, text: &str) -> Decision {
    let note = Note { text: text.to_owned(), emoji: "☕".to_owned(), until: None };
    Decision { publish: decision.publish.map(|published| Published { note: Some(note), ..published }), ..decision }
}

/// Offline, with nothing pending.
fn gone(now: Time) -> Decision {
    Decision { next: Next::Evict(now + ALIVE_FOR), ..publish(State::Offline, now) }
}

pub(crate) async fn absent_user_has_no_record(subject: impl Subject) {
    let store = subject.store();
    assert_eq!(read(&*store, "bob").await, (Record::NOTHING, true));
    touch_one(&*store, beat("bob", "web")).await;
    assert!(!holds(&*store, "bob").await, "a beat that is not published yet");
    let revision = load(&*store, "bob").await.revision;
    evict(&*store, "bob", revision).await;
    assert_eq!(read(&*store, "bob").await, (Record::NOTHING, true));
}

pub(crate) async fn record_is_the_published_one(subject: impl Subject) {
    let store = subject.store();
    for state in [State::Online, State::Away, State::Busy, State::Offline] {
        for text in ["", "it's \"quoted\" {"] {
            let now = touch_one(&*store, beat("bob", "web")).await;
            let mut decision = if state == State::Offline { gone(now) } else { publish(state, now) };
            if !text.is_empty() {
                decision = noted(decision, text);
            }
            settle(&*store, "bob", decision.clone()).await;
            let (record, holds) = read(&*store, "bob").await;
            assert_eq!((Some(record.published), holds), (decision.publish, true));
        }
    }
}

pub(crate) async fn record_holds_until_the_deadline(subject: impl Subject) {
    let store = subject.store();
    let now = touch_one(&*store, beat("bob", "web")).await;
    settle(&*store, "bob", Decision { next: Next::Settle(now + Span(2_000)), ..publish(State::Online, now) }).await;
    touch_one(&*store, beat("bob", "web")).await;
    assert!(holds(&*store, "bob").await, "a beat changes nothing");
    subject.advance(Span(2_100));
    until_it_ends(&*store, "bob").await;
    let later = load(&*store, "bob").await.next;
    assert_eq!(later, Next::Settle(now + Span(2_000)), "reading changed nothing");
    let renewed = touch_one(&*store, beat("bob", "web")).await;
    settle(&*store, "bob", wait_for(Next::Settle(renewed + ALIVE_FOR))).await;
    let (record, holds) = read(&*store, "bob").await;
    assert_eq!((record.published.version, holds), (now.0 * 1000, true), "a commit without a record keeps the record");
}

pub(crate) async fn commit_without_record_keeps_the_note(subject: impl Subject) {
    let store = subject.store();
    let now = touch_one(&*store, beat("bob", "web")).await;
    let decision = noted(publish(State::Busy, now), "in a meeting");
    settle(&*store, "bob", decision.clone()).await;
    settle(&*store, "bob", wait_for(Next::Settle(now + ALIVE_FOR + ALIVE_FOR))).await;
    assert_eq!(Some(read(&*store, "bob").await.0.published), decision.publish);
    settle(&*store, "bob", publish(State::Busy, now + Span(1))).await;
    assert_eq!(read(&*store, "bob").await.0.published.note, None);
}

pub(crate) async fn departure_shortens_the_record(subject: impl Subject) {
    let store = subject.store();
    for (name, event) in [("out", DeviceEvent::Logout), ("cut", DeviceEvent::Dropped(Span(1_500)))] {
        let now = touch_one(&*store, beat(name, "web")).await;
        settle(&*store, name, publish(State::Online, now)).await;
        touch(&*store, vec![touch_with(name, "other", event)]).await;
        assert!(holds(&*store, name).await, "a device that does not exist");
        touch(&*store, vec![touch_with(name, "web", event)]).await;
    }
    assert!(!holds(&*store, "out").await);
    assert!(holds(&*store, "cut").await, "in its grace");
    subject.advance(Span(1_600));
    until_it_ends(&*store, "cut").await;
}

pub(crate) async fn offline_record_holds_without_beats(subject: impl Subject) {
    let store = subject.store();
    let now = touch_one(&*store, beat("bob", "web")).await;
    settle(&*store, "bob", gone(now)).await;
    assert!(holds(&*store, "bob").await);
    touch_one(&*store, beat("bob", "web")).await;
    assert!(!holds(&*store, "bob").await, "bob is back");
}

pub(crate) async fn invisible_record_holds_despite_beats(subject: impl Subject) {
    let store = subject.store();
    let now = touch_one(&*store, beat("bob", "web")).await;
    let invisible = Decision { choice: Some(choice(Stance::Invisible, now)), ..publish(State::Offline, now) };
    settle(&*store, "bob", Decision { next: Next::Settle(now + Span(2_000)), ..invisible }).await;
    touch_one(&*store, beat("bob", "web")).await;
    let (record, holds_now) = read(&*store, "bob").await;
    assert!(record.invisible && holds_now, "{record:?}");
    subject.advance(Span(2_100));
    assert!(!holds(&*store, "bob").await);
}

pub(crate) async fn records_come_in_the_order_asked(subject: impl Subject) {
    let store = subject.store();
    let names: Vec<String> = (0..MAX_BATCH).map(|index| format!("user-{index}")).collect();
    for (index, name) in names.iter().enumerate().filter(|(index, _)| index % 100 < 20) {
        let now = touch_one(&*store, beat(name, "web")).await;
        let decision = if index % 3 == 0 { gone(now) } else { publish(State::Online, now) };
        settle(&*store, name, Decision { publish: decision.publish.map(|p| versioned(p, index)), ..decision }).await;
    }
    let ids: Ids<UserId> = names.iter().map(|name| user(name)).collect();
    let records = store.read_many(ids.clone()).await.unwrap().records;
    assert_eq!(records.len(), MAX_BATCH);
    for (index, record) in records.into_iter().enumerate() {
        let version = if index % 100 < 20 { index as u64 + 1 } else { 0 };
        assert_eq!(record.unwrap().published.version, version);
    }
    assert!(store.read_many(Ids::from([])).await.unwrap().records.is_empty());
    let too_many = store.read_many(ids.iter().chain(["one-more"]).map(user).collect()).await;
    assert_eq!(too_many.unwrap_err(), rollcall_core::Error::TooMany(MAX_BATCH as u32));
}

fn versioned(published: Published, index: usize) -> Published {
    Published { version: index as u64 + 1, ..published }
}
