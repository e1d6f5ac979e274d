//! The event loop: a clock that jumps from event to event, nodes that run the real procedures concurrently, and phases
//! of faults. Everything follows from the seed.

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
use crate::checker::Checker;
use crate::client::{Client, Odds, Shared, tolerate};
use crate::random::Random;
use crate::store::{Broken, Store, user_id};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
/// The store's clock at the start: a realistic time, so that versions have the size they have in production.
const EPOCH: u64 = 1_800_000_000_000;
/// How often each node sweeps. With the duration of a pass it stays below the publication bound of one second.
const SWEEP_EVERY: u64 = 600;
const NODES: u64 = 3;

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) users: usize,
    pub(crate) hours: u64,
    pub(crate) faults: Faults,
    /// Whether any node sweeps.
    pub(crate) has_sweepers: bool,
    pub(crate) broken: Option<Broken>,
}

/// Which faults the servers have. Delays and losses of beats happen in every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    StoreOutages,
    All,
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) user_hours: u64,
    pub(crate) steps: u64,
    pub(crate) publications: u64,
    pub(crate) crashes: u64,
    pub(crate) most_in_flight: usize,
    /// How often users who beat in time were published offline.
    pub(crate) steady_offlines: u64,
    pub(crate) violation: Option<String>,
}

/// An event in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Poll(u64),
    /// A device starts.
    Start {
        user: usize,
        device: usize,
    },
    /// A device sends a beat, unless it has been restarted since the event was queued.
    Beat {
        user: usize,
        device: usize,
        generation: u64,
    },
    /// A beat reaches a node.
    Arrive {
        user: usize,
        device: usize,
        active: bool,
    },
    /// A node sends the beats it gathered as one batch.
    Flush,
    Leave {
        user: usize,
        device: usize,
        is_logout: bool,
    },
    Choose {
        user: usize,
    },
    /// An expiry notification: this user may be due.
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
    PhaseEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Healthy,
    /// Calls fail, procedures crash and stall.
    Flaky,
    /// The store answers no call; afterwards there is an outage grace.
    StoreDown(Time),
    /// All nodes are down.
    NodesDown,
    /// No node sweeps.
    NoSweeps,
}

struct Procedure {
    future: Pin<Box<dyn Future<Output = bool>>>,
    users: Vec<usize>,
}

/// The clock, the event queue and the running procedures.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rules: Rules,
    pub(crate) shared: Rc<Shared>,
    pub(crate) random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    procedures: BTreeMap<u64, Procedure>,
    started: u64,
    phase: Phase,
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
        let store = world.shared.store.borrow();
        agents.steady().map(|user| store.checker.watched[user].offlines).sum()
    };
    world.close(&mut agents);
    let store = world.shared.store.borrow();
    let watched = &store.checker.watched;
    Report {
        user_hours: plan.users as u64 * plan.hours,
        publications: watched.iter().map(|watched| watched.publications).sum(),
        steady_offlines,
        violation: store.checker.violation.as_ref().map(|what| {
            format!(
                "seed {:#x}, step {}: {what}\nrerun: ROLLCALL_SIM_SEED={:#x}",
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
        // Shorter than in production, so that evictions often race with returning users.
        let rules = Rules { evict_after: Span::seconds(5), ..rules };
        let store = Store::new(Time(EPOCH), plan.broken, Checker::new(rules, plan.users));
        let shared = Rc::new(Shared {
            store: RefCell::new(store),
            random: RefCell::new(random.fork()),
            odds: Cell::new(Odds::default()),
            store_is_down: Cell::new(false),
        });
        let mut world = Self {
            plan,
            rules,
            shared,
            random,
            queue: BinaryHeap::new(),
            procedures: BTreeMap::new(),
            started: 0,
            phase: Phase::Healthy,
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
            world.after(5 * MINUTE, Event::PhaseEnds);
        }
        world.after(SECOND, Event::Query);
        world
    }

    pub(crate) fn now(&self) -> u64 {
        self.shared.store.borrow().now.0
    }

    /// Queues an event; events of one instant are in random order.
    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        let (at, tie) = (self.now() + delay, self.random.next());
        self.queue.push(Reverse((at, tie, event)));
    }

    pub(crate) fn nodes_are_up(&self) -> bool {
        self.phase != Phase::NodesDown
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Starts a procedure on behalf of these users.
    pub(crate) fn spawn<F>(&mut self, users: Vec<usize>, procedure: impl FnOnce(Client, Rules) -> F)
    where
        F: Future<Output = bool> + 'static,
    {
        let client = Client::new(&self.shared, users.clone());
        let future = Box::pin(procedure(client, self.rules));
        self.started += 1;
        self.procedures.insert(self.started, Procedure { future, users });
        self.report.most_in_flight = self.report.most_in_flight.max(self.procedures.len());
        self.after(0, Event::Poll(self.started));
    }

    fn run_until(&mut self, agents: &mut Agents, end: u64) {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if at > end || self.shared.store.borrow().checker.violation.is_some() {
                break;
            }
            self.shared.store.borrow_mut().now = Time(at);
            self.report.steps += 1;
            self.step(agents, event);
            self.check_touched();
        }
    }

    /// Ends all faults and stops all devices: every publication must become right, and no session may leak.
    fn close(&mut self, agents: &mut Agents) {
        self.enter(Phase::Healthy);
        self.is_closing = true;
        let end = self.now() + self.rules.alive_for().0 * 2 + 5 * MINUTE;
        self.run_until(agents, end);
        let mut store = self.shared.store.borrow_mut();
        let now = store.now;
        for user in 0..self.plan.users {
            if store.checker.is_late(now, user) {
                store.checker.violate(now, user, "5: what is published is wrong long after the faults ended");
            }
        }
        let leaked = store.leaked().first().map(|(user, session)| (*user, format!("{session:?}")));
        if let Some((user, session)) = leaked {
            store.checker.violate(now, user, format!("5: a session is left behind: {session}"));
        }
    }

    fn step(&mut self, agents: &mut Agents, event: Event) {
        match event {
            Event::Poll(procedure) => self.poll(agents, procedure),
            Event::Probe { user } => {
                if self.probe_at[user] == Some(self.now()) {
                    self.probe_at[user] = None;
                    self.check_user(user);
                }
            }
            Event::Sweep { node } => {
                self.after(SWEEP_EVERY, event);
                if self.phase != Phase::NoSweeps && self.nodes_are_up() {
                    agents.sweep(self, node);
                }
            }
            Event::PhaseEnds if self.is_closing => {}
            Event::PhaseEnds => self.next_phase(),
            _ => agents.act(self, event),
        }
    }

    fn poll(&mut self, agents: &mut Agents, id: u64) {
        let is_flaky = self.phase == Phase::Flaky;
        let Some(procedure) = self.procedures.get_mut(&id) else { return };
        if is_flaky && self.random.chance(150) {
            let users = procedure.users.clone();
            self.procedures.remove(&id);
            return self.interrupted(agents, &users);
        }
        if is_flaky && self.random.chance(30) {
            let users = procedure.users.clone();
            let stall = self.random.between(SECOND, 90 * SECOND);
            self.after(stall, Event::Poll(id));
            return self.interrupted(agents, &users);
        }
        match procedure.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                let latency = self.random.between(0, if is_flaky { 150 } else { 4 });
                self.after(latency, Event::Poll(id));
            }
            Poll::Ready(succeeded) => {
                let procedure = self.procedures.remove(&id);
                if let Some(procedure) = procedure.filter(|_| !succeeded) {
                    agents.failed(self, &procedure.users);
                }
            }
        }
    }

    fn interrupted(&mut self, agents: &mut Agents, users: &[usize]) {
        self.report.crashes += 1;
        tolerate(&mut self.shared.store.borrow_mut(), users);
        agents.failed(self, users);
    }

    fn next_phase(&mut self) {
        let (next, lasts) = match self.phase {
            Phase::Healthy => match self.random.between(0, 5) {
                kind if kind == 0 || self.plan.faults == Faults::StoreOutages => {
                    (Phase::StoreDown(Time(self.now())), self.random.between(SECOND, 4 * MINUTE))
                }
                1 => (Phase::NodesDown, self.random.between(SECOND, 4 * MINUTE)),
                2 => (Phase::NoSweeps, self.random.between(10 * SECOND, 3 * MINUTE)),
                _ => (Phase::Flaky, self.random.between(10 * SECOND, 3 * MINUTE)),
            },
            // Sometimes the next fault follows shortly.
            _ if self.random.chance(3000) => (Phase::Healthy, self.random.between(SECOND, MINUTE)),
            _ => (Phase::Healthy, self.random.between(2 * MINUTE, 12 * MINUTE)),
        };
        self.enter(next);
        self.after(lasts, Event::PhaseEnds);
    }

    fn enter(&mut self, next: Phase) {
        let before = std::mem::replace(&mut self.phase, next);
        let odds = Odds { refused: 150, answer_lost: 150, item: 150 };
        self.shared.odds.set(if next == Phase::Flaky { odds } else { Odds::default() });
        self.shared.store_is_down.set(matches!(next, Phase::StoreDown(_)));
        if next == Phase::NodesDown {
            let killed = std::mem::take(&mut self.procedures);
            self.report.crashes += killed.len() as u64;
            for procedure in killed.into_values() {
                tolerate(&mut self.shared.store.borrow_mut(), &procedure.users);
            }
        }
        {
            let mut store = self.shared.store.borrow_mut();
            store.checker.healthy_since = (next == Phase::Healthy).then_some(store.now);
            if let Phase::StoreDown(began) = before {
                store.outage_grace(began);
            }
        }
        for user in 0..self.plan.users {
            self.check_user(user);
        }
    }

    fn check_touched(&mut self) {
        let mut dirty = std::mem::take(&mut self.shared.store.borrow_mut().dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for user in dirty {
            self.check_user(user);
        }
    }

    /// Queries a user as a viewer would, compares the answer with the oracle and queues the next check.
    fn check_user(&mut self, user: usize) {
        let answer = {
            let client = Client::instant(&self.shared);
            let users = [&user_id(user)].into_iter().collect();
            let asked = pin!(query::look_up((&client, &client, &client), &self.rules, None, users));
            asked.poll(&mut Context::from_waker(Waker::noop()))
        };
        let Poll::Ready(Ok(answers)) = answer else { panic!("an instant query is never pending") };
        let mut store = self.shared.store.borrow_mut();
        let now = store.now;
        match answers.first() {
            Some(Ok(Some(view))) => store.checker.looked_up(now, user, &view.published),
            other => store.checker.violate(now, user, format!("1: a query has no result: {other:?}")),
        }
        let next = store.checker.probe(now, user).map(|at| at.0);
        drop(store);
        if let Some(next) = next.filter(|&next| self.probe_at[user].is_none_or(|at| next < at)) {
            self.probe_at[user] = Some(next);
            let tie = self.random.next();
            self.queue.push(Reverse((next, tie, Event::Probe { user })));
        }
    }
}
