//! One shard: some of the people, under one lock, with their deadlines in order.
//!
//! Everything that changes a person's session happens under this lock, publication included, so what is published
//! about one person goes out in the order of its versions. What can be asked without the lock is the earliest deadline.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rollcall_core::heartbeat::Found;
use rollcall_core::{Moment, Next, Revision, Session, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction};

use super::Listener;
use super::entry::{Entry, When};
use super::places::Places;
use super::prefetch::prefetch;
use crate::Answer;
use crate::keep::{Keeper, Kept};

/// Later than any deadline.
const NEVER: Time = Time(u64::MAX);

/// What a session can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agenda {
    /// To be settled.
    Settle,
    /// To be evicted.
    Evict,
}

/// Whom a store tells of what it does.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) listener: Option<Listener>,
    pub(super) keeper: Option<Arc<dyn Keeper>>,
}

/// How a commit ended, and what must be kept before that may be said.
pub(super) type Ended = (Committed, Option<Answer<'static, ()>>);

/// Some of the people. A cache line of its own, lest two shards' locks fight over one.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Shard {
    people: Mutex<People>,
    earliest_settle: Earliest,
    earliest_evict: Earliest,
}

/// The earliest deadline of an agenda, as of the last change.
struct Earliest(AtomicU64);

impl Default for Earliest {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER.0))
    }
}

#[derive(Default)]
struct People {
    /// Where in `entries` each person is.
    places: Places,
    entries: Vec<Option<Entry>>,
    /// The places in `entries` where nobody is.
    vacant: Vec<u32>,
    /// Who waits to be settled, by deadline.
    settle: BTreeSet<(Time, u32)>,
    /// Who waits to be evicted, by deadline.
    evict: BTreeSet<(Time, u32)>,
    /// The source of all revisions of the shard. It only rises, so no revision ever comes back, not even for somebody whose
    /// session was dropped and made anew.
    ticks: u64,
    /// The newest version among the sessions dropped. Somebody absent has no revision that could tell one absence from the
    /// next; this tells them apart, see [`People::is_stale`].
    forgotten: u64,
    /// How many people are visibly here.
    here: usize,
}

/// A person's name, and its keyed hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    pub(super) tag: u32,
}

impl Shard {
    /// Starts fetching the memory in which a search for this person begins. Hints are not worth waiting for: somebody
    /// who holds the lock is about to let it go, and then the search is done in earnest.
    pub(super) fn expect_search(&self, key: Key<'_>) {
        if let Some(people) = self.people.try_lock()
            && let Some(home) = people.places.home(key.tag)
        {
            prefetch(home);
        }
    }

    /// Starts fetching this person's session, once the search for them costs little.
    pub(super) fn expect_session(&self, key: Key<'_>) {
        if let Some(people) = self.people.try_lock()
            && let Some(place) = people.places.likely(key.tag)
            && let Some(entry) = people.entries.get(place as usize)
        {
            prefetch(entry);
        }
    }

    /// Leaves a trace and answers with what it found.
    pub(super) fn touch(&self, key: Key<'_>, device: &str, event: DeviceEvent, when: When) -> Found {
        let mut people = self.people.lock();
        let tick = people.tick();
        let place = people.find(key);
        if let Some((place, entry)) = place.and_then(|place| Some((place, people.at_mut(place)?))) {
            let (found, before) = (entry.found(), entry.next);
            entry.tick = tick;
            entry.touch(device, event, when);
            let after = entry.next;
            // In the steady state the deadline is the settler's business, and there is only the entry to write.
            if before != after {
                people.reschedule(place, before, after);
                self.publish_earliest(&people);
            }
            return found;
        }
        let mut entry = Entry::new(key.name);
        entry.tick = tick;
        entry.touch(device, event, when);
        // A departure of somebody who is not here leaves nothing behind.
        if !entry.is_idle() {
            people.insert(key, entry);
            self.publish_earliest(&people);
        }
        Found::NOTHING
    }

    /// The session as it stands; an empty one if there is none.
    pub(super) fn load(&self, key: Key<'_>) -> Session {
        let people = self.people.lock();
        people.get(key).map(Entry::to_session).unwrap_or_default()
    }

    /// Applies a decision if nothing came between.
    pub(super) fn commit(&self, key: Key<'_>, commit: Commit, now: Time, told: &Told) -> Ended {
        let mut people = self.people.lock();
        let Commit { user, expected, decision } = commit;
        let publish = decision.publish.clone();
        if people.is_stale(key, expected, publish.as_ref().map(|published| published.version)) {
            return (Committed::Stale, None);
        }
        let kept = match (&decision.choice, &told.keeper) {
            (Some(choice), Some(keeper)) => {
                let choice = Some(choice.clone()).filter(|choice| choice.matters_at(now));
                let told_before = || people.get(key).and_then(Entry::last_seen);
                let last_seen = publish.as_ref().and_then(|published| published.last_seen).or_else(told_before);
                Some(keeper.keep(Kept { user: user.clone(), choice, last_seen }))
            }
            _ => None,
        };
        let place = people.find(key).unwrap_or_else(|| people.insert(key, Entry::new(key.name)));
        let tick = people.tick();
        people.change(place, |entry| {
            entry.tick = tick;
            entry.apply(decision);
        });
        if people.at(place).is_some_and(Entry::is_idle) {
            people.remove(key);
        }
        self.publish_earliest(&people);
        // Last, so that a listener that panics finds everything else done.
        if let (Some(published), Some(listener)) = (&publish, &told.listener) {
            listener(&user, published);
        }
        (Committed::Applied, kept)
    }

    /// Drops a session if it stands where it stood.
    pub(super) fn evict(&self, key: Key<'_>, eviction: Eviction, now: Time, told: &Told) -> Ended {
        let mut people = self.people.lock();
        if people.is_stale(key, eviction.expected, None) {
            return (Committed::Stale, None);
        }
        let Some(entry) = people.remove(key) else { return (Committed::Applied, None) };
        // No further than now: a version from the future, brought by a clock that was once wrong, must not make every
        // later commit of a newcomer look old.
        people.forgotten = people.forgotten.max(entry.version().min(now.0.saturating_mul(1000)));
        self.publish_earliest(&people);
        let kept = match &told.keeper {
            Some(keeper) if entry.has_choice() => {
                Some(keeper.keep(Kept { user: eviction.user, choice: None, last_seen: None }))
            }
            _ => None,
        };
        (Committed::Applied, kept)
    }

    /// Puts a session in its place whatever stood there; for a store that is being filled.
    pub(super) fn restore(&self, key: Key<'_>, session: Session) {
        let mut people = self.people.lock();
        people.remove(key);
        let mut entry = Entry::from_session(key.name, session);
        entry.tick = people.tick();
        people.insert(key, entry);
        self.publish_earliest(&people);
    }

    /// The earliest deadline on this agenda, without taking the lock.
    pub(super) fn earliest(&self, agenda: Agenda) -> Option<Time> {
        let Earliest(earliest) = match agenda {
            Agenda::Settle => &self.earliest_settle,
            Agenda::Evict => &self.earliest_evict,
        };
        // Relaxed: the value only says whether it is worth taking the lock, and a look that comes too soon to see a
        // change is followed by another.
        Some(Time(earliest.load(Ordering::Relaxed))).filter(|&earliest| earliest != NEVER)
    }

    /// Shows those whose time on this agenda has come, longest overdue first, until `take` has seen enough.
    pub(super) fn passed(&self, agenda: Agenda, now: Time, mut take: impl FnMut(Time, u32) -> bool) {
        let people = self.people.lock();
        for &(at, place) in people.agenda(agenda) {
            if at > now || !take(at, place) {
                return;
            }
        }
    }

    /// Who is at this place, if they still wait there for that instant.
    pub(super) fn waiting(&self, agenda: Agenda, at: Time, place: u32) -> Option<UserId> {
        let people = self.people.lock();
        let entry = people.at(place)?;
        (slot(entry.next) == Some((agenda, at))).then(|| UserId::parse(entry.user.to_text()).ok()).flatten()
    }

    /// Everybody in the shard.
    pub(super) fn export(&self, moment: &Moment, into: &mut Vec<(UserId, Session)>) {
        let people = self.people.lock();
        into.extend(people.entries.iter().flatten().filter_map(|entry| {
            let user = UserId::parse(entry.user.to_text()).ok()?;
            let mut session = entry.to_session();
            // An outage grace must outlive the run that granted it, or a second restart would take it back.
            for device in &mut session.devices {
                device.expires_at = moment.death_of(device);
            }
            Some((user, session))
        }));
    }

    /// How many sessions there are, and how many people are visibly here.
    pub(super) fn count(&self) -> (usize, usize) {
        let people = self.people.lock();
        (people.entries.len() - people.vacant.len(), people.here)
    }

    fn publish_earliest(&self, people: &People) {
        for (earliest, agenda) in [(&self.earliest_settle, &people.settle), (&self.earliest_evict, &people.evict)] {
            let first = agenda.first().map_or(NEVER, |(at, _)| *at);
            earliest.0.store(first.0, Ordering::Relaxed);
        }
    }
}

impl People {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn at(&self, place: u32) -> Option<&Entry> {
        self.entries.get(place as usize)?.as_ref()
    }

    fn at_mut(&mut self, place: u32) -> Option<&mut Entry> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    fn find(&self, key: Key<'_>) -> Option<u32> {
        self.places.find(key.tag, |place| self.at(place).is_some_and(|entry| entry.user.is(key.name)))
    }

    fn get(&self, key: Key<'_>) -> Option<&Entry> {
        self.at(self.find(key)?)
    }

    /// Whether something came between this and the load that it was decided on. Equal revisions say no, except for somebody
    /// absent: they may have come, been published and left again meanwhile, and nothing of that is kept. What was
    /// decided before that carries an older version than what was forgotten.
    fn is_stale(&self, key: Key<'_>, expected: Revision, version: Option<u64>) -> bool {
        match self.get(key) {
            Some(entry) => entry.revision() != expected,
            None => expected != Revision::default() || version.is_some_and(|version| version <= self.forgotten),
        }
    }

    /// Adds somebody who is not there. A shard of more than 2^32 people would not fit any machine's memory.
    fn insert(&mut self, key: Key<'_>, entry: Entry) -> u32 {
        let next = entry.next;
        self.here += usize::from(entry.is_here());
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        if let Some(vacancy) = self.entries.get_mut(place as usize) {
            *vacancy = Some(entry);
        }
        self.places.insert(key.tag, place);
        self.reschedule(place, Next::Nothing, next);
        place
    }

    /// Changes somebody who is there, and the agendas with them.
    fn change(&mut self, place: u32, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.at_mut(place) else { return };
        let (before, was_here) = (entry.next, entry.is_here());
        change(entry);
        let (after, is_here) = (entry.next, entry.is_here());
        self.here = self.here + usize::from(is_here) - usize::from(was_here);
        self.reschedule(place, before, after);
    }

    fn remove(&mut self, key: Key<'_>) -> Option<Entry> {
        let entries = &self.entries;
        let is_it =
            |place: u32| entries.get(place as usize).is_some_and(|e| e.as_ref().is_some_and(|e| e.user.is(key.name)));
        let place = self.places.remove(key.tag, is_it)?;
        let entry = self.entries.get_mut(place as usize)?.take()?;
        self.vacant.push(place);
        self.here -= usize::from(entry.is_here());
        self.reschedule(place, entry.next, Next::Nothing);
        Some(entry)
    }

    fn agenda(&self, agenda: Agenda) -> &BTreeSet<(Time, u32)> {
        match agenda {
            Agenda::Settle => &self.settle,
            Agenda::Evict => &self.evict,
        }
    }

    fn reschedule(&mut self, place: u32, before: Next, after: Next) {
        if before == after {
            return;
        }
        for (next, enters) in [(before, false), (after, true)] {
            let Some((agenda, at)) = slot(next) else { continue };
            let agenda = match agenda {
                Agenda::Settle => &mut self.settle,
                Agenda::Evict => &mut self.evict,
            };
            if enters {
                agenda.insert((at, place));
            } else {
                agenda.remove(&(at, place));
            }
        }
    }
}

/// Where on which agenda somebody stands who waits for this.
fn slot(next: Next) -> Option<(Agenda, Time)> {
    match next {
        Next::Nothing => None,
        Next::Settle(at) => Some((Agenda::Settle, at)),
        Next::Evict(at) => Some((Agenda::Evict, at)),
    }
}
