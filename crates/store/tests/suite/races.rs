//! Concurrent calls: in any order, each transition happens once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rollcall_core::{DeviceKind, Rules, Span, State, settle};
use rollcall_functions::capabilities::{Committed, Shards};
use rollcall_functions::heartbeat::{Beat, Departure, DepartureReason, beat_many, leave_many};
use rollcall_functions::sweep::sweep;
use rollcall_store::NativeSessions;
use tokio::task::JoinSet;

use super::{
    ALIVE_FOR, Random, Subject, beat, commit, device, load, publish, settle as settled, touch, touch_one, user,
};

/// Timeout of a race.
const PATIENCE: Duration = Duration::from_secs(60);

async fn join_all<T: 'static>(mut tasks: JoinSet<T>) -> Vec<T> {
    let mut results = Vec::new();
    let all = async {
        while let Some(result) = tasks.join_next().await {
            results.push(result.unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("a task did not finish in time");
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
            for index in 0..100 {
                touch(&*store, vec![beat(&format!("user-{index}"), &format!("device-{task}"))]).await;
            }
        });
    }
    join_all(tasks).await;
    for index in 0..100 {
        assert_eq!(load(&*subject.store(), &format!("user-{index}")).await.devices.len(), 8);
    }
}

pub(crate) async fn late_beat_beats_the_sweep(subject: impl Subject) {
    let store = subject.store();
    let rules = Rules::STANDARD;
    let at = touch_one(&*store, beat("bob", "web-1")).await;
    settled(&*store, "bob", publish(State::Online, at)).await;
    subject.advance(ALIVE_FOR);
    // The sweep has loaded the expired device; before it commits, the device beats.
    let loaded = store.load_many(vec![user("bob")]).await.unwrap();
    let bob = loaded.sessions.into_iter().next().unwrap().unwrap();
    let offline = settle::settle(&bob, &loaded.moment, &rules).unwrap();
    assert_eq!(offline.publish.as_ref().map(|published| published.state), Some(State::Offline));
    touch_one(&*store, beat("bob", "web-1")).await;
    assert_eq!(commit(&*store, "bob", bob.revision, offline).await, Committed::Stale);
    assert_eq!(subject.published(&user("bob"), 1).await.len(), 1, "nothing was published");
}

/// Many tasks run beats, departures and sweeps with the real functions while the clock advances. Afterwards the
/// publications of each user are consistent: versions rise, consecutive ones differ, and the last is the stored record.
pub(crate) async fn concurrent_calls_publish_each_transition_once(subject: impl Subject) {
    let subject = Arc::new(subject);
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for seed in 1..=6 {
        let (store, subject) = (NativeSessions(subject.store()), Arc::clone(&subject));
        tasks.spawn(async move {
            let mut random = Random(seed * 0x9e37_79b9);
            for _ in 0..300 {
                random_call(&store, &mut random).await;
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
    for name in USERS {
        let session = load(&*store, name).await;
        let record = session.published.as_ref().map_or(0, |published| published.version);
        let publications = subject.published(&user(name), 1).await;
        assert_eq!(publications.last().map(|published| published.version), Some(record), "{name}");
        for pair in publications.windows(2) {
            assert!(pair[0].version < pair[1].version, "{name}: {pair:?}");
            let same = pair[0].state == pair[1].state && pair[0].note == pair[1].note;
            assert!(!same || pair[0].last_seen < pair[1].last_seen, "{name} was published twice: {pair:?}");
        }
    }
}

async fn sweep_all(store: &NativeSessions) {
    let shards = Shards { first: 0, end: store.0.shards() };
    sweep(store, &Rules::STANDARD, shards, 100).await.unwrap();
}

const USERS: [&str; 4] = ["ann", "bob", "cid", "dan"];

async fn random_call(store: &NativeSessions, random: &mut Random) {
    let user = user(USERS[random.below(4) as usize]);
    let device = device(["web-1", "web-2"][random.below(2) as usize]);
    let rules = &Rules::STANDARD;
    let outcome = match random.below(5) {
        0 => leave_many(store, rules, vec![Ok(Departure { user, device, reason: DepartureReason::Logout })]).await,
        1 => leave_many(store, rules, vec![Ok(Departure { user, device, reason: DepartureReason::Dropped })]).await,
        _ => {
            let active = random.below(2) == 0;
            beat_many(store, rules, [Beat { user, device, kind: DeviceKind::Web, active }].into_iter().collect()).await
        }
    };
    outcome.unwrap().remove(0).unwrap();
}
