//! Thousands of watchers: a change reaches all of them and delays no other request, a crowd gets the newest state instead of
//! every change, and a deploy that disconnects everyone causes no presence events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rollcall_servers::free_port;
use rollcall_servers::redis::Redis;
use rollcall_tests::watcher::{Protocol, WatchEvent};
use rollcall_tests::watcher_pool::{Kind, Plan, WatcherPool, allow_descriptors};
use rollcall_tests::{Client, Host, LossyProxy, Service};
use serde_json::json;

/// Thousands of connections are enough for a small machine: these tests run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Connecting ten thousand takes seconds; a busy machine needs more.
const GATHERED: Duration = Duration::from_secs(60);

fn choose(client: &Client, text: &str) -> u64 {
    let answer = client.put("/v1/status", json!({ "choice": "busy", "text": text }));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json["version"].as_u64().unwrap()
}

#[test]
fn ten_thousand_watcher_fan_out_delays_no_request() {
    let _alone = ALONE.lock();
    allow_descriptors(12_000);
    let host = Host::start(&["--crowd", "100000"]);
    let (star, bob) = (host.client("star"), host.client("bob"));
    [&star, &bob].into_iter().for_each(|client| assert_eq!(client.beat("web").status, 200));
    let began = Instant::now();
    let plan = |protocol| Plan::watching(protocol, host.address(), "star", 5000);
    let pools = Protocol::BOTH.map(|protocol| WatcherPool::connect(plan(protocol), GATHERED));
    println!("10,000 watchers connected after {:?}", began.elapsed());
    assert_eq!(host.metric("rollcall_watchers"), 10_000.0);
    let mut alice = Protocol::Events.watch(&host, "alice", "bob");
    alice.snapshot();

    let changed = Instant::now();
    let version = ["enters", "bows", "sings"].into_iter().fold(0, |_, text| choose(&star, text));
    choose(&bob, "in the audience");
    alice.presence("bob", "busy");
    let bob_received = Instant::now();
    let last = pools.iter().map(|pool| pool.until_all_received(version, GATHERED)).max().unwrap();
    println!("all received it after {:?}, bob's watcher after {:?}", last - changed, bob_received - changed);
    assert!(bob_received < last, "bob's watcher waited for all ten thousand");
    for pool in &pools {
        let received = pool.received();
        let pushed = received.count(|delivery| delivery.kind == Kind::Presence);
        assert!(
            (pool.size()..=3 * pool.size()).contains(&pushed),
            "{pushed} events: each watcher must get one to three"
        );
        assert!(
            received.newest(pool.size()).iter().all(|newest| *newest == version),
            "the last event is not the newest"
        );
        assert!(received.closed.is_empty(), "connections were closed");
    }
    drop(pools);
    rollcall_tests::eventually("all of them are disconnected", Duration::from_secs(30), || {
        host.metric("rollcall_watchers") == 1.0
    });
    host.stop();
}

#[test]
fn crowd_gets_newest_state_only() {
    let _alone = ALONE.lock();
    let host = Host::start(&["--crowd", "1000", "--crowd-interval", "1s", "--workers", "1"]);
    let star = host.client("star");
    assert_eq!(star.beat("web").status, 200);
    let plan = |protocol| Plan::watching(protocol, host.address(), "star", 600);
    let pools = Protocol::BOTH.map(|protocol| WatcherPool::connect(plan(protocol), GATHERED));
    let mut alice = Protocol::Socket.watch(&host, "alice", "bob");
    alice.snapshot();
    let began = Instant::now();
    let newest = (0..100).fold(0, |_, turn| choose(&star, &format!("turn {turn}")));
    assert_eq!(host.client("bob").beat("web").status, 200);
    alice.presence("bob", "online");
    for pool in &pools {
        pool.until_all_received(newest, Duration::from_secs(10));
        let received = pool.received();
        assert!(
            received.newest(pool.size()).iter().all(|version| *version == newest),
            "the last event is not the newest"
        );
        let pushed = received.count(|delivery| delivery.kind == Kind::Presence);
        // The first at once, then one a second, and the last.
        let most = pool.size() * (began.elapsed().as_secs() as usize + 2);
        assert!((pool.size()..=most).contains(&pushed), "{pushed} of 60,000 events were sent; at most {most}");
    }
    host.stop();
}

#[test]
fn crowd_learns_of_lost_messages() {
    let _alone = ALONE.lock();
    let redis = Redis::start().unwrap();
    let proxy = LossyProxy::to(redis.port());
    let (lossy, direct) = (proxy.url(), redis.url());
    let here = Host::start(&["--store", &lossy, "--recheck", "500ms", "--workers", "1"]);
    let there = Host::start(&["--store", &direct]);
    let star = there.client("star");
    assert_eq!(star.beat("web").status, 200);
    // More than one chunk of the fan-out.
    let pool = WatcherPool::connect(Plan::watching(Protocol::Events, here.address(), "star", 1500), GATHERED);
    proxy.set_dropping(true);
    pool.until_all_received(choose(&star, "lost"), Duration::from_secs(10));
    assert!(proxy.dropped() >= 1, "the message was not lost");
    drop(pool);
    [here, there].into_iter().for_each(Host::stop);
}

/// Clients that are online, watch the next two, and reconnect to another host when they are disconnected.
fn circle(protocol: Protocol, address: &str, reconnect_to: &str, count: usize) -> Plan {
    let name = |index: usize| format!("{protocol:?}-{}", index % count);
    let path = |index| match protocol {
        Protocol::Events => {
            let (next, other) = (name(index + 1), name(index + 2));
            format!("/v1/subscribe?device=tab&as={}&users={next},{other}", name(index))
        }
        Protocol::Socket => format!("/v1/socket?device=tab&as={}", name(index)),
    };
    let message = |index| json!({ "op": "watch", "users": [name(index + 1), name(index + 2)] }).to_string();
    let messages = match protocol {
        Protocol::Events => Vec::new(),
        Protocol::Socket => (0..count).map(message).collect(),
    };
    let [address, reconnect_to] = [address, reconnect_to].map(|address| address.parse().unwrap());
    Plan { protocol, address, reconnect_to: Some(reconnect_to), paths: (0..count).map(path).collect(), messages }
}

/// Waits until every client of a circle was closed gracefully, with delays that are spread out, and has reconnected. Fails if
/// any received an offline event since then.
fn all_reconnect(protocol: Protocol, pool: &WatcherPool, since: Instant) {
    let size = pool.size();
    pool.until("all are disconnected", GATHERED, |received| received.closed.len() >= size);
    pool.until("all have reconnected", GATHERED, |received| {
        received.count(|one| one.kind == Kind::Snapshot) >= 2 * size
    });
    let received = pool.received();
    let code = (protocol == Protocol::Socket).then_some(1012);
    assert!(received.closed.iter().all(|one| one.code == code), "{:?}", received.closed.first());
    let delays: BTreeSet<u64> = received.closed.iter().filter_map(|closed| closed.after_ms).collect();
    assert!(delays.len() > size / 8, "only {} different delays", delays.len());
    let offline = received.count(|delivery| delivery.offline && delivery.at > since);
    assert_eq!(offline, 0, "a client received an offline event");
}

/// Waits until every client of a circle is online. Earlier events may say that they are not yet.
fn all_go_online(protocol: Protocol, pool: &WatcherPool, viewer: &Client) {
    let users: Vec<String> = (0..pool.size()).map(|index| format!("{protocol:?}-{index}")).collect();
    rollcall_tests::eventually("all are online", GATHERED, || {
        users.chunks(500).all(|users| {
            let answer = viewer.post("/v1/presence", json!({ "users": users }));
            answer.json["presences"].as_array().unwrap().iter().all(|one| one["state"] == "online")
        })
    });
}

/// Beats slow enough for a busy machine to reconnect two thousand clients.
const CALM: [&str; 4] = ["--interval", "6s", "--tolerance", "4s"];

#[test]
fn deploy_moves_watchers_without_events() {
    let _alone = ALONE.lock();
    let mut service = Service::redis(&CALM);
    let watched: Vec<String> =
        (0..10).flat_map(|index| [format!("Socket-{index}"), format!("Events-{index}")]).collect();
    let mut observer = Protocol::Events.watch(service.last(), "observer", &watched.join(","));
    observer.snapshot();
    let (from, to) = (service.first().address(), service.last().address());
    let pools =
        Protocol::BOTH.map(|protocol| (protocol, WatcherPool::connect(circle(protocol, from, to, 1000), GATHERED)));
    pools.iter().for_each(|(protocol, pool)| all_go_online(*protocol, pool, &service.last().client("viewer")));
    let stopped = Instant::now();
    service.hosts.remove(0).stop();
    pools.iter().for_each(|(protocol, pool)| all_reconnect(*protocol, pool, stopped));
    let events = received_so_far(&mut observer);
    assert!(events.iter().all(|event| event.state() == "online"), "{events:#?}");
    drop(pools);
    service.stop();
}

#[test]
fn embedded_restart_causes_no_events_for_returners() {
    let _alone = ALONE.lock();
    let data = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let mut arguments = CALM.to_vec();
    arguments.extend(["--listen", &address]);
    let host = Host::start_in(data.path(), &arguments);
    let pools = Protocol::BOTH
        .map(|protocol| (protocol, WatcherPool::connect(circle(protocol, &address, &address, 1000), GATHERED)));
    pools.iter().for_each(|(protocol, pool)| all_go_online(*protocol, pool, &host.client("viewer")));
    let stopped = Instant::now();
    host.stop();
    let host = Host::start_in(data.path(), &arguments);
    pools.iter().for_each(|(protocol, pool)| all_reconnect(*protocol, pool, stopped));
    drop(pools);
    host.stop();
}

/// The events that have arrived, without waiting for more.
fn received_so_far(events: &mut rollcall_tests::watcher::EventQueue) -> Vec<WatchEvent> {
    std::iter::from_fn(|| events.try_next(Duration::from_millis(1))).collect()
}
