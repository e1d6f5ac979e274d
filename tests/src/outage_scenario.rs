//! An outage of the store with two groups of users: some beat throughout and must never be published as offline; the others fall
//! silent just before and must go offline, but only after their time to beat again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::{OFFLINE_BOUND_MS, duplicate_events, late_offlines, now_ms};
use crate::{Client, Event, Host, Published, Recorder, eventually};

/// Interval of the beating users: six beats in the time one lasts, so that a busy machine does not make them silent.
const BEAT_EVERY: Duration = Duration::from_millis(250);

/// How long a beat lasts with the arguments below.
const ALIVE_MS: u64 = 1500;

/// A host gives a hung store up after 1.5 s; a busy machine gets twice that.
const NOTICED: Duration = Duration::from_secs(4);

/// A host retries a lost store every 150 ms; a Cluster needs a few seconds to promote a replica.
const BACK: Duration = Duration::from_secs(20);

/// Arguments of the hosts, besides the store.
pub const ARGUMENTS: [&str; 6] = ["--interval", "1s", "--tolerance", "500ms", "--workers", "1"];

/// Two hosts, the beating and the silent users, and a recorder.
pub struct OutageScenario {
    /// The two hosts.
    pub hosts: Vec<Host>,
    /// Records what is published.
    pub recorder: Recorder,
    beating_users: Vec<String>,
    silent_users: Vec<String>,
    ended: Arc<AtomicBool>,
    beating: Option<JoinHandle<()>>,
}

/// When the store was down, in Unix milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// When it went down.
    pub struck: u64,
    /// It was still down then.
    pub mended: u64,
    /// Every host had reconnected by then.
    pub back: u64,
}

/// The names of the beating and of the silent users.
pub fn names() -> (Vec<String>, Vec<String>) {
    let named = |what: &str, count: usize| (0..count).map(|index| format!("{what}-{index}")).collect();
    (named("stays", 60), named("goes", 30))
}

impl OutageScenario {
    /// Starts two hosts on this store. The beating users are online when this returns.
    pub fn start(store: &str, recorder: Recorder) -> Self {
        let mut arguments = ARGUMENTS.to_vec();
        arguments.extend(["--store", store, "--log", "warn"]);
        let hosts: Vec<Host> = (0..2).map(|_| Host::start(&arguments)).collect();
        let (beating_users, silent_users) = names();
        let ended = Arc::new(AtomicBool::new(false));
        let beating = std::thread::spawn({
            let clients: Vec<Client> = hosts.iter().map(|host| host.client("edge")).collect();
            let (beating_users, ended) = (beating_users.clone(), Arc::clone(&ended));
            move || {
                for client in clients.iter().cycle().take_while(|_| !ended.load(Ordering::SeqCst)) {
                    beat(client, &beating_users);
                    std::thread::sleep(BEAT_EVERY);
                }
            }
        });
        let scenario = Self { hosts, recorder, beating_users, silent_users, ended, beating: Some(beating) };
        for user in &scenario.beating_users {
            scenario.recorder.until(user, "online", NOTICED);
        }
        scenario
    }

    /// The silent users beat for the last time.
    pub fn last_beats(&self) {
        let outcomes = beat(&self.hosts[0].client("edge"), &self.silent_users);
        let states: Vec<&Value> = outcomes.iter().map(|outcome| &outcome["state"]).collect();
        assert!(states.iter().all(|state| **state == "online"), "{states:?}");
    }

    /// Waits until every host answers that the store is unavailable, for writes and reads.
    pub fn until_refused(&self) {
        for host in &self.hosts {
            let client = host.client("probe");
            let mut answer = None;
            eventually("the host notices the outage", NOTICED, || {
                answer = Some(client.beat("web")).filter(|answer| answer.status != 200);
                answer.is_some()
            });
            let presence = client.get("/v1/presence/anyone");
            for answer in [answer.unwrap(), presence] {
                assert_eq!(answer.status, 503, "{}", answer.text);
                assert_eq!(answer.header("content-type"), Some("application/problem+json"));
                assert_eq!(answer.json["type"], "urn:rollcall:problem:unavailable", "{}", answer.text);
                let retry_after: u64 = answer.header("retry-after").expect("Retry-After").parse().unwrap();
                assert!((1..=5).contains(&retry_after), "{retry_after} s");
            }
            assert_eq!(client.get("/healthz").status, 200, "the host itself is healthy");
        }
    }

    /// Waits until every host accepts all beats again, and returns when that was.
    pub fn until_back(&self) -> u64 {
        for host in &self.hosts {
            let client = host.client("edge");
            eventually("the store is back", BACK, || {
                let outcomes = beat(&client, &self.beating_users);
                outcomes.len() == self.beating_users.len() && outcomes.iter().all(|outcome| outcome["error"].is_null())
            });
        }
        now_ms()
    }

    /// The silent users go offline; see [`OutageScenario::go_offline`].
    pub fn silent_users_go_offline(&self, outage: Outage) {
        self.go_offline(&self.silent_users, outage);
    }

    /// These users go offline: not before a full `d + ε` after the store was back, and at most the bound later. Events before the
    /// outage do not count.
    pub fn go_offline<'a>(&self, users: impl IntoIterator<Item = &'a String>, outage: Outage) {
        let Outage { struck, mended, back } = outage;
        for user in users {
            let mut last = None;
            eventually(&format!("{user} goes offline"), BACK, || {
                last = self.recorder.of(user).pop().filter(|event| event.state == "offline" && event.at_ms() > struck);
                last.is_some()
            });
            let at = last.unwrap().at_ms();
            assert!(at >= mended + ALIVE_MS, "{user}: too early, at {at}: {outage:?}");
            assert!(at <= back + ALIVE_MS + OFFLINE_BOUND_MS, "{user}: too late, at {at}: {outage:?}");
        }
    }

    /// Nothing was published about the silent users after this instant.
    pub fn no_events_of_silent_users(&self, since: u64) {
        for user in &self.silent_users {
            let after: Vec<Event> = self.recorder.of(user).into_iter().filter(|event| event.at_ms() > since).collect();
            assert!(after.is_empty(), "{user}: {after:?}");
        }
    }

    /// Checks that the beating users never went offline; then they stop, and go offline in time. Nothing is published twice.
    pub fn end(mut self) {
        for (user, events) in self.recorder.published().iter().filter(|(user, _)| self.beating_users.contains(user)) {
            assert!(events.iter().all(|event| event.state == "online"), "{user} was online all the time: {events:?}");
        }
        self.ended.store(true, Ordering::SeqCst);
        self.beating.take().unwrap().join().unwrap();
        let ended = now_ms();
        for user in &self.beating_users {
            self.recorder.until(user, "offline", Duration::from_millis(ALIVE_MS + OFFLINE_BOUND_MS + 2000));
        }
        let published = self.recorder.published();
        assert_eq!(duplicate_events(&published), Vec::<String>::new());
        let ends: Published = published
            .iter()
            .filter(|(user, _)| self.beating_users.contains(user))
            .map(|(user, events)| (user.clone(), events.clone()))
            .collect();
        assert_eq!(late_offlines(&ends, ALIVE_MS), Vec::<String>::new());
        let last = ends.values().map(|events| events.last().unwrap().at_ms()).max().unwrap_or(ended);
        println!("offline {} ms after the last beat was taken", last.saturating_sub(ended));
        for host in self.hosts.drain(..) {
            host.stop();
        }
    }
}

impl Drop for OutageScenario {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// One beat per user; returns the outcomes, none if the host or its store is down.
fn beat(client: &Client, users: &[String]) -> Vec<Value> {
    let beats: Vec<Value> = users.iter().map(|user| json!({ "user": user, "device": "web" })).collect();
    let body = json!({ "beats": beats }).to_string();
    let answer = client.try_send("POST", "/v1/heartbeats", Some(body.as_bytes()));
    answer.ok().and_then(|answer| answer.json["outcomes"].as_array().cloned()).unwrap_or_default()
}
