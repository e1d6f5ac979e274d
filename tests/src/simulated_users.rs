//! People by the thousand: they come, beat, fall silent, leave and choose, by whichever host is at hand, and keep a history.
//!
//! What each does comes from a seed, so that two runs differ only in what the machine makes of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::history::{AcknowledgedBeat, History, RequestSpan};
use crate::{Answer, Client};

/// Beats sent together: what an edge would gather.
const BATCH: usize = 64;

/// How often a driver looks whose turn it is.
const TICK: Duration = Duration::from_millis(20);

/// Drivers at once. Requests of one person never overlap, because one driver drives them.
const DRIVERS: usize = 4;

/// One of so many people chooses how to be seen.
const CHOOSERS: usize = 8;

/// A person.
pub struct Person {
    /// Their name.
    pub name: String,
    /// What is known of them.
    pub history: History,
    dice: Dice,
    turn: Instant,
}

/// What a person does next.
#[derive(Debug, Clone, PartialEq)]
enum Act {
    Beat(&'static str),
    Leave(&'static str),
    Choose(Value),
}

/// A generator of numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
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

/// So many people who have not come yet.
pub fn people(count: usize, seed: u64) -> Vec<Person> {
    let person = |index: usize| {
        let mut dice = Dice((seed << 32 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let turn = Instant::now() + dice.between(0, 1000);
        let history = History { chooses: index.is_multiple_of(CHOOSERS), ..History::default() };
        Person { name: format!("p{index}"), history, dice, turn }
    };
    (0..count).map(person).collect()
}

/// Lets people flap for a while, made for beats every second and a tolerance of half a second.
pub fn flap(people: &mut [Person], hosts: &[Client], lasting: Duration) {
    let end = Instant::now() + lasting;
    let share = people.len().div_ceil(DRIVERS).max(1);
    std::thread::scope(|scope| {
        for (index, share) in people.chunks_mut(share).enumerate() {
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

/// Whoever chose takes that back and beats once more: from then on their end is like anybody's.
pub fn clear_choices(people: &mut [Person], host: &Client) {
    let mut driver = Driver { hosts: vec![host.clone()], turn: 0 };
    let mut choosers: Vec<&mut Person> = people.iter_mut().filter(|person| person.history.chooses).collect();
    for person in &choosers {
        let answer = host.as_user(&person.name).send("DELETE", "/v1/status", None);
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
    /// Does what everybody whose turn it is does.
    fn drive(&mut self, people: &mut [Person]) {
        let now = Instant::now();
        let (mut web, mut phone) = (Vec::new(), Vec::new());
        for person in people.iter_mut().filter(|person| person.turn <= now) {
            match person.act(now) {
                Act::Beat("web") => web.push(person),
                Act::Beat(_) => phone.push(person),
                Act::Leave(reason) => self.leave(person, reason),
                Act::Choose(wish) => self.choose(person, &wish),
            }
        }
        for (device, mut people) in [("web", web), ("phone", phone)] {
            for batch in people.chunks_mut(BATCH) {
                self.beat(batch, device);
            }
        }
    }

    fn host(&mut self) -> &Client {
        self.turn += 1;
        &self.hosts[self.turn % self.hosts.len()]
    }

    fn beat(&mut self, people: &mut [&mut Person], device: &str) {
        let beats: Vec<Value> = people.iter().map(|p| json!({ "user": p.name, "device": device })).collect();
        let body = json!({ "beats": beats }).to_string();
        let host = self.host();
        let (during, answer) = RequestSpan::of(|| host.try_send("POST", "/v1/heartbeats", Some(body.as_bytes())));
        let outcomes = answer.ok().map(|answer| answer.json["outcomes"].clone()).unwrap_or_default();
        for (index, person) in people.iter_mut().enumerate() {
            match told(during, &outcomes[index]) {
                Some(told) => person.history.beats.push(told),
                None => person.history.unacknowledged.push(during),
            }
        }
    }

    fn leave(&mut self, person: &mut Person, reason: &str) {
        let body = json!({ "device": "web", "reason": reason }).to_string();
        let host = self.host().as_user(&person.name);
        let (during, answer) = RequestSpan::of(|| host.try_send("POST", "/v1/leave", Some(body.as_bytes())));
        expected(answer);
        person.history.leaves.push(during);
    }

    fn choose(&mut self, person: &Person, wish: &Value) {
        let host = self.host().as_user(&person.name);
        expected(host.try_send("PUT", "/v1/status", Some(wish.to_string().as_bytes())));
    }
}

/// A host may be gone, or its store away; nothing else may happen.
fn expected(answer: Result<Answer, String>) {
    if let Ok(answer) = answer {
        assert!(matches!(answer.status, 200 | 503), "{}: {}", answer.status, answer.text);
    }
}

fn told(during: RequestSpan, outcome: &Value) -> Option<AcknowledgedBeat> {
    let state = outcome["state"].as_str()?.to_owned();
    Some(AcknowledgedBeat { during, state, version: outcome["version"].as_u64()? })
}

impl Person {
    /// What they do now; and it says when their next turn is.
    fn act(&mut self, now: Instant) -> Act {
        let (act, pause) = match self.dice.below(100) {
            0..65 => (Act::Beat("web"), self.dice.between(300, 1100)),
            // About when the beat ends: who is quicker, the next beat or the sweep?
            65..75 => (Act::Beat("web"), self.dice.between(1400, 1700)),
            75..84 => (Act::Beat("web"), self.dice.between(2700, 4500)),
            84..88 => (Act::Beat("phone"), self.dice.between(100, 900)),
            88..92 => (Act::Leave("logout"), self.dice.between(50, 2500)),
            // About when the grace ends.
            92..95 => (Act::Leave("dropped"), self.dice.between(100, 600)),
            _ if self.history.chooses => (Act::Choose(self.wish()), self.dice.between(50, 900)),
            _ => (Act::Beat("phone"), self.dice.between(100, 900)),
        };
        self.turn = now + pause;
        act
    }

    fn wish(&mut self) -> Value {
        let wishes = [
            json!({ "choice": "busy" }),
            json!({ "choice": "away" }),
            json!({ "choice": "invisible" }),
            json!({ "choice": "auto" }),
            json!({ "choice": "busy", "text": "in a meeting", "for_s": 1 }),
            json!({ "choice": "auto", "text": "lunch", "emoji": "🍜" }),
        ];
        let place = self.dice.below(wishes.len() as u64) as usize;
        wishes[place].clone()
    }
}
