//! The embedded store: the suite, and what is specific to it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod suite;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rollcall_core::{
    Error, MAX_DEVICES, Moment, Next, OutageGrace, Published, Revision, Rules, Session, Span, Stance, State, Time,
    UserId, derive,
};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Shards};
use rollcall_store::memory::{Memory, Options};
use rollcall_store::{ChoiceStore, Clock, SavedSessions, SessionStore, StoreFuture, StoredChoice};

use suite::{
    ALIVE_FOR, Subject, beat, choice, commit, evict, load, publish, settle, touch, touch_one, touch_with, user,
    wait_for,
};

const START: Time = Time(1_700_000_000_000);

type Records = Arc<Mutex<HashMap<UserId, Vec<Published>>>>;

struct Embedded {
    store: Arc<Memory>,
    clock: Clock,
    records: Records,
}

impl Embedded {
    fn new() -> Self {
        Self::with(256)
    }

    fn with(shards: u32) -> Self {
        let clock = Clock::manual(START);
        let records = Records::default();
        let recorded = Arc::clone(&records);
        let hook = move |user: &UserId, published: &Published| {
            recorded.lock().entry(user.clone()).or_default().push(published.clone());
        };
        let options = Options { shards, clock: clock.clone(), on_publish: Some(Arc::new(hook)), choice_store: None };
        Self { store: Arc::new(Memory::new(options)), clock, records }
    }
}

impl Subject for Embedded {
    fn store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store) as Arc<dyn SessionStore>
    }
    fn advance(&self, span: Span) {
        self.clock.advance(span);
    }
    async fn published(&self, user: &UserId, _at_least: usize) -> Vec<Published> {
        self.records.lock().get(user).cloned().unwrap_or_default()
    }
}

suite!(Embedded::new());

/// All users under one lock.
mod in_one_shard {
    use super::*;

    suite!(Embedded::with(1));
}

#[tokio::test]
async fn dead_devices_are_dropped_first() {
    let subject = Embedded::new();
    for index in 0..MAX_DEVICES {
        touch_one(&*subject.store, beat("bob", &format!("d-{index}"))).await;
        subject.advance(Span(1));
    }
    touch_one(&*subject.store, touch_with("bob", "d-40", DeviceEvent::Logout)).await;
    touch_one(&*subject.store, beat("bob", "one-more")).await;
    let bob = load(&*subject.store, "bob").await;
    let has = |id: &str| bob.devices.iter().any(|device| device.id.as_str() == id);
    assert!(bob.devices.len() == MAX_DEVICES && has("d-0") && has("one-more") && !has("d-40"));
}

#[tokio::test]
async fn empty_commit_creates_no_session() {
    let subject = Embedded::new();
    let store = &*subject.store;
    assert_eq!(commit(store, "bob", Revision::default(), wait_for(Next::Nothing)).await, Committed::Applied);
    assert_eq!(store.sessions(), 0);
    assert_eq!(load(store, "bob").await, Session::default());
}

#[tokio::test]
async fn sessions_and_online_users_are_counted() {
    let subject = Embedded::new();
    let store = &*subject.store;
    let at = touch(store, (0..10).map(|index| beat(&format!("user-{index}"), "web-1")).collect()).await.now;
    assert_eq!((store.sessions(), store.online_count()), (10, 0));
    for (name, state) in [("user-1", State::Online), ("user-2", State::Busy), ("user-3", State::Offline)] {
        settle(store, name, publish(state, at)).await;
    }
    assert_eq!((store.sessions(), store.online_count()), (10, 2));
    settle(store, "user-1", publish(State::Offline, at + Span(1))).await;
    settle(store, "user-2", publish(State::Away, at + Span(1))).await;
    assert_eq!((store.sessions(), store.online_count()), (10, 1));
    let revision = load(store, "user-2").await.revision;
    evict(store, "user-2", revision).await;
    assert_eq!((store.sessions(), store.online_count()), (9, 0));
}

#[tokio::test]
async fn next_deadline_is_the_earliest() {
    let subject = Embedded::new();
    let store = &*subject.store;
    assert_eq!(store.next_deadline(), None);
    for (name, next) in [
        ("a", Next::Settle(START + Span(30))),
        ("b", Next::Settle(START + Span(10))),
        ("c", Next::Evict(START + Span(1))),
    ] {
        touch_one(store, beat(name, "web-1")).await;
        settle(store, name, wait_for(next)).await;
    }
    assert_eq!(store.next_deadline(), Some(START + Span(10)));
    let everywhere = Shards { first: 0, end: 256 };
    assert!(store.expired(everywhere, 10).is_empty());
    subject.advance(Span(10));
    assert_eq!(store.expired(everywhere, 10), [user("b")]);
    settle(store, "b", wait_for(Next::Nothing)).await;
    assert_eq!(store.next_deadline(), Some(START + Span(30)));
}

/// A run that ended, and the next one, two minutes later.
async fn restarted(outage_grace: Span) -> Embedded {
    let before = Embedded::new();
    let at = touch_one(&*before.store, beat("bob", "web-1")).await;
    settle(&*before.store, "bob", publish(State::Online, at)).await;
    touch_one(&*before.store, beat("old", "web-1")).await;
    touch_one(&*before.store, touch_with("old", "web-1", DeviceEvent::Dropped(Span(5)))).await;
    before.advance(Span(10));
    let saved = SavedSessions { at: Some(before.store.now()), sessions: before.store.export() };
    before.advance(Span::seconds(120));
    let options = Options { clock: before.clock.clone(), ..Options::default() };
    Embedded { store: Arc::new(Memory::restored(options, saved, outage_grace)), ..before }
}

#[tokio::test]
async fn restart_grants_outage_grace_to_live_devices() {
    let subject = restarted(ALIVE_FOR).await;
    let store = &*subject.store;
    let until = subject.clock.now() + ALIVE_FOR;
    let moment = store.load(&[]).unwrap().moment;
    assert_eq!(moment.outage_grace, Some(OutageGrace { since: START + Span(10), until }));
    let bob = load(store, "bob").await;
    assert_eq!(derive::state(&bob, &moment, &Rules::STANDARD), State::Online);
    assert_eq!(store.expired(Shards { first: 0, end: 256 }, 10), [user("old"), user("bob")], "both are settled");
    assert_eq!(derive::state(&load(store, "old").await, &moment, &Rules::STANDARD), State::Offline);
    subject.advance(ALIVE_FOR);
    let moment = store.load(&[]).unwrap().moment;
    assert_eq!(moment, Moment::at(until), "the outage grace is over");
    assert_eq!(derive::state(&bob, &moment, &Rules::STANDARD), State::Offline);
}

#[tokio::test]
async fn logout_ends_outage_grace() {
    let subject = restarted(ALIVE_FOR).await;
    touch_one(&*subject.store, touch_with("bob", "web-1", DeviceEvent::Logout)).await;
    let moment = subject.store.load(&[]).unwrap().moment;
    assert!(moment.outage_grace.is_some());
    assert_eq!(derive::state(&load(&*subject.store, "bob").await, &moment, &Rules::STANDARD), State::Offline);
}

#[tokio::test]
async fn exported_sessions_are_restored_unchanged() {
    let subject = Embedded::new();
    let at = touch(&*subject.store, vec![beat("bob", "web-1"), beat("bob", "web-2"), beat("eve", "x")]).await.now;
    let mut decision = publish(State::Busy, at);
    decision.choice = Some(choice(Stance::Busy, at));
    settle(&*subject.store, "bob", decision).await;
    let plain = |mut sessions: Vec<(UserId, Session)>| {
        sessions.iter_mut().for_each(|(_, session)| session.revision = Revision::default());
        sessions.sort_by(|(one, _), (other, _)| one.cmp(other));
        sessions
    };
    let expected = plain(subject.store.export());
    let saved = SavedSessions { at: Some(at), sessions: subject.store.export() };
    let options = Options { shards: 7, clock: subject.clock.clone(), ..Options::default() };
    let again = Memory::restored(options, saved, ALIVE_FOR);
    assert_eq!(plain(again.export()), expected);
    assert_eq!((again.sessions(), again.online_count()), (2, 1));
}

#[tokio::test]
async fn future_times_are_clamped_to_now() {
    let subject = Embedded::new();
    subject.advance(Span::seconds(86_400));
    let at = touch_one(&*subject.store, beat("bob", "web-1")).await;
    settle(&*subject.store, "bob", publish(State::Online, at)).await;
    let saved = SavedSessions { at: Some(at), sessions: subject.store.export() };
    // The next run's clock is a day behind.
    let clock = Clock::manual(START);
    let store = Memory::restored(Options { clock, ..Options::default() }, saved, ALIVE_FOR);
    let outage_grace = store.load(&[]).unwrap().moment.outage_grace;
    assert_eq!(outage_grace, Some(OutageGrace { since: START, until: START + ALIVE_FOR }));
    let bob = load(&store, "bob").await;
    assert_eq!((bob.devices[0].beat_at, bob.devices[0].expires_at), (START, START + ALIVE_FOR));
    assert_eq!(bob.published.unwrap().last_seen, Some(START));
    assert_eq!(bob.next, Next::Settle(START + ALIVE_FOR));
}

/// Records choices in the order of the calls, or fails.
#[derive(Default)]
struct FakeChoiceStore {
    stored: Mutex<Vec<StoredChoice>>,
    broken: bool,
}

impl ChoiceStore for FakeChoiceStore {
    fn store(&self, choice: StoredChoice) -> StoreFuture<'static, ()> {
        self.stored.lock().push(choice);
        let answer = if self.broken { Err(Error::Unavailable(9)) } else { Ok(()) };
        Box::pin(async move {
            tokio::task::yield_now().await;
            answer
        })
    }
}

fn with_choice_store(broken: bool) -> (Memory, Arc<FakeChoiceStore>) {
    let choices = Arc::new(FakeChoiceStore { broken, ..FakeChoiceStore::default() });
    let choice_store = Some(Arc::clone(&choices) as Arc<dyn ChoiceStore>);
    (Memory::new(Options { clock: Clock::manual(START), choice_store, ..Options::default() }), choices)
}

#[tokio::test]
async fn choices_are_stored_and_deleted_in_order() {
    let (store, choices) = with_choice_store(false);
    let choosing = |stance| {
        let mut decision = publish(State::Offline, START);
        decision.choice = Some(choice(stance, START));
        decision
    };
    settle(&store, "bob", choosing(Stance::Invisible)).await;
    settle(&store, "bob", publish(State::Offline, START)).await;
    settle(&store, "bob", choosing(Stance::Auto)).await;
    settle(&store, "eve", choosing(Stance::Busy)).await;
    let stale = commit(&store, "eve", Revision::default(), choosing(Stance::Away)).await;
    assert_eq!(stale, Committed::Stale);
    let revision = load(&store, "eve").await.revision;
    assert_eq!(evict(&store, "eve", revision).await, Committed::Applied);
    let stored = |name, stance: Option<Stance>, last_seen| StoredChoice {
        user: user(name),
        choice: stance.map(|s| choice(s, START)),
        last_seen,
    };
    let expected = [
        stored("bob", Some(Stance::Invisible), Some(START)),
        stored("bob", None, Some(START)),
        stored("eve", Some(Stance::Busy), Some(START)),
        stored("eve", None, None),
    ];
    assert_eq!(*choices.stored.lock(), expected);
}

#[tokio::test]
async fn unstored_choice_is_not_confirmed() {
    let (store, _choices) = with_choice_store(true);
    let mut decision = publish(State::Offline, START);
    decision.choice = Some(choice(Stance::Invisible, START));
    let commits = vec![
        Commit { user: user("bob"), expected: Revision::default(), decision },
        Commit { user: user("eve"), expected: Revision::default(), decision: publish(State::Online, START) },
    ];
    assert_eq!(store.commit_many(commits).await.unwrap(), [Err(Error::Unavailable(9)), Ok(Committed::Applied)]);
    assert_eq!(load(&store, "bob").await.choice, Some(choice(Stance::Invisible, START)), "still hidden");
}
