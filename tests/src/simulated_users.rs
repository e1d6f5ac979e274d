//! Simulated users by the thousand: they beat, fall silent, leave and choose, through any of the hosts, and each keeps a history.
//!
//! A seed decides what each user does, so that two runs differ only in timing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::history::{AcknowledgedBeat, History, RequestSpan};
use crate::{Answer, Client};

/// Beats per batch request.
const BATCH: usize = 64;

/// How often a driver looks for users whose turn has come.
const TICK: Duration = Duration::from_millis(20);

/// Threads. Requests of one user never overlap, because one driver sends them all.
const DRIVERS: usize = 4;

/// One in this many users makes choices.
const CHOOSERS: usize = 8;

/// A simulated user.
pub struct SimulatedUser {
    /// The user id.
    pub name: String,
    /// What was sent for the user.
    pub history: History,
    random: Random,
    turn: Instant,
}

/// What a user does next.
#[derive(Debug, Clone, PartialEq)]
enum Act {
    Beat(&'static str),
    Leave(&'static str),
    Choose(Value),
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn between(&mut self, first: u64, last: u64) -> Duration {
        Duration::from_millis(first + self.below(last - first + 1))
    }
}

/// Users who have not beaten yet.
pub fn users(count: usize, seed: u64) -> Vec<SimulatedUser> {
    let user = |index: usize| {
        let mut random = Random((seed << 32 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let turn = Instant::now() + random.between(0, 1000);
        let history = History { chooses: index.is_multiple_of(CHOOSERS), ..History::default() };
        SimulatedUser { name: format!("p{index}"), history, random, turn }
    };
    (0..count).map(user).collect()
}

/// Runs the users for a while. Pauses fit an interval of one second and a tolerance of half a second.
pub fn flap(users: &mut [SimulatedUser], hosts: &[Client], lasting: Duration) {
    let end = Instant::now() + lasting;
    let share = users.len().div_ceil(DRIVERS).max(1);
    std::thread::scope(|scope| {
        for (index, share) in users.chunks_mut(share).enumerate() {
            let mut driver = Driver { hosts: hosts.to_vec(), turn: index };
            scope.spawn(move || {
                while Instant::now() < end {
                    driver.drive(share);
                    std::thread::sleep(TICK);
                }
            });
        }
    });
}

/// Users with a choice clear it and beat once more, so that they go offline like all others.
pub fn clear_choices(users: &mut [SimulatedUser], host: &Client) {
    let mut driver = Driver { hosts: vec![host.clone()], turn: 0 };
    let mut choosers: Vec<&mut SimulatedUser> = users.iter_mut().filter(|user| user.history.chooses).collect();
    for user in &choosers {
        let answer = host.as_user(&user.name).send("DELETE", "/v1/status", None);
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for batch in choosers.chunks_mut(BATCH) {
        driver.beat(batch, "web");
    }
}

struct Driver {
    hosts: Vec<Client>,
    turn: usize,
}

impl Driver {
    /// Acts for every user whose turn has come.
    fn drive(&mut self, users: &mut [SimulatedUser]) {
        let now = Instant::now();
        let (mut web, mut phone) = (Vec::new(), Vec::new());
        for user in users.iter_mut().filter(|user| user.turn <= now) {
            match user.act(now) {
                Act::Beat("web") => web.push(user),
                Act::Beat(_) => phone.push(user),
                Act::Leave(reason) => self.leave(user, reason),
                Act::Choose(choice) => self.choose(user, &choice),
            }
        }
        for (device, mut users) in [("web", web), ("phone", phone)] {
            for batch in users.chunks_mut(BATCH) {
                self.beat(batch, device);
            }
        }
    }

    fn host(&mut self) -> &Client {
        self.turn += 1;
        &self.hosts[self.turn % self.hosts.len()]
    }

    fn beat(&mut self, users: &mut [&mut SimulatedUser], device: &str) {
        let beats: Vec<Value> = users.iter().map(|p| json!({ "user": p.name, "device": device })).collect();
        let body = json!({ "beats": beats }).to_string();
        let host = self.host();
        let (during, answer) = RequestSpan::of(|| host.try_send("POST", "/v1/heartbeats", Some(body.as_bytes())));
        let outcomes = answer.ok().map(|answer| answer.json["outcomes"].clone()).unwrap_or_default();
        for (index, user) in users.iter_mut().enumerate() {
            match acknowledged(during, &outcomes[index]) {
                Some(beat) => user.history.beats.push(beat),
                None => user.history.unacknowledged.push(during),
            }
        }
    }

    fn leave(&mut self, user: &mut SimulatedUser, reason: &str) {
        let body = json!({ "device": "web", "reason": reason }).to_string();
        let host = self.host().as_user(&user.name);
        let (during, answer) = RequestSpan::of(|| host.try_send("POST", "/v1/leave", Some(body.as_bytes())));
        expected(answer);
        user.history.leaves.push(during);
    }

    fn choose(&mut self, user: &SimulatedUser, choice: &Value) {
        let host = self.host().as_user(&user.name);
        expected(host.try_send("PUT", "/v1/status", Some(choice.to_string().as_bytes())));
    }
}

/// A host may be killed or its store down; any other failure is a bug.
fn expected(answer: Result<Answer, String>) {
    if let Ok(answer) = answer {
        assert!(matches!(answer.status, 200 | 503), "{}: {}", answer.status, answer.text);
    }
}

fn acknowledged(during: RequestSpan, outcome: &Value) -> Option<AcknowledgedBeat> {
    let state = outcome["state"].as_str()?.to_owned();
    Some(AcknowledgedBeat { during, state, version: outcome["version"].as_u64()? })
}

impl SimulatedUser {
    /// Picks an action and sets the next turn.
    fn act(&mut self, now: Instant) -> Act {
        let (act, pause) = match self.random.below(100) {
            0..65 => (Act::Beat("web"), self.random.between(300, 1100)),
            // About when the beat expires: the next beat races the sweep.
            65..75 => (Act::Beat("web"), self.random.between(1400, 1700)),
            75..84 => (Act::Beat("web"), self.random.between(2700, 4500)),
            84..88 => (Act::Beat("phone"), self.random.between(100, 900)),
            88..92 => (Act::Leave("logout"), self.random.between(50, 2500)),
            // About when the grace ends.
            92..95 => (Act::Leave("dropped"), self.random.between(100, 600)),
            _ if self.history.chooses => (Act::Choose(self.choice()), self.random.between(50, 900)),
            _ => (Act::Beat("phone"), self.random.between(100, 900)),
        };
        self.turn = now + pause;
        act
    }

    fn choice(&mut self) -> Value {
        let choices = [
            json!({ "choice": "busy" }),
            json!({ "choice": "away" }),
            json!({ "choice": "invisible" }),
            json!({ "choice": "auto" }),
            json!({ "choice": "busy", "text": "in a meeting", "for_s": 1 }),
            json!({ "choice": "auto", "text": "lunch", "emoji": "🍜" }),
        ];
        let place = self.random.below(choices.len() as u64) as usize;
        choices[place].clone()
    }
}
