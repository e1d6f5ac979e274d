//! Simulated users and nodes: when devices beat and leave, what users choose, and when nodes sweep and archive.

use rollcall_core::choose::{NewChoice, NoteContent};
use rollcall_core::{DeviceId, DeviceKind, Rules, Span, Stance, State, Time, UserId};
use rollcall_functions::capabilities::Shards;
use rollcall_functions::heartbeat::{
    Beat, ChoiceRequest, Departure, DepartureReason, beat_many, choose_many, leave_many,
};
use rollcall_functions::query::{self, View};
use rollcall_functions::sweep::{archive, settle_users, sweep};

use crate::client::Client;
use crate::store::{SHARDS, user_id};
use crate::world::{Event, World};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const DEVICES: usize = 3;
/// Every eighth user is steady: one device that always beats in time, never leaves and never chooses.
const STEADY_EVERY: usize = 8;
/// How long a node gathers beats into a batch.
const GATHER: u64 = 10;

#[derive(Debug, Clone, Copy, Default)]
struct SimDevice {
    is_on: bool,
    /// Counts restarts: beats queued before the last one are ignored.
    generation: u64,
    ends_at: u64,
    idle_from: u64,
}

/// All devices, and the beats that nodes have gathered.
pub(crate) struct Agents {
    devices: Vec<[SimDevice; DEVICES]>,
    gathered: Vec<(usize, usize, bool)>,
}

impl Agents {
    pub(crate) fn new(world: &mut World) -> Self {
        let users = world.plan.users;
        for user in 0..users {
            let devices = if is_steady(user) { 1 } else { DEVICES };
            for device in 0..devices {
                let delay = world.random.between(0, if device == 0 { MINUTE } else { 60 * MINUTE });
                world.after(delay, Event::Start { user, device });
            }
            if !is_steady(user) {
                let delay = world.random.between(0, 30 * MINUTE);
                world.after(delay, Event::Choose { user });
            }
        }
        Self { devices: vec![[SimDevice::default(); DEVICES]; users], gathered: Vec::new() }
    }

    /// The users who always beat in time.
    pub(crate) fn steady(&self) -> impl Iterator<Item = usize> {
        (0..self.devices.len()).filter(|&user| is_steady(user))
    }

    pub(crate) fn act(&mut self, world: &mut World, event: Event) {
        match event {
            Event::Start { user, device } => self.start(world, user, device),
            Event::Beat { user, device, generation } => self.beat(world, user, device, generation),
            Event::Arrive { user, device, active } if world.nodes_are_up() => {
                if self.gathered.is_empty() {
                    world.after(GATHER, Event::Flush);
                }
                self.gathered.push((user, device, active));
            }
            Event::Flush => self.flush(world),
            Event::Leave { user, device, is_logout } if world.nodes_are_up() => leave(world, user, device, is_logout),
            Event::Choose { user } if !world.is_closing() => choose(world, user),
            Event::Hint { user } if world.nodes_are_up() => hint(world, user),
            Event::Query if !world.is_closing() => ask(world),
            Event::Archive { node } => {
                // As often as a sweep, because a user who waits for eviction may have a note that ends.
                let delay = world.random.between(SECOND / 2, SECOND);
                world.after(delay, Event::Archive { node });
                if world.nodes_are_up() {
                    archive_some(world);
                }
            }
            _ => {}
        }
    }

    /// Users whose call failed retry: steady users always, others half of the time.
    pub(crate) fn failed(&mut self, world: &mut World, users: &[usize]) {
        for &user in users {
            let device_state = self.devices[user][0];
            if device_state.is_on && (is_steady(user) || world.random.chance(5000)) {
                let delay = world.random.between(SECOND, 3 * SECOND);
                world.after(delay, Event::Arrive { user, device: 0, active: true });
            }
        }
    }

    pub(crate) fn sweep(&mut self, world: &mut World, node: u64) {
        let limit = world.random.pick(&[16, 1024]);
        // One node sweeps all shards, the others half of them each: two nodes race for every user.
        let half = SHARDS / 2;
        let shards = match node {
            0 => Shards { first: 0, end: SHARDS },
            1 => Shards { first: 0, end: half },
            _ => Shards { first: half, end: SHARDS },
        };
        world.spawn(Vec::new(), move |client, rules| async move {
            // A bound on the passes, in case all users fail and stay due.
            for _ in 0..64 {
                match sweep(&client, &rules, shards, limit).await {
                    Ok(settled) if settled.examined == limit => {}
                    outcome => return outcome.is_ok(),
                }
            }
            false
        });
    }

    fn start(&mut self, world: &mut World, user: usize, device: usize) {
        if world.is_closing() {
            return;
        }
        let now = world.now();
        // Some devices send only one beat.
        let longest = world.random.pick(&[2 * SECOND, 2 * MINUTE, 30 * MINUTE, 90 * MINUTE]);
        let stay = world.random.between(SECOND, longest);
        let idle = world.random.between(0, 20 * MINUTE);
        let device_state = &mut self.devices[user][device];
        device_state.is_on = true;
        device_state.generation += 1;
        device_state.ends_at = if is_steady(user) { u64::MAX } else { now + stay };
        device_state.idle_from = now + idle;
        let generation = device_state.generation;
        world.after(0, Event::Beat { user, device, generation });
    }

    fn beat(&mut self, world: &mut World, user: usize, device: usize, generation: u64) {
        let (now, rules) = (world.now(), world.rules);
        let device_state = &mut self.devices[user][device];
        if !device_state.is_on || device_state.generation != generation {
            return;
        }
        if now >= device_state.ends_at || world.is_closing() {
            device_state.is_on = false;
            return end(world, user, device);
        }
        if now > device_state.idle_from + 15 * MINUTE {
            device_state.idle_from = now + world.random.between(0, 20 * MINUTE);
        }
        // A steady user may be idle too and must not flicker either.
        let active = now < device_state.idle_from;
        let latest = device_state.ends_at.saturating_sub(now);
        if is_steady(user) || !world.random.chance(400) {
            let delay = delay(world, user, &rules);
            world.after(delay, Event::Arrive { user, device, active });
        }
        let jitter = world.random.between(0, 2 * SECOND);
        world.after((rules.interval.0 - SECOND + jitter).min(latest.max(1)), Event::Beat { user, device, generation });
    }

    fn flush(&mut self, world: &mut World) {
        let gathered = std::mem::take(&mut self.gathered);
        if !world.nodes_are_up() || gathered.is_empty() {
            return;
        }
        let beats = gathered
            .iter()
            .map(|&(user, device, active)| Beat {
                user: user_id(user),
                device: device_id(device),
                kind: DeviceKind::Web,
                active,
            })
            .collect();
        let users = gathered.into_iter().map(|(user, ..)| user).collect();
        world.spawn(users, move |client, rules| async move {
            let answers = beat_many(&client, &rules, beats).await;
            answers.is_ok_and(|answers| answers.iter().all(Result::is_ok))
        });
    }
}

fn is_steady(user: usize) -> bool {
    user.is_multiple_of(STEADY_EVERY)
}

fn device_id(device: usize) -> DeviceId {
    DeviceId::parse(format!("d{device}")).unwrap()
}

/// How long a beat takes to arrive. Most are fast, some are overtaken by later ones, and some arrive just when their
/// device expires and its notification is sent.
fn delay(world: &mut World, user: usize, rules: &Rules) -> u64 {
    if world.random.chance(9000) {
        return world.random.between(0, 100);
    }
    if is_steady(user) {
        return world.random.between(0, rules.tolerance.0 / 5);
    }
    if world.random.chance(5000) {
        return world.random.between(0, 60 * SECOND);
    }
    let notified = rules.tolerance.0 + world.random.between(0, 2 * SECOND);
    world.after(notified, Event::Hint { user });
    notified.saturating_sub(world.random.between(0, 20))
}

/// A device logs out, drops its connection or falls silent; it starts again later.
fn end(world: &mut World, user: usize, device: usize) {
    let way = world.random.between(0, 2);
    if way < 2 {
        let delay = world.random.between(0, 200);
        world.after(delay, Event::Leave { user, device, is_logout: way == 0 });
    }
    let pause = if world.random.chance(4000) { 90 * SECOND } else { 60 * MINUTE };
    let pause = world.random.between(0, pause);
    world.after(pause, Event::Start { user, device });
}

fn leave(world: &mut World, user: usize, device: usize, is_logout: bool) {
    let reason = if is_logout { DepartureReason::Logout } else { DepartureReason::Dropped };
    let departures = vec![Ok(Departure { user: user_id(user), device: device_id(device), reason })];
    world.spawn(vec![user], move |client, rules| async move {
        let answers = leave_many(&client, &rules, departures).await;
        answers.is_ok_and(|answers| answers.iter().all(Result::is_ok))
    });
}

fn choose(world: &mut World, user: usize) {
    let random = &mut world.random;
    let stance = random.pick(&[Stance::Auto, Stance::Away, Stance::Busy, Stance::Invisible, Stance::Invisible]);
    let lasts = random.chance(6000).then(|| random.pick(&[1, 20, 60, 600, 3600])).map(Span::seconds);
    let note = random
        .chance(4000)
        .then(|| NoteContent { text: format!("note {}", random.between(0, 2)), emoji: String::new() });
    // Sometimes the next choice follows at once and may race with this one.
    let pause = if random.chance(2000) { 5 } else { 25 * MINUTE };
    let pause = random.between(0, pause);
    world.after(pause, Event::Choose { user });
    if !world.nodes_are_up() {
        return;
    }
    let requests = vec![Ok(ChoiceRequest { user: user_id(user), choice: NewChoice { stance, lasts, note } })];
    world.spawn(vec![user], move |client, rules| async move {
        let answers = choose_many(&client, &rules, requests).await;
        answers.is_ok_and(|answers| answers.iter().all(Result::is_ok))
    });
}

/// Several nodes receive the notification and race to settle the user.
fn hint(world: &mut World, user: usize) {
    for _ in 0..world.random.between(1, 3) {
        let other = world.random.next() as usize % world.plan.users;
        world.spawn(Vec::new(), move |client, rules| async move {
            settle_users(&client, &rules, vec![user_id(user), user_id(other), user_id(user)]).await.is_ok()
        });
    }
}

fn archive_some(world: &mut World) {
    let limit = world.random.pick(&[8, 1024]);
    world.spawn(Vec::new(), move |client, rules| async move {
        archive(&client, &client, &rules, Shards { first: 0, end: SHARDS }, limit).await.is_ok()
    });
}

/// A query that runs concurrently: its last seen must lie between the true values at its start and at its end.
fn ask(world: &mut World) {
    let delay = world.random.between(SECOND, 20 * SECOND);
    world.after(delay, Event::Query);
    if !world.nodes_are_up() {
        return;
    }
    let first = world.random.next() as usize % world.plan.users;
    let users: Vec<usize> = (0..4).map(|step| (first + step) % world.plan.users).collect();
    let shared = world.shared.clone();
    world.spawn(Vec::new(), move |client: Client, rules| async move {
        let seen = |user: usize| -> Option<Time> { shared.store.borrow().checker.watched[user].oracle.seen };
        let before: Vec<_> = users.iter().map(|&user| seen(user)).collect();
        let ids: Vec<UserId> = users.iter().map(|&user| user_id(user)).collect();
        let ids = ids.iter().collect();
        let Ok(answers) = query::look_up((&client, &client, &client), &rules, None, ids).await else { return false };
        for ((answer, user), before) in answers.into_iter().zip(users).zip(before) {
            let after = seen(user);
            let Ok(Some(View { published, .. })) = answer else { continue };
            let answered = published.last_seen;
            // While a user is online, the last seen is that of the record.
            if answered > after || (published.state == State::Offline && answered < before) {
                let mut store = shared.store.borrow_mut();
                let now = store.now;
                store.checker.violate(
                    now,
                    user,
                    format!("5: a query answers {answered:?}, not {before:?} to {after:?}"),
                );
            }
        }
        true
    });
}
