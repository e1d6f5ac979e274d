//! One shard: some of the sessions under one lock, with their deadlines sorted.
//!
//! Every change of a session happens under this lock, publication included, so that records of one user are published in the order
//! of their versions. The earliest deadline can be read without the lock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollcall_core::heartbeat::PriorState;
use rollcall_core::{Moment, Next, Record, Revision, Session, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction};

use super::PublishHook;
use super::entry::{Entry, TouchTime};
use super::index_table::IndexTable;
use super::prefetch::prefetch;
use crate::StoreFuture;
use crate::persistence::{ChoiceStore, StoredChoice};

/// Later than any deadline.
const NEVER: Time = Time(u64::MAX);

/// The two queues of deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// The due queue: sessions to be settled.
    Settle,
    /// The archive queue: sessions to be evicted.
    Evict,
}

/// What is called after a commit.
#[derive(Clone, Default)]
pub(super) struct Observers {
    pub(super) on_publish: Option<PublishHook>,
    pub(super) choice_store: Option<Arc<dyn ChoiceStore>>,
}

/// The outcome of a commit, and the write that must finish before it is confirmed.
pub(super) type Outcome = (Committed, Option<StoreFuture<'static, ()>>);

/// One shard. Aligned, so that the locks of two shards never share a cache line.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Shard {
    state: Mutex<State>,
    earliest_settle: Earliest,
    earliest_evict: Earliest,
}

/// The earliest deadline of a queue, as of the last change.
struct Earliest(AtomicU64);

impl Default for Earliest {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER.0))
    }
}

#[derive(Default)]
struct State {
    /// The index in `entries` of each user.
    table: IndexTable,
    entries: Vec<Option<Entry>>,
    /// Free indexes of `entries`.
    vacant: Vec<u32>,
    /// Sessions to be settled, by deadline.
    settle: BTreeSet<(Time, u32)>,
    /// Sessions to be evicted, by deadline.
    evict: BTreeSet<(Time, u32)>,
    /// The source of all revisions of the shard. It only rises, so that no revision repeats, not even for a session that was
    /// dropped and created again.
    ticks: u64,
    /// The newest version among the evicted sessions. A user without a session has no revision that distinguishes one absence
    /// from the next; this does, see [`State::is_stale`].
    evicted_version: u64,
    /// The online count.
    online: usize,
}

/// A user id and its seeded hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) tag: u32,
}

impl Shard {
    /// Prefetches the memory where a lookup of this user begins. If the lock is taken, it does nothing: a hint is not worth
    /// waiting for.
    pub(super) fn prefetch_lookup(&self, key: Key<'_>) {
        if let Some(state) = self.state.try_lock()
            && let Some(home) = state.table.home(key.tag)
        {
            prefetch(home);
        }
    }

    /// Prefetches this user's session, once the table is in the cache.
    pub(super) fn prefetch_session(&self, key: Key<'_>) {
        if let Some(state) = self.state.try_lock()
            && let Some(index) = state.table.likely(key.tag)
            && let Some(entry) = state.entries.get(index as usize)
        {
            prefetch(entry);
        }
    }

    /// Applies a device event and returns the state before it.
    pub(super) fn touch(&self, key: Key<'_>, device: &str, event: DeviceEvent, when: TouchTime) -> PriorState {
        let mut state = self.state.lock();
        let tick = state.tick();
        let index = state.find(key);
        if let Some((index, entry)) = index.and_then(|index| Some((index, state.at_mut(index)?))) {
            let (prior, before) = (entry.prior_state(), entry.next);
            entry.tick = tick;
            entry.touch(device, event, when);
            let after = entry.next;
            // In the steady state a touch does not move the deadline, and only the entry is written.
            if before != after {
                state.reschedule(index, before, after);
                self.publish_earliest(&state);
            }
            return prior;
        }
        let mut entry = Entry::new(key.name);
        entry.tick = tick;
        entry.touch(device, event, when);
        // A departure of an unknown device creates no session.
        if !entry.is_idle() {
            state.insert(key, entry);
            self.publish_earliest(&state);
        }
        PriorState::NOTHING
    }

    /// The published record.
    pub(super) fn read(&self, key: Key<'_>, now: Time) -> Record {
        let state = self.state.lock();
        state.get(key).map_or(Record::NOTHING, |entry| entry.to_record(now))
    }

    /// The session; an empty one if there is none.
    pub(super) fn load(&self, key: Key<'_>) -> Session {
        let state = self.state.lock();
        state.get(key).map(Entry::to_session).unwrap_or_default()
    }

    /// Applies a decision if the revision is unchanged.
    pub(super) fn commit(&self, key: Key<'_>, commit: Commit, now: Time, observers: &Observers) -> Outcome {
        let mut state = self.state.lock();
        let Commit { user, expected, decision } = commit;
        let publish = decision.publish.clone();
        if state.is_stale(key, expected, publish.as_ref().map(|published| published.version)) {
            return (Committed::Stale, None);
        }
        let stored = match (&decision.choice, &observers.choice_store) {
            (Some(choice), Some(choice_store)) => {
                let choice = Some(choice.clone()).filter(|choice| choice.matters_at(now));
                let published_before = || state.get(key).and_then(Entry::last_seen);
                let last_seen = publish.as_ref().and_then(|published| published.last_seen).or_else(published_before);
                Some(choice_store.store(StoredChoice { user: user.clone(), choice, last_seen }))
            }
            _ => None,
        };
        let index = state.find(key).unwrap_or_else(|| state.insert(key, Entry::new(key.name)));
        let tick = state.tick();
        state.change(index, |entry| {
            entry.tick = tick;
            entry.apply(decision);
        });
        if state.at(index).is_some_and(Entry::is_idle) {
            state.remove(key);
        }
        self.publish_earliest(&state);
        // Last, so that everything else is done if the hook panics.
        if let (Some(published), Some(on_publish)) = (&publish, &observers.on_publish) {
            on_publish(&user, published);
        }
        (Committed::Applied, stored)
    }

    /// Drops a session if the revision is unchanged.
    pub(super) fn evict(&self, key: Key<'_>, eviction: Eviction, now: Time, observers: &Observers) -> Outcome {
        let mut state = self.state.lock();
        if state.is_stale(key, eviction.expected, None) {
            return (Committed::Stale, None);
        }
        let Some(entry) = state.remove(key) else { return (Committed::Applied, None) };
        // At most now: a version from the future, written while a clock was wrong, must not make every later commit of a new
        // session look stale.
        state.evicted_version = state.evicted_version.max(entry.version().min(now.0.saturating_mul(1000)));
        self.publish_earliest(&state);
        let stored = match &observers.choice_store {
            Some(choice_store) if entry.has_choice() => {
                Some(choice_store.store(StoredChoice { user: eviction.user, choice: None, last_seen: None }))
            }
            _ => None,
        };
        (Committed::Applied, stored)
    }

    /// Replaces a session; for a store that is being restored.
    pub(super) fn restore(&self, key: Key<'_>, session: Session) {
        let mut state = self.state.lock();
        state.remove(key);
        let mut entry = Entry::from_session(key.name, session);
        entry.tick = state.tick();
        state.insert(key, entry);
        self.publish_earliest(&state);
    }

    /// The earliest deadline in this queue, without taking the lock.
    pub(super) fn earliest(&self, queue: Queue) -> Option<Time> {
        let Earliest(earliest) = match queue {
            Queue::Settle => &self.earliest_settle,
            Queue::Evict => &self.earliest_evict,
        };
        // Relaxed: the value only decides whether to take the lock, and a read that misses a change is followed by another.
        Some(Time(earliest.load(Ordering::Relaxed))).filter(|&earliest| earliest != NEVER)
    }

    /// Passes entries of this queue whose instant has passed to `take`, the earliest first, until it returns false.
    pub(super) fn passed(&self, queue: Queue, now: Time, mut take: impl FnMut(Time, u32) -> bool) {
        let state = self.state.lock();
        for &(at, index) in state.queue(queue) {
            if at > now || !take(at, index) {
                return;
            }
        }
    }

    /// The user at this index, if the session still waits for that instant.
    pub(super) fn waiting(&self, queue: Queue, at: Time, index: u32) -> Option<UserId> {
        let state = self.state.lock();
        let entry = state.at(index)?;
        (slot(entry.next) == Some((queue, at))).then(|| UserId::parse(entry.user.to_text()).ok()).flatten()
    }

    /// All sessions of the shard.
    pub(super) fn export(&self, moment: &Moment, into: &mut Vec<(UserId, Session)>) {
        let state = self.state.lock();
        into.extend(state.entries.iter().flatten().filter_map(|entry| {
            let user = UserId::parse(entry.user.to_text()).ok()?;
            let mut session = entry.to_session();
            // Outage grace must outlive the run that granted it, or a second restart would revoke it.
            for device in &mut session.devices {
                device.expires_at = moment.effective_expiry(device);
            }
            Some((user, session))
        }));
    }

    /// The number of sessions, and the online count.
    pub(super) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.entries.len() - state.vacant.len(), state.online)
    }

    fn publish_earliest(&self, state: &State) {
        for (earliest, queue) in [(&self.earliest_settle, &state.settle), (&self.earliest_evict, &state.evict)] {
            let first = queue.first().map_or(NEVER, |(at, _)| *at);
            earliest.0.store(first.0, Ordering::Relaxed);
        }
    }
}

impl State {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn at(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)?.as_ref()
    }

    fn at_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    fn find(&self, key: Key<'_>) -> Option<u32> {
        self.table.find(key.tag, |index| self.at(index).is_some_and(|entry| entry.user.is(key.name)))
    }

    fn get(&self, key: Key<'_>) -> Option<&Entry> {
        self.at(self.find(key)?)
    }

    /// Whether the session changed since the load. Equal revisions mean no, except for a user without a session: they may have come,
    /// been published and been evicted in between, and no revision is kept of that. A decision from before carries a version
    /// that is not newer than the evicted one.
    fn is_stale(&self, key: Key<'_>, expected: Revision, version: Option<u64>) -> bool {
        match self.get(key) {
            Some(entry) => entry.revision() != expected,
            None => expected != Revision::default() || version.is_some_and(|version| version <= self.evicted_version),
        }
    }

    /// Adds a user without a session. The index fits: 2^32 entries would not fit into memory.
    fn insert(&mut self, key: Key<'_>, entry: Entry) -> u32 {
        let next = entry.next;
        self.online += usize::from(entry.is_online());
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let Some(vacancy) = self.entries.get_mut(index as usize) {
            *vacancy = Some(entry);
        }
        self.table.insert(key.tag, index);
        self.reschedule(index, Next::Nothing, next);
        index
    }

    /// Changes an entry, and the queues with it.
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.at_mut(index) else { return };
        let (before, was_online) = (entry.next, entry.is_online());
        change(entry);
        let (after, is_online) = (entry.next, entry.is_online());
        self.online = self.online + usize::from(is_online) - usize::from(was_online);
        self.reschedule(index, before, after);
    }

    fn remove(&mut self, key: Key<'_>) -> Option<Entry> {
        let entries = &self.entries;
        let is_it =
            |index: u32| entries.get(index as usize).is_some_and(|e| e.as_ref().is_some_and(|e| e.user.is(key.name)));
        let index = self.table.remove(key.tag, is_it)?;
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.vacant.push(index);
        self.online -= usize::from(entry.is_online());
        self.reschedule(index, entry.next, Next::Nothing);
        Some(entry)
    }

    fn queue(&self, queue: Queue) -> &BTreeSet<(Time, u32)> {
        match queue {
            Queue::Settle => &self.settle,
            Queue::Evict => &self.evict,
        }
    }

    fn reschedule(&mut self, index: u32, before: Next, after: Next) {
        if before == after {
            return;
        }
        for (next, enters) in [(before, false), (after, true)] {
            let Some((queue, at)) = slot(next) else { continue };
            let queue = match queue {
                Queue::Settle => &mut self.settle,
                Queue::Evict => &mut self.evict,
            };
            if enters {
                queue.insert((at, index));
            } else {
                queue.remove(&(at, index));
            }
        }
    }
}

/// The queue and the instant of a session that waits for this.
fn slot(next: Next) -> Option<(Queue, Time)> {
    match next {
        Next::Nothing => None,
        Next::Settle(at) => Some((Queue::Settle, at)),
        Next::Evict(at) => Some((Queue::Evict, at)),
    }
}
