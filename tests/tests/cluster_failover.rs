//! Two hosts on a Redis Cluster, one of whose masters is killed. Its users get 503 until the replica takes over, other
//! users are unaffected, no user goes offline because of it, and no event is published twice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::time::Duration;

use rollcall_redis::{DEFAULT_SHARDS, Keyspace, slot_of};
use rollcall_servers::redis::Cluster;
use rollcall_tests::history::now_ms;
use rollcall_tests::outage_scenario::{Outage, OutageScenario, names};
use rollcall_tests::{Recorder, eventually};

/// A host knows the store's time only to within a round trip.
const CLOCKS_DIFFER_MS: u64 = 50;

/// The node that serves a user.
fn node_of(cluster: &Cluster, user: &str) -> usize {
    let keys = Keyspace::new("rc", DEFAULT_SHARDS).unwrap();
    cluster.owner_of(slot_of(keys.user(user).to_string().as_bytes())).unwrap()
}

#[test]
fn promoted_replica_takes_over_without_events() {
    let mut cluster = Cluster::start().unwrap();
    let (beating_users, silent_users) = names();
    let everybody: Vec<String> = beating_users.iter().chain(&silent_users).cloned().collect();
    let recorder = Recorder::on_cluster(&cluster, &everybody);
    let scenario = OutageScenario::start(&cluster.url(), recorder);
    let victim = node_of(&cluster, &beating_users[0]);
    let served: Vec<&String> = beating_users.iter().filter(|user| node_of(&cluster, user) == victim).collect();
    let (silent_on_victim, silent_elsewhere): (Vec<&String>, Vec<&String>) =
        silent_users.iter().partition(|user| node_of(&cluster, user) == victim);
    let other = beating_users.iter().find(|user| node_of(&cluster, user) != victim).unwrap();
    assert!(served.len() > 5, "the killed node serves too few users: {}", served.len());

    let beaten = now_ms();
    scenario.last_beats();
    let struck = now_ms();
    cluster.kill(victim).unwrap();
    let mut mended = struck;
    for host in &scenario.hosts {
        let client = host.client(served[0]);
        let mut refusal = None;
        eventually("the host notices that the master is down", Duration::from_secs(4), || {
            mended = now_ms();
            refusal = Some(client.beat("web")).filter(|answer| answer.status != 200);
            refusal.is_some()
        });
        let refusal = refusal.unwrap();
        assert_eq!(refusal.status, 503, "{}", refusal.text);
        assert!(refusal.header("retry-after").is_some());
        let answer = host.client(other).beat("web");
        assert_eq!(answer.status, 200, "users of other masters are served: {}", answer.text);
    }
    let back = scenario.until_back();
    assert_ne!(node_of(&cluster, served[0]), victim, "the replica took over");
    scenario.go_offline(silent_on_victim, Outage { struck, mended, back });
    // Users of the other masters may go offline before the outage is noticed, but not before their beat expires.
    scenario.go_offline(silent_elsewhere, Outage { struck, mended: beaten - CLOCKS_DIFFER_MS, back });
    assert!(scenario.hosts.iter().all(|host| host.metric("rollcall_redis_reconnects_total") >= 1.0));
    scenario.end();
}
