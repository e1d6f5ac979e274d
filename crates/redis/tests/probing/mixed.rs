//! Functions on other platforms and native hosts share one Redis.

use std::sync::Arc;
use std::time::Duration;

use rollcall_core::{Next, Revision, Rules, Span, State, Time};
use rollcall_functions::capabilities::{Commit, Committed, Sessions};
use rollcall_functions::sweep::sweep;
use rollcall_redis::native::{NativeRedis, Options};
use rollcall_store::{NativeSessions, SessionStore, Topic, TopicStore};
use tokio::task::JoinSet;

use crate::connection::platform;
use crate::suite::{publish, user, wait_for};
use crate::time_probe::{EVERYWHERE, ago, beat_once, load, outage_grace, recorded, start};
use crate::topics_suite::until;

/// Times so short that a test can wait for them.
const QUICK: Rules = Rules { interval: Span(100), tolerance: Span(50), ..Rules::STANDARD };

#[tokio::test(flavor = "multi_thread")]
async fn beats_are_shared_and_versions_rise() {
    let server = start();
    let platform = platform(&server.url());
    let host = Arc::new(NativeRedis::open(&server.url(), Options::default()).await.unwrap());
    let native = NativeSessions(Arc::clone(&host) as Arc<dyn SessionStore>);
    let subscription = host.subscription();
    subscription.watch(&[Topic::User(user("bob"))]).await.unwrap();
    let mut versions = Vec::new();
    for turn in 0..3 {
        // One brings bob online, the other declares him offline.
        match turn % 2 {
            0 => beat_once(&platform, &QUICK).await,
            _ => beat_once(&native, &QUICK).await,
        }
        let (here, there) = (load(&platform).await, host.load_many(vec![user("bob")]).await.unwrap());
        assert_eq!(here.sessions, there.sessions);
        assert!(Span::seconds(1) > (there.moment.now - here.moment.now), "they agree on the time");
        let online = here.sessions[0].as_ref().unwrap().published.clone().unwrap();
        assert_eq!(online.state, State::Online);
        let update = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
        assert_eq!((update.changes.len(), &update.changes[0].published), (1, &online));
        let read = platform.read_published(&[user("bob"), user("unknown")]).await.unwrap();
        assert_eq!(read, [Ok(Some(online.clone())), Ok(None)]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let swept = match turn % 2 {
            0 => sweep(&native, &QUICK, EVERYWHERE, 10).await.unwrap(),
            _ => sweep(&platform, &QUICK, EVERYWHERE, 10).await.unwrap(),
        };
        assert_eq!(swept.published, 1);
        let update = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await.unwrap();
        assert_eq!(update.changes[0].published.state, State::Offline);
        versions.extend([online.version, update.changes[0].published.version]);
    }
    assert!(versions.is_sorted_by(|one, other| one < other), "{versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_grace_is_shared() {
    let server = start();
    let host = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    server.ask(&["SET", "rc:{0}:probed", &ago(&server, Span(70_000)).0.to_string()]).unwrap();
    let outage_grace = outage_grace(&platform(&server.url())).await;
    assert!(outage_grace.is_some());
    until("the host to read it", || host.outage_grace() == outage_grace).await;
    assert_eq!(recorded(&server), outage_grace);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_commits_on_a_revision_applies() {
    let server = start();
    let host = Arc::new(NativeRedis::open(&server.url(), Options::default()).await.unwrap());
    let commit = |name: &str, revision: Revision| Commit {
        user: user(name),
        expected: revision,
        decision: publish(State::Online, Time(1_700_000_000_000)),
    };
    for round in 0..20 {
        let name = format!("user-{round}");
        let mut tasks: JoinSet<Committed> = JoinSet::new();
        for _ in 0..3 {
            let (commits, host) = (vec![commit(&name, Revision::default())], Arc::clone(&host));
            tasks.spawn(async move { host.commit_many(commits).await.unwrap().remove(0).unwrap() });
            let (commits, platform) = (vec![commit(&name, Revision::default())], platform(&server.url()));
            tasks.spawn(async move { platform.commit_many(commits).await.unwrap().remove(0).unwrap() });
        }
        let applied = tasks.join_all().await.into_iter().filter(|outcome| *outcome == Committed::Applied).count();
        assert_eq!(applied, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_find_due_users_in_the_same_order() {
    let server = start();
    let platform = platform(&server.url());
    let host = NativeRedis::open(&server.url(), Options::default()).await.unwrap();
    let commits = (0..1000_u64).map(|index| Commit {
        user: user(&format!("user-{index}")),
        expected: Revision::default(),
        decision: wait_for(if index % 3 == 0 {
            Next::Evict(Time(index * 7 % 1000))
        } else {
            Next::Settle(Time(index))
        }),
    });
    // A session that waits for its eviction is kept only if it has content.
    let commits: Vec<Commit> = commits
        .map(|mut commit| {
            commit.decision.publish = publish(State::Online, Time(1_700_000_000_000)).publish;
            commit
        })
        .collect();
    assert!(platform.commit_many(commits).await.unwrap().iter().all(|outcome| *outcome == Ok(Committed::Applied)));
    for limit in [1, 17, 300, 10_000] {
        let due = platform.due(EVERYWHERE, limit).await.unwrap();
        assert_eq!(due, host.due(EVERYWHERE, limit).await.unwrap(), "{limit}");
        assert_eq!(due.len(), (limit as usize).min(666));
        let evictable = platform.evictable(EVERYWHERE, limit).await.unwrap();
        assert_eq!(evictable, host.evictable(EVERYWHERE, limit).await.unwrap(), "{limit}");
    }
}
