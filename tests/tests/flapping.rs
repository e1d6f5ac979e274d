//! Several hosts on one Redis, and two thousand people who flap: every transition is published exactly once, nobody is
//! offline too early or too late, and the end is right, whatever becomes of the notifications and of a host.

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
use rollcall_tests::simulated_users::{Person, clear_choices, flap, people};
use rollcall_tests::{Client, Host, Published, Recorder, eventually};
use serde_json::{Value, json};

const PEOPLE: usize = 2000;

/// Long enough for each person to do about fifteen things.
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
    // Short, so that people are also archived, dropped and made anew while they flap.
    "--evict-after",
    "1s",
    "--workers",
    "1",
];

/// These tests take all that the machine has, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Two or more hosts on one Redis, and what is published there.
struct Scene {
    server: Redis,
    hosts: Vec<Host>,
    recorder: Recorder,
}

impl Scene {
    fn open(hosts: usize, notice: &str) -> Self {
        let server = Redis::start().unwrap();
        let recorder = Recorder::on(server.port());
        let url = server.url();
        let mut arguments = ARGUMENTS.to_vec();
        arguments.extend(["--store", &url, "--notice", notice]);
        let hosts: Vec<Host> = (0..hosts).map(|_| Host::start(&arguments)).collect();
        let shared = hosts.len();
        eventually("the hosts know of each other", Duration::from_secs(10), || {
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

    /// Lets everybody flap and then fall silent, and holds everything that was published against what is known.
    fn play(&self, seed: u64) {
        let mut people = people(PEOPLE, seed);
        flap(&mut people, &self.clients(), LASTING);
        clear_choices(&mut people, &self.hosts[0].client("edge"));
        self.until_all_are_gone(&people);
        let heard = self.recorder.heard();
        assert_eq!(self.recorder.lines(), 1, "the recorder heard everything");
        self.check(&people, &heard);
        let lags: Vec<u64> = offline_transitions(&heard).map(|(.., after)| after.saturating_sub(ALIVE_MS)).collect();
        let events: usize = heard.values().map(Vec::len).sum();
        println!(
            "{events} events, {} offline_transitions, the latest by {} ms",
            lags.len(),
            lags.iter().max().unwrap()
        );
        assert!(events > PEOPLE * 4, "they did flap");
    }

    fn until_all_are_gone(&self, people: &[Person]) {
        let within = Duration::from_millis(ALIVE_MS) + Duration::from_secs(5);
        eventually("everybody is offline", within, || {
            let heard = self.recorder.heard();
            let is_gone = |name: &str| heard.get(name).is_none_or(|events| events.last().unwrap().state == "offline");
            people.iter().all(|person| is_gone(&person.name))
        });
    }

    fn check(&self, people: &[Person], heard: &Published) {
        let mut wrong = duplicate_events(heard);
        wrong.extend(late_offlines(heard, ALIVE_MS));
        let none = Vec::new();
        for person in people {
            let events = heard.get(&person.name).unwrap_or(&none);
            let found = person.history.violations(events, ALIVE_MS, true);
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", person.name)));
        }
        for host in &self.hosts {
            let seen = everybody(&host.client("viewer"), people);
            for person in people.iter().filter(|person| heard.contains_key(&person.name)) {
                let (seen, last) = (&seen[&person.name], heard[&person.name].last().unwrap());
                if seen["state"] != "offline" || seen["last_seen"] != json!(last.last_seen) {
                    wrong.push(format!("{}: seen as {seen}, but last published as {last:?}", person.name));
                }
            }
        }
        let shown: Vec<&String> = wrong.iter().take(10).collect();
        assert!(wrong.is_empty(), "{} things are wrong, among them {shown:#?}", wrong.len());
    }
}

/// What a host answers about everybody, by name.
fn everybody(viewer: &Client, people: &[Person]) -> HashMap<String, Value> {
    let mut seen = HashMap::new();
    for some in people.chunks(500) {
        let names: Vec<&str> = some.iter().map(|person| person.name.as_str()).collect();
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
    let scene = Scene::open(2, "both");
    scene.play(1);
    assert!(scene.sum("rollcall_settled_total{of=\"notification\",outcome=\"published\"}") > 0.0);
    scene.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn four_hosts_publish_once_without_notifications() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::open(4, "sweep");
    scene.play(2);
    assert_eq!(scene.sum("rollcall_notifications_total"), 0.0);
    for host in &scene.hosts {
        let published = host.metric("rollcall_settled_total{of=\"sweep\",outcome=\"published\"}");
        assert!(published > 0.0, "each host does its share");
    }
    scene.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn two_hosts_publish_once_losing_half_notifications() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::open(2, "both");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spoiler = scope.spawn(|| spoil(&scene.server, &ended));
        scene.play(3);
        ended.store(true, Ordering::SeqCst);
        assert!(spoiler.join().unwrap() >= 5, "subscriptions were broken");
    });
    for cause in ["notification", "sweep"] {
        let published = format!("rollcall_settled_total{{of=\"{cause}\",outcome=\"published\"}}");
        assert!(scene.sum(&published) > 100.0, "some were noticed by {cause}");
    }
    scene.hosts.into_iter().for_each(Host::stop);
}

#[test]
fn four_hosts_publish_once_with_one_killed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut scene = Scene::open(4, "both");
    let victim = scene.hosts.pop().unwrap();
    let clients: Vec<Client> = scene.clients().into_iter().chain([victim.client("edge")]).collect();
    let mut people = people(PEOPLE, 4);
    flap(&mut people, &clients, LASTING / 2);
    std::thread::scope(|scope| {
        // In the middle of whatever it is doing for whomever.
        scope.spawn(|| victim.kill());
        flap(&mut people, &clients, LASTING / 2);
    });
    clear_choices(&mut people, &scene.hosts[0].client("edge"));
    scene.until_all_are_gone(&people);
    let unacknowledged = people.iter().map(|person| person.history.unacknowledged.len()).sum::<usize>();
    assert!(unacknowledged > 0, "somebody was cut off");
    scene.check(&people, &scene.recorder.heard());
    scene.hosts.into_iter().for_each(Host::stop);
}

/// Turns notifications off and on, and breaks the subscriptions of hosts. Answers how many it broke.
fn spoil(server: &Redis, ended: &AtomicBool) -> usize {
    let mut broken = 0;
    while !ended.load(Ordering::SeqCst) {
        for flags in ["", "Ex"] {
            server.ask(&["CONFIG", "SET", "notify-keyspace-events", flags]).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        }
        // The recorder, which is subscribed by a pattern, is spared.
        let clients = server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).unwrap();
        for client in clients.lines().filter(|client| client.contains(" psub=0 ")) {
            let id = client.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
            broken += usize::from(server.ask(&["CLIENT", "KILL", "ID", id]).unwrap() == "1");
        }
    }
    broken
}
