//! Many at once: whatever the order, each transition happens once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollcall_core::{DeviceKind, Rules, Span, State, settle};
use rollcall_functions::capabilities::{Committed, Shards};
use rollcall_functions::heartbeat::{Beat, Departure, Reason, beat_many, leave_many};
use rollcall_functions::sweep::sweep;
use rollcall_store::NativeSessions;
use tokio::task::JoinSet;

use super::{
    ALIVE_FOR, Random, Subject, beat, commit, device, load, publish, settle as settled, touch, touch_one, user,
};

/// No race here takes long; one that hangs must say so.
const PATIENCE: Duration = Duration::from_secs(60);

async fn join_all<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    let all = async {
        while let Some(result) = tasks.join_next().await {
            results.push(result.unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("a task hangs");
    results
}

pub(crate) async fn one_of_many_concurrent_commits_wins(subject: impl Subject) {
    let store = subject.store();
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    for round in 0..50 {
        let revision = load(&*store, "bob").await.revision;
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let store = subject.store();
            tasks
                .spawn(async move { commit(&*store, "bob", revision, publish(State::Online, at + Span(round))).await });
        }
        let applied = join_all(tasks).await.into_iter().filter(|ended| *ended == Committed::Applied).count();
        assert_eq!(applied, 1, "round {round}");
    }
    assert_eq!(subject.published(&user("bob"), 50).await.len(), 50);
}

pub(crate) async fn concurrent_touches_are_all_recorded(subject: impl Subject) {
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = subject.store();
        tasks.spawn(async move {
            for person in 0..100 {
                touch(&*store, vec![beat(&format!("user-{person}"), &format!("device-{task}"))]).await;
            }
        });
    }
    join_all(tasks).await;
    for person in 0..100 {
        assert_eq!(load(&*subject.store(), &format!("user-{person}")).await.devices.len(), 8);
    }
}

pub(crate) async fn late_beat_beats_the_sweep(subject: impl Subject) {
    let store = subject.store();
    let rules = Rules::STANDARD;
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settled(&*store, "bob", publish(State::Online, at)).await;
    subject.advance(ALIVE_FOR);
    // The sweep has read that the device is dead; before it says so, the device beats.
    let loaded = store.load_many(vec![user("bob")]).await.unwrap();
    let bob = loaded.sessions.into_iter().next().unwrap().unwrap();
    let offline = settle::settle(&bob, &loaded.moment, &rules).unwrap();
    assert_eq!(offline.publish.as_ref().map(|published| published.state), Some(State::Offline));
    touch_one(&*store, beat("bob", "web-1")).await;
    assert_eq!(commit(&*store, "bob", bob.revision, offline).await, Committed::Stale);
    assert_eq!(subject.published(&user("bob"), 1).await.len(), 1, "nobody heard of it");
}

/// Beats, departures and sweeps by the real functions, from many tasks, while the clock runs on. Afterwards the story
/// told about each person makes sense: versions rise, no line says the same as the one before, and the last is true.
pub(crate) async fn concurrent_calls_publish_each_transition_once(subject: impl Subject) {
    let subject = Arc::new(subject);
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for seed in 1..=6 {
        let (store, subject) = (NativeSessions(subject.store()), Arc::clone(&subject));
        tasks.spawn(async move {
            let mut random = Random(seed * 0x9e37_79b9);
            for _ in 0..300 {
                act(&store, &mut random).await;
                if random.below(10) == 0 {
                    subject.advance(Span(random.below(20_000)));
                }
            }
        });
    }
    let mut sweepers = JoinSet::new();
    for _ in 0..2 {
        let (store, done) = (NativeSessions(subject.store()), Arc::clone(&done));
        sweepers.spawn(async move {
            while !done.load(Ordering::SeqCst) {
                sweep_all(&store).await;
                tokio::task::yield_now().await;
            }
        });
    }
    join_all(tasks).await;
    done.store(true, Ordering::SeqCst);
    join_all(sweepers).await;
    let store = subject.store();
    sweep_all(&NativeSessions(Arc::clone(&store))).await;
    for person in PEOPLE {
        let bob = load(&*store, person).await;
        let record = bob.published.as_ref().map_or(0, |published| published.version);
        let story = subject.published(&user(person), 1).await;
        assert_eq!(story.last().map(|published| published.version), Some(record), "{person}");
        for pair in story.windows(2) {
            assert!(pair[0].version < pair[1].version, "{person}: {pair:?}");
            let same = pair[0].state == pair[1].state && pair[0].note == pair[1].note;
            assert!(!same || pair[0].last_seen < pair[1].last_seen, "{person} was published twice: {pair:?}");
        }
    }
}

async fn sweep_all(store: &NativeSessions) {
    let shards = Shards { first: 0, end: store.0.shards() };
    sweep(store, &Rules::STANDARD, shards, 100).await.unwrap();
}

const PEOPLE: [&str; 4] = ["ann", "bob", "cid", "dan"];

async fn act(store: &NativeSessions, random: &mut Random) {
    let user = user(PEOPLE[random.below(4) as usize]);
    let device = device(["web-1", "web-2"][random.below(2) as usize]);
    let rules = &Rules::STANDARD;
    let outcome = match random.below(5) {
        0 => leave_many(store, rules, vec![Ok(Departure { user, device, reason: Reason::Logout })]).await,
        1 => leave_many(store, rules, vec![Ok(Departure { user, device, reason: Reason::Dropped })]).await,
        _ => {
            let active = random.below(2) == 0;
            beat_many(store, rules, [Beat { user, device, kind: DeviceKind::Web, active }].into_iter().collect()).await
        }
    };
    outcome.unwrap().remove(0).unwrap();
}
