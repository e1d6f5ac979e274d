//! The world around the store: a clock that jumps from event to event, nodes that run the real procedures with many in
//! flight at once, and the weather that breaks them. Everything follows from the seed.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rollcall_core::{Rules, Span, Time};
use rollcall_functions::query;

use crate::agents::Agents;
use crate::client::{Client, Ground, Odds, suspect};
use crate::random::Random;
use crate::store::{Broken, Store, user_id};
use crate::witness::Witness;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
/// The store's clock at the start: an ordinary day, so that versions are what they are in production.
const EPOCH: u64 = 1_800_000_000_000;
/// How often each node sweeps. With the time of a pass, within the one second of the ghost bound.
const SWEEP_EVERY: u64 = 600;
const NODES: u64 = 3;

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) users: usize,
    pub(crate) hours: u64,
    pub(crate) faults: Faults,
    /// Whether anybody sweeps at all.
    pub(crate) has_sweepers: bool,
    pub(crate) broken: Option<Broken>,
}

/// What ever goes wrong on the side of the servers. What people and networks do to beats is always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    StoreOutages,
    All,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) user_hours: u64,
    pub(crate) steps: u64,
    pub(crate) publications: u64,
    pub(crate) crashes: u64,
    pub(crate) most_in_flight: usize,
    /// How often people who beat in time were published offline.
    pub(crate) steady_offlines: u64,
    pub(crate) violation: Option<String>,
}

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Poll(u64),
    /// A device comes to life.
    Start {
        user: usize,
        device: usize,
    },
    /// A device is to beat; of an older life than the present one, it is void.
    Beat {
        user: usize,
        device: usize,
        life: u64,
    },
    /// A beat reaches a node.
    Arrive {
        user: usize,
        device: usize,
        active: bool,
    },
    /// A node passes on the beats that it gathered.
    Flush,
    Leave {
        user: usize,
        device: usize,
        for_good: bool,
    },
    Choose {
        user: usize,
    },
    /// Somebody was told that this person's time may be up.
    Hint {
        user: usize,
    },
    Query,
    Sweep {
        node: u64,
    },
    Archive {
        node: u64,
    },
    Probe {
        user: usize,
    },
    WeatherTurns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Calm,
    /// Calls fail, procedures crash and stall.
    Storm,
    /// The store answers nobody; afterwards there is an outage grace.
    StoreDown(Time),
    /// All nodes are dead.
    NodesDown,
    /// Nobody sweeps.
    NoSweeps,
}

struct Procedure {
    future: Pin<Box<dyn Future<Output = bool>>>,
    people: Vec<usize>,
}

/// The clock, the queue and everybody in it.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rules: Rules,
    pub(crate) ground: Rc<Ground>,
    pub(crate) random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    procedures: BTreeMap<u64, Procedure>,
    started: u64,
    weather: Weather,
    probe_at: Vec<Option<u64>>,
    is_closing: bool,
    report: Report,
}

/// Runs a plan to its end or to its first violation.
pub(crate) fn run(plan: Plan) -> Report {
    let mut world = World::new(plan);
    let mut agents = Agents::new(&mut world);
    let end = EPOCH + plan.hours * 60 * MINUTE;
    world.run_until(&mut agents, end);
    let steady_offlines = {
        let store = world.ground.store.borrow();
        agents.steady().map(|user| store.witness.watched[user].offlines).sum()
    };
    world.close(&mut agents);
    let store = world.ground.store.borrow();
    let watched = &store.witness.watched;
    Report {
        user_hours: plan.users as u64 * plan.hours,
        publications: watched.iter().map(|watched| watched.publications).sum(),
        steady_offlines,
        violation: store.witness.violation.as_ref().map(|what| {
            format!(
                "seed {:#x}, step {}: {what}\nagain: ROLLCALL_SIM_SEED={:#x}",
                plan.seed, world.report.steps, plan.seed
            )
        }),
        ..world.report.clone()
    }
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let rules = random.pick(&[Rules::STANDARD, Rules::STANDARD, Rules::LENIENT, Rules::BRISK]);
        // Briefer than the product's, so that evictions often meet whoever comes back.
        let rules = Rules { evict_after: Span::seconds(5), ..rules };
        let store = Store::new(Time(EPOCH), plan.broken, Witness::new(rules, plan.users));
        let ground = Rc::new(Ground {
            store: RefCell::new(store),
            random: RefCell::new(random.fork()),
            odds: Cell::new(Odds::default()),
            store_is_down: Cell::new(false),
        });
        let mut world = Self {
            plan,
            rules,
            ground,
            random,
            queue: BinaryHeap::new(),
            procedures: BTreeMap::new(),
            started: 0,
            weather: Weather::Calm,
            probe_at: vec![None; plan.users],
            is_closing: false,
            report: Report::default(),
        };
        if plan.has_sweepers {
            for node in 0..NODES {
                world.after(node * 200, Event::Sweep { node });
                world.after(node * 300, Event::Archive { node });
            }
        }
        if plan.faults != Faults::None {
            world.after(5 * MINUTE, Event::WeatherTurns);
        }
        world.after(SECOND, Event::Query);
        world
    }

    pub(crate) fn now(&self) -> u64 {
        self.ground.store.borrow().now.0
    }

    /// Puts an event into the future; among those of one instant, chance decides.
    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        let (at, tie) = (self.now() + delay, self.random.next());
        self.queue.push(Reverse((at, tie, event)));
    }

    pub(crate) fn nodes_are_up(&self) -> bool {
        self.weather != Weather::NodesDown
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Starts a procedure for these people.
    pub(crate) fn spawn<F>(&mut self, people: Vec<usize>, procedure: impl FnOnce(Client, Rules) -> F)
    where
        F: Future<Output = bool> + 'static,
    {
        let client = Client::new(&self.ground, people.clone());
        let future = Box::pin(procedure(client, self.rules));
        self.started += 1;
        self.procedures.insert(self.started, Procedure { future, people });
        self.report.most_in_flight = self.report.most_in_flight.max(self.procedures.len());
        self.after(0, Event::Poll(self.started));
    }

    fn run_until(&mut self, agents: &mut Agents, end: u64) {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if at > end || self.ground.store.borrow().witness.violation.is_some() {
                break;
            }
            self.ground.store.borrow_mut().now = Time(at);
            self.report.steps += 1;
            self.step(agents, event);
            self.check_touched();
        }
    }

    /// The faults stop and everybody goes home: then everything must come right, and nothing may be left behind.
    fn close(&mut self, agents: &mut Agents) {
        self.turn_to(Weather::Calm);
        self.is_closing = true;
        let end = self.now() + self.rules.alive_for().0 * 2 + 5 * MINUTE;
        self.run_until(agents, end);
        let mut store = self.ground.store.borrow_mut();
        let now = store.now;
        for user in 0..self.plan.users {
            if store.witness.is_overdue(now, user) {
                store.witness.violate(now, user, "5: what is published is wrong long after the faults stopped");
            }
        }
        let leftover = store.leftovers().first().map(|(user, session)| (*user, format!("{session:?}")));
        if let Some((user, session)) = leftover {
            store.witness.violate(now, user, format!("5: a session is left behind: {session}"));
        }
    }

    fn step(&mut self, agents: &mut Agents, event: Event) {
        match event {
            Event::Poll(procedure) => self.poll(agents, procedure),
            Event::Probe { user } => {
                if self.probe_at[user] == Some(self.now()) {
                    self.probe_at[user] = None;
                    self.look(user);
                }
            }
            Event::Sweep { node } => {
                self.after(SWEEP_EVERY, event);
                if self.weather != Weather::NoSweeps && self.nodes_are_up() {
                    agents.sweep(self, node);
                }
            }
            Event::WeatherTurns if self.is_closing => {}
            Event::WeatherTurns => self.turn_weather(),
            _ => agents.act(self, event),
        }
    }

    fn poll(&mut self, agents: &mut Agents, id: u64) {
        let is_storm = self.weather == Weather::Storm;
        let Some(procedure) = self.procedures.get_mut(&id) else { return };
        if is_storm && self.random.chance(150) {
            let people = procedure.people.clone();
            self.procedures.remove(&id);
            return self.broke_off(agents, &people);
        }
        if is_storm && self.random.chance(30) {
            let people = procedure.people.clone();
            let stall = self.random.between(SECOND, 90 * SECOND);
            self.after(stall, Event::Poll(id));
            return self.broke_off(agents, &people);
        }
        match procedure.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                let latency = self.random.between(0, if is_storm { 150 } else { 4 });
                self.after(latency, Event::Poll(id));
            }
            Poll::Ready(succeeded) => {
                let procedure = self.procedures.remove(&id);
                if let Some(procedure) = procedure.filter(|_| !succeeded) {
                    agents.failed(self, &procedure.people);
                }
            }
        }
    }

    fn broke_off(&mut self, agents: &mut Agents, people: &[usize]) {
        self.report.crashes += 1;
        suspect(&mut self.ground.store.borrow_mut(), people);
        agents.failed(self, people);
    }

    fn turn_weather(&mut self) {
        let (next, lasts) = match self.weather {
            Weather::Calm => match self.random.between(0, 5) {
                kind if kind == 0 || self.plan.faults == Faults::StoreOutages => {
                    (Weather::StoreDown(Time(self.now())), self.random.between(SECOND, 4 * MINUTE))
                }
                1 => (Weather::NodesDown, self.random.between(SECOND, 4 * MINUTE)),
                2 => (Weather::NoSweeps, self.random.between(10 * SECOND, 3 * MINUTE)),
                _ => (Weather::Storm, self.random.between(10 * SECOND, 3 * MINUTE)),
            },
            // Now and then the next misfortune comes before the last one is forgotten.
            _ if self.random.chance(3000) => (Weather::Calm, self.random.between(SECOND, MINUTE)),
            _ => (Weather::Calm, self.random.between(2 * MINUTE, 12 * MINUTE)),
        };
        self.turn_to(next);
        self.after(lasts, Event::WeatherTurns);
    }

    fn turn_to(&mut self, next: Weather) {
        let before = std::mem::replace(&mut self.weather, next);
        let odds = Odds { refused: 150, answer_lost: 150, item: 150 };
        self.ground.odds.set(if next == Weather::Storm { odds } else { Odds::default() });
        self.ground.store_is_down.set(matches!(next, Weather::StoreDown(_)));
        if next == Weather::NodesDown {
            let killed = std::mem::take(&mut self.procedures);
            self.report.crashes += killed.len() as u64;
            for procedure in killed.into_values() {
                suspect(&mut self.ground.store.borrow_mut(), &procedure.people);
            }
        }
        {
            let mut store = self.ground.store.borrow_mut();
            store.witness.sound_since = (next == Weather::Calm).then_some(store.now);
            if let Weather::StoreDown(began) = before {
                store.outage_grace(began);
            }
        }
        for user in 0..self.plan.users {
            self.look(user);
        }
    }

    fn check_touched(&mut self) {
        let mut dirty = std::mem::take(&mut self.ground.store.borrow_mut().dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for user in dirty {
            self.look(user);
        }
    }

    /// Asks about a person as any viewer would, and compares with the truth; then says when to look again.
    fn look(&mut self, user: usize) {
        let answer = {
            let client = Client::instant(&self.ground);
            let users = vec![Ok(user_id(user))];
            let asked = pin!(query::look_up((&client, &client, &client), &self.rules, None, users));
            asked.poll(&mut Context::from_waker(Waker::noop()))
        };
        let Poll::Ready(Ok(answers)) = answer else { panic!("an instant query waits for nothing") };
        let mut store = self.ground.store.borrow_mut();
        let now = store.now;
        match answers.first() {
            Some(Ok(query::Presence { view: Some(view), .. })) => store.witness.looked_up(now, user, &view.published),
            other => store.witness.violate(now, user, format!("1: a query has no answer: {other:?}")),
        }
        let next = store.witness.probe(now, user).map(|at| at.0);
        drop(store);
        if let Some(next) = next.filter(|&next| self.probe_at[user].is_none_or(|at| next < at)) {
            self.probe_at[user] = Some(next);
            let tie = self.random.next();
            self.queue.push(Reverse((next, tie, Event::Probe { user })));
        }
    }
}
