//! The rounds over a Redis that any number of hosts share, with no leader and no lock.
//!
//! Every host tells the others that it is there, and each takes its share of the shards: who is due there it settles at
//! once. The other shards it visits from time to time, the more seldom the more hosts there are, so that those of a host
//! that was killed do not wait until it is missed. If two hosts disagree about who has which share, both do the same work
//! for a moment and the compare-and-swap lets one of them win.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rollcall_core::{Span, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards};
use rollcall_redis::native::Redis;
use rollcall_store::{Store, shard_of};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::{Cause, Settler};
use crate::config::Notice;

/// How soon a host sweeps its own share again after somebody was due in it.
const SWEEP_SOON: Duration = Duration::from_millis(100);

/// The longest pause between two sweeps of a share in which nobody is due: with the time that a pass takes, well below the
/// second that an offline event may be late.
const SWEEP_AT_LEAST_EVERY: Duration = Duration::from_millis(400);

/// How often the shards of a host are visited by one of the others, however many there are. If the upgraded is dead too,
/// it is the next one's turn.
const VISIT_EVERY: Duration = Duration::from_millis(300);

/// Shards swept by one call: a call asks each of them, and is answered with no more than a batch.
const SLICE: u32 = 16;

/// Whoever is overdue by so long in another host's share has been left alone there. With the time until the next visit,
/// still well below a second.
const LATE: Span = Span(250);

/// How often cold people are archived. Nobody waits for it.
const ARCHIVE_EVERY: Duration = Duration::from_secs(1);

/// Notifications that wait for one worker; what does not fit is left to the sweep.
const MAX_WAITING: usize = 64 * MAX_BATCH;

/// The share of the shards that is a host's own, and how many hosts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Its own.
    pub(crate) shards: Shards,
    /// Which of the hosts, from 0.
    pub(crate) place: u32,
    /// Hosts, this one included.
    pub(crate) hosts: u32,
}

impl Share {
    /// The share of the host at `place` among so many.
    pub(crate) fn of(place: u32, hosts: u32, shards: u32) -> Self {
        let turn = Turn { index: place, of: hosts.max(1) };
        Self { shards: turn.part(Shards { first: 0, end: shards }), place, hosts: turn.of }
    }

    /// Whose shards this host visits in a round; none if it is alone. In every round each host is visited by one other,
    /// and in as many rounds as there are others by each of them.
    fn visited_in(self, round: u64) -> Option<u32> {
        let others = self.hosts.checked_sub(1).filter(|others| *others > 0)?;
        let ahead = 1 + (round % u64::from(others)) as u32;
        Some((self.place + ahead) % self.hosts)
    }
}

/// One of several that divide something among themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Which, from 0.
    pub(crate) index: u32,
    /// Of how many.
    pub(crate) of: u32,
}

impl Turn {
    /// A fair part; together they cover everything once.
    pub(crate) fn part(self, shards: Shards) -> Shards {
        let count = shards.end.saturating_sub(shards.first);
        let at = |index: u32| shards.first + count * index / self.of.max(1);
        Shards { first: at(self.index), end: at(self.index + 1) }
    }
}

/// One worker's part in it.
pub(crate) struct Plan {
    pub(crate) store: Arc<Redis>,
    pub(crate) share: watch::Receiver<Share>,
    /// Which of this host's workers.
    pub(crate) turn: Turn,
    pub(crate) notice: Notice,
    /// Those of its part who are notified.
    pub(crate) expired: mpsc::Receiver<UserId>,
}

/// Hands people who were notified to the worker in whose part they are.
pub(crate) struct Notices {
    share: watch::Receiver<Share>,
    shards: u32,
    /// One for each worker.
    lines: Vec<mpsc::Sender<UserId>>,
}

impl Notices {
    /// For so many workers, with what each of them listens to.
    pub(crate) fn new(share: watch::Receiver<Share>, shards: u32, workers: u32) -> (Self, Vec<mpsc::Receiver<UserId>>) {
        let (lines, expired) = (0..workers).map(|_| mpsc::channel(MAX_WAITING)).unzip();
        (Self { share, shards, lines }, expired)
    }

    /// Takes a notification. Those of other hosts' shards are theirs.
    pub(crate) fn take(&self, user: UserId) {
        let share = *self.share.borrow();
        let shard = shard_of(user.as_str(), self.shards);
        let of = self.lines.len() as u32;
        let holds = |index: u32| {
            let part = Turn { index, of }.part(share.shards);
            (part.first..part.end).contains(&shard)
        };
        if let Some((_, line)) = (0..of).zip(&self.lines).find(|(index, _)| holds(*index)) {
            // A worker that cannot follow leaves the rest to the sweep.
            let _ = line.try_send(user);
        }
    }
}

/// One worker's rounds.
pub(crate) struct Rounds {
    pub(super) settler: Settler,
    pub(super) plan: Plan,
}

impl Rounds {
    pub(super) async fn go(self) {
        let Self { settler, mut plan } = self;
        let (_, nobody) = mpsc::channel(1);
        let expired = std::mem::replace(&mut plan.expired, nobody);
        let (settler, plan) = (&settler, &plan);
        tokio::join!(
            follow(settler, expired),
            async {
                match plan.notice {
                    Notice::Both | Notice::Sweep => {
                        tokio::join!(keep_sweeping(settler, plan), keep_visiting(settler, plan));
                    }
                    Notice::Notifications => {}
                }
            },
            keep_archiving(settler, plan),
        );
    }
}

/// Settles whoever is notified, as many at once as have come.
async fn follow(settler: &Settler, mut expired: mpsc::Receiver<UserId>) {
    let mut users = Vec::new();
    while expired.recv_many(&mut users, MAX_BATCH).await > 0 {
        settler.settle(Cause::Notification, std::mem::take(&mut users)).await;
    }
    // Nobody will ever speak on this line; the sweep goes on.
    std::future::pending::<()>().await;
}

/// Sweeps this worker's part of the host's share, for ever; the more seldom the less there is to do.
async fn keep_sweeping(settler: &Settler, plan: &Plan) {
    let mut pause = SWEEP_SOON;
    let mut nudged = HashSet::new();
    // A host that starts may be the first after all were killed: then nobody else looks after any of the shards.
    let mut everything = Some(Shards { first: 0, end: plan.store.shards() });
    loop {
        tokio::time::sleep(pause).await;
        let shards = everything.take().unwrap_or(plan.share.borrow().shards);
        let before = std::mem::take(&mut nudged);
        let mut due = 0;
        for slice in slices(plan.turn.part(shards)) {
            due += match plan.notice {
                Notice::Both => nudge_or_sweep(settler, plan, slice, &before, &mut nudged).await,
                Notice::Sweep | Notice::Notifications => settler.sweep(slice).await,
            };
        }
        pause = if due > 0 { SWEEP_SOON } else { (pause * 2).min(SWEEP_AT_LEAST_EVERY) };
    }
}

/// Reads the keys of those who are due in these shards, so that Redis notices that their time is over and tells everybody
/// who listens: by itself it does so far too late once it holds many. Whoever was nudged in the pass before and is still
/// due was not heard of, and is swept. Answers how many were due.
async fn nudge_or_sweep(
    settler: &Settler,
    plan: &Plan,
    shards: Shards,
    before: &HashSet<UserId>,
    nudged: &mut HashSet<UserId>,
) -> u32 {
    let Ok(due) = plan.store.due(shards, MAX_BATCH as u32).await else { return 0 };
    let count = due.len() as u32;
    let (left, fresh): (Vec<UserId>, Vec<UserId>) = due.into_iter().partition(|user| before.contains(user));
    if !fresh.is_empty() && plan.store.nudge(&fresh).await.is_ok() {
        nudged.extend(fresh);
    }
    if !left.is_empty() {
        settler.settle(Cause::Sweep, left).await;
    }
    count
}

/// Visits everybody else's shards in turn, for ever. Whose turn it is in a round follows from the store's time, which all
/// hosts share: so they keep the rhythm together although none asks another.
async fn keep_visiting(settler: &Settler, plan: &Plan) {
    let every = VISIT_EVERY.as_millis() as u64;
    loop {
        let round = plan.store.now().0 / every;
        let share = *plan.share.borrow();
        let visits: Vec<Shards> = match share.visited_in(round) {
            Some(host) => slices(plan.turn.part(Share::of(host, share.hosts, plan.store.shards()).shards)).collect(),
            None => Vec::new(),
        };
        let count = visits.len() as u64;
        for (index, slice) in (0..).zip(visits) {
            until(plan, round * every + every * index / count.max(1)).await;
            // Whoever is just due is its host's business.
            if let Ok(late) = plan.store.late(slice, MAX_BATCH as u32, LATE).await
                && !late.is_empty()
            {
                settler.settle(Cause::Sweep, late).await;
            }
        }
        until(plan, (round + 1) * every).await;
    }
}

/// Waits for an instant on the store's clock. One that has passed is not waited for.
async fn until(plan: &Plan, at_ms: u64) {
    let left = Duration::from_millis(at_ms.saturating_sub(plan.store.now().0));
    // The clock of a store that comes back may be set anew: nobody waits for it longer than for a round.
    tokio::time::sleep(left.min(VISIT_EVERY)).await;
}

/// Archives in this worker's part, for ever.
async fn keep_archiving(settler: &Settler, plan: &Plan) {
    let mut ticks = interval(ARCHIVE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let share = *plan.share.borrow();
        settler.archive(plan.turn.part(share.shards)).await;
    }
}

/// A range in pieces of a call each.
fn slices(range: Shards) -> impl Iterator<Item = Shards> {
    let firsts = (range.first..range.end).step_by(SLICE as usize);
    firsts.map(move |first| Shards { first, end: (first + SLICE).min(range.end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(ranges: impl IntoIterator<Item = Shards>) -> Vec<u32> {
        ranges.into_iter().flat_map(|range| range.first..range.end).collect()
    }

    #[test]
    fn shares_and_parts_cover_every_shard_exactly_once() {
        for hosts in 1..=9 {
            for workers in 1..=5 {
                let shares = (0..hosts).map(|place| Share::of(place, hosts, 256).shards);
                let parts =
                    shares.flat_map(|share| (0..workers).map(move |index| Turn { index, of: workers }.part(share)));
                assert_eq!(
                    cells(parts.flat_map(slices)),
                    (0..256).collect::<Vec<_>>(),
                    "{hosts} hosts, {workers} workers"
                );
            }
        }
    }

    #[test]
    fn in_every_round_each_host_is_visited_by_one_other_and_in_time_by_all_of_them() {
        assert_eq!(Share::of(0, 1, 100).visited_in(7), None);
        for hosts in 2..=9 {
            let visited = |round: u64| (0..hosts).map(move |place| Share::of(place, hosts, 100).visited_in(round));
            let mut visitors = vec![std::collections::HashSet::new(); hosts as usize];
            for round in 40..40 + u64::from(hosts) - 1 {
                let visited: Vec<u32> = visited(round).flatten().collect();
                for (host, upgraded) in visited.iter().zip(0..) {
                    assert_ne!(*host, upgraded);
                    assert!(
                        visitors.get_mut(*host as usize).is_some_and(|seen| seen.insert(upgraded)),
                        "comes again too soon"
                    );
                }
                let all: std::collections::HashSet<_> = visited.iter().collect();
                assert_eq!(all.len(), hosts as usize, "nobody is left out in round {round}");
            }
        }
    }
}
