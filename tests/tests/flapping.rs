//! Several hosts on one Redis and two thousand flapping users: every transition is published exactly once, no user goes offline too
//! early or too late, and the final states are right, with lost notifications and with a killed host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rollcall_servers::redis::Redis;
use rollcall_tests::history::{duplicate_events, late_offlines, offline_transitions};
use rollcall_tests::simulated_users::{SimulatedUser, clear_choices, flap, users};
use rollcall_tests::{Client, Host, Published, Recorder, eventually};
use serde_json::{Value, json};

const USERS: usize = 2000;

/// Long enough for about fifteen actions per user.
const LASTING: Duration = Duration::from_secs(15);

/// How long a beat keeps alive, by the arguments below.
const ALIVE_MS: u64 = 1500;

const ARGUMENTS: [&str; 10] = [
    "--interval",
    "1s",
    "--tolerance",
    "500ms",
    "--grace",
    "300ms",
    // Short, so that users are also archived, evicted and loaded again while they flap.
    "--evict-after",
    "1s",
    "--workers",
    "1",
];

/// Each of these tests uses the whole machine, so they run one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Two or more hosts on one Redis, and what is published there.
struct Scenario {
    server: Redis,
    hosts: Vec<Host>,
    recorder: Recorder,
}

impl Scenario {
    fn open(hosts: usize, detection: &str) -> Self {
        let server = Redis::start().unwrap();
        let recorder = Recorder::on(server.port());
        let url = server.url();
        let mut arguments = ARGUMENTS.to_vec();
        arguments.extend(["--store", &url, "--expiry-detection", detection]);
        let hosts: Vec<Host> = (0..hosts).map(|_| Host::start(&arguments)).collect();
        let shared = hosts.len();
        eventually("every host is registered", Duration::from_secs(10), || {
            server.ask(&["ZCARD", "rc:{0}:hosts"]).unwrap() == shared.to_string()
        });
        Self { server, hosts, recorder }
    }

    fn clients(&self) -> Vec<Client> {
        self.hosts.iter().map(|host| host.client("edge")).collect()
    }

    fn sum(&self, metric: &str) -> f64 {
        self.hosts.iter().map(|host| host.metric(metric)).sum()
    }

    /// Lets all users flap and then fall silent, and checks everything published against their histories.
    fn play(&self, seed: u64) {
        let mut users = users(USERS, seed);
        flap(&mut users, &self.clients(), LASTING);
        clear_choices(&mut users, &self.hosts[0].client("edge"));
        self.until_all_are_gone(&users);
        let published = self.recorder.published();
        assert_eq!(self.recorder.connections(), 1, "the recorder published everything");
        self.check(&users, &published);
        let lags: Vec<u64> =
            offline_transitions(&published).map(|(.., after)| after.saturating_sub(ALIVE_MS)).collect();
        let events: usize = published.values().map(Vec::len).sum();
        println!(
            "{events} events, {} offline transitions, the latest by {} ms",
            lags.len(),
            lags.iter().max().unwrap()
        );
        assert!(events > USERS * 4, "too few events");
    }

    fn until_all_are_gone(&self, users: &[SimulatedUser]) {
        let within = Duration::from_millis(ALIVE_MS) + Duration::from_secs(5);
        eventually("all users are offline", within, || {
            let published = self.recorder.published();
            let is_gone =
                |name: &str| published.get(name).is_none_or(|events| events.last().unwrap().state == "offline");
            users.iter().all(|user| is_gone(&user.name))
        });
    }

    fn check(&self, users: &[SimulatedUser], published: &Published) {
        let mut wrong = duplicate_events(published);
        wrong.extend(late_offlines(published, ALIVE_MS));
        let none = Vec::new();
        for user in users {
            let events = published.get(&user.name).unwrap_or(&none);
            let found = user.history.violations(events, ALIVE_MS, true);
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", user.name)));
        }
        for host in &self.hosts {
            let seen = presences(&host.client("viewer"), users);
            for user in users.iter().filter(|user| published.contains_key(&user.name)) {
                let (seen, last) = (&seen[&user.name], published[&user.name].last().unwrap());
                if seen["state"] != "offline" || seen["last_seen"] != json!(last.last_seen) {
                    wrong.push(format!("{}: seen as {seen}, but last published as {last:?}", user.name));
                }
            }
        }
        let shown: Vec<&String> = wrong.iter().take(10).collect();
        assert!(wrong.is_empty(), "{} violations, among them {shown:#?}", wrong.len());
    }
}

/// What a host answers about all users, by name.
fn presences(viewer: &Client, users: &[SimulatedUser]) -> HashMap<String, Value> {
    let mut seen = HashMap::new();
    for some in users.chunks(500) {
        let names: Vec<&str> = some.iter().map(|user| user.name.as_str()).collect();
        let answer = viewer.post("/v1/presence", json!({ "users": names }));
        assert_eq!(answer.status, 200, "{}", answer.text);
        for presence in answer.json["presences"].as_array().unwrap() {
            seen.insert(presence["user"].as_str().unwrap().to_owned(), presence.clone());
        }
    }
    seen
}

#[test]
fn two_hosts_publish_once_with_notifications() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = Scenario::open(2, "both");
    scenario.play(1);
    assert!(scenario.sum("rollcall_settled_total{cause=\"notification\",outcome=\"published\"}") > 0.0);
    scenario.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn four_hosts_publish_once_without_notifications() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = Scenario::open(4, "sweep");
    scenario.play(2);
    assert_eq!(scenario.sum("rollcall_notifications_total"), 0.0);
    for host in &scenario.hosts {
        let published = host.metric("rollcall_settled_total{cause=\"sweep\",outcome=\"published\"}");
        assert!(published > 0.0, "every host publishes a share");
    }
    scenario.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn two_hosts_publish_once_losing_half_notifications() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scenario = Scenario::open(2, "both");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spoiler = scope.spawn(|| spoil(&scenario.server, &ended));
        scenario.play(3);
        ended.store(true, Ordering::SeqCst);
        assert!(spoiler.join().unwrap() >= 5, "subscriptions were broken");
    });
    for cause in ["notification", "sweep"] {
        let published = format!("rollcall_settled_total{{cause=\"{cause}\",outcome=\"published\"}}");
        assert!(scenario.sum(&published) > 100.0, "too few were noticed by {cause}");
    }
    scenario.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn four_hosts_publish_once_with_one_killed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut scenario = Scenario::open(4, "both");
    let victim = scenario.hosts.pop().unwrap();
    let clients: Vec<Client> = scenario.clients().into_iter().chain([victim.client("edge")]).collect();
    let mut users = users(USERS, 4);
    flap(&mut users, &clients, LASTING / 2);
    std::thread::scope(|scope| {
        // In the middle of its work.
        scope.spawn(|| victim.kill());
        flap(&mut users, &clients, LASTING / 2);
    });
    clear_choices(&mut users, &scenario.hosts[0].client("edge"));
    scenario.until_all_are_gone(&users);
    let unacknowledged = users.iter().map(|user| user.history.unacknowledged.len()).sum::<usize>();
    assert!(unacknowledged > 0, "no beat failed");
    scenario.check(&users, &scenario.recorder.published());
    scenario.hosts.into_iter().for_each(Host::stop);
}

/// Turns notifications off and on, and kills the subscriptions of hosts. Returns how many it killed.
fn spoil(server: &Redis, ended: &AtomicBool) -> usize {
    let mut broken = 0;
    while !ended.load(Ordering::SeqCst) {
        for flags in ["", "Ex"] {
            server.ask(&["CONFIG", "SET", "notify-keyspace-events", flags]).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        // The recorder subscribes by pattern and is spared.
        let clients = server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap();
        for client in clients.lines().filter(|client| client.contains(" psub=0 ")) {
            let id = client.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
            broken += usize::from(server.ask(&["CLIENT", "KILL", "ID", id]).unwrap() == "1");
        }
    }
    broken
}
