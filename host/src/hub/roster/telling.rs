//! What comes in, and who is to be told of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rollcall_api::events;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{ConversationId, Published, Time, UserId};
use rollcall_functions::capabilities::Change;
use rollcall_store::Typed;
use slab::Slab;

use super::super::asking::Watched;
use super::super::known::{presence, trace};
use super::person::{Person, Place};
use super::room::Room;
use super::watcher::Watcher;
use super::{Collected, FEW, Parade, Roster, SLICE, Sizes, Subject};

/// RestrictionCheck on typists that one watcher remembers, unless more than that type.
const MAX_REMEMBERED: usize = 256;

/// Typists whom a watcher is told of in one conversation: more at once nobody could read.
const MAX_SHOWN: usize = 64;

impl Roster {
    /// Takes what a topic tells of a person.
    pub(in super::super) fn hear(&mut self, change: &Change, now: Instant) {
        let Some(key) = self.people_by_name.get(&change.user).copied() else { return };
        if self.people.get_mut(key).is_some_and(|person| person.hear(&change.published)) {
            self.announce(key, now);
        }
    }

    /// Takes what was read of a person, asked for when so much had been heard. True: somebody has to be told.
    pub(in super::super) fn learn(&mut self, user: &UserId, published: Published, news: u64, now: Instant) -> bool {
        let Some(key) = self.people_by_name.get(user).copied() else { return false };
        let is_news = self.people.get_mut(key).is_some_and(|person| person.learn(published, news));
        if is_news {
            self.announce(key, now);
        }
        is_news
    }

    /// Marks everybody who watches this person, at once or as soon as may be.
    pub(super) fn announce(&mut self, key: usize, now: Instant) {
        let Some(person) = self.people.get_mut(key) else { return };
        if person.everywhere.max(person.watchers.len() as u64) > self.crowds.above {
            if let Some(until) = person.held_until.filter(|until| *until > now) {
                if !std::mem::replace(&mut person.is_held, true) {
                    self.held.insert((until, key));
                }
                return;
            }
            person.held_until = Some(now + self.crowds.every);
        }
        self.mark(Subject::Person(key));
    }

    /// Marks everybody who watches this, at once if they are few.
    fn mark(&mut self, subject: Subject) {
        let Some(watchers) = places(&self.people, &self.rooms, subject) else { return };
        if watchers.len() > FEW {
            // One that is on its way is left to end, or those at its end would never be reached; then it goes round again.
            match self.parades.iter_mut().find(|parade| parade.subject == subject) {
                Some(parade) => parade.again |= parade.from > 0,
                None => self.parades.push_back(Parade { subject, from: 0, again: false }),
            }
            return;
        }
        for (_, place) in watchers {
            touch(&mut self.watchers, subject, *place);
        }
    }

    /// Whether there are watchers still to be marked.
    pub(in super::super) fn is_marching(&self) -> bool {
        !self.parades.is_empty()
    }

    /// Marks the next slice of watchers.
    pub(in super::super) fn march(&mut self) {
        let Some(mut parade) = self.parades.pop_front() else { return };
        let Some(watchers) = places(&self.people, &self.rooms, parade.subject) else { return };
        let end = watchers.capacity().min(parade.from + SLICE);
        for place in (parade.from..end).filter_map(|index| watchers.get(index)) {
            touch(&mut self.watchers, parade.subject, *place);
        }
        parade.from = end;
        if end >= watchers.capacity() {
            if !std::mem::take(&mut parade.again) {
                return;
            }
            parade.from = 0;
        }
        self.parades.push_back(parade);
    }

    /// When somebody who is held may be told of.
    pub(in super::super) fn next_release(&self) -> Option<Instant> {
        self.held.first().map(|(at, _)| *at)
    }

    /// Tells of those who were held until now.
    pub(in super::super) fn release(&mut self, now: Instant) {
        while let Some((at, key)) = self.held.first().copied()
            && at <= now
        {
            self.held.remove(&(at, key));
            if let Some(person) = self.people.get_mut(key) {
                person.is_held = false;
            }
            self.announce(key, now);
        }
    }

    /// Takes what a topic tells of somebody typing.
    pub(in super::super) fn hear_typing(&mut self, typed: &Typed) {
        let Some(key) = self.rooms_by_name.get(&typed.conversation).copied() else { return };
        if self.rooms.get_mut(key).is_some_and(|room| room.hear(typed)) {
            self.invalidation(key);
        }
    }

    /// Takes who types in a conversation without saying who of them this watcher may see: it is asked when it is told.
    pub(in super::super) fn learn_typists(
        &mut self,
        watcher: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.rooms_by_name.get(conversation).copied() else { return };
        if self.rooms.get_mut(key).is_some_and(|room| room.learn(typists)) {
            self.invalidation(key);
        }
        self.ask_again(watcher);
    }

    /// Takes who types in a conversation as far as this watcher may see, and as it is told at this moment.
    pub(in super::super) fn learn_typing(
        &mut self,
        watcher: usize,
        conversation: &ConversationId,
        typists: Vec<(UserId, Time)>,
    ) {
        let Some(key) = self.rooms_by_name.get(conversation).copied() else { return };
        self.remember(watcher, typists.iter().map(|(user, _)| (user.clone(), true)).collect());
        if let Some(eyes) = self.watchers.get_mut(watcher) {
            let seat = eyes.seats.iter_mut().find(|(_, seat)| seat.room == key);
            seat.into_iter().for_each(|(_, seat)| seat.told.clone_from(&typists));
        }
        if self.rooms.get_mut(key).is_some_and(|room| room.learn(typists)) {
            self.invalidation(key);
        }
    }

    /// Before this no sign of typing ends by itself; then it is worth looking.
    pub(in super::super) fn typing_ends(&self) -> Option<Time> {
        self.typing_ends
    }

    /// Forgets signs of typing that have ended.
    pub(in super::super) fn expire_typing(&mut self, now: Time) {
        if self.typing_ends.is_none_or(|ends| ends > now) {
            return;
        }
        self.typing_ends = None;
        for key in std::mem::take(&mut self.busy_rooms) {
            let Some(room) = self.rooms.get_mut(key) else { continue };
            let changed = room.expire(now);
            if changed {
                self.invalidation(key);
            } else {
                let ends = room.typists.iter().map(|(_, until)| *until).min();
                self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
                self.busy_rooms.insert(key);
            }
        }
    }

    /// Who types somewhere has changed.
    fn invalidation(&mut self, key: usize) {
        let Some(room) = self.rooms.get(key) else { return };
        if room.typists.is_empty() {
            self.busy_rooms.remove(&key);
        } else {
            self.busy_rooms.insert(key);
        }
        let ends = room.typists.iter().map(|(_, until)| *until).min();
        self.typing_ends = self.typing_ends.into_iter().chain(ends).min();
        self.mark(Subject::Room(key));
    }

    /// Whether there is something to tell this watcher.
    pub(in super::super) fn has_news(&self, watcher: usize) -> bool {
        self.watchers.get(watcher).is_some_and(Watcher::has_news)
    }

    /// Ready when there is something to tell this watcher, or when it is gone.
    pub(in super::super) fn poll_news(&mut self, watcher: usize, context: &Context<'_>) -> Poll<()> {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return Poll::Ready(()) };
        if eyes.has_news() {
            return Poll::Ready(());
        }
        if !eyes.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            eyes.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Takes everything that there is to tell this watcher: of each person what is newest, and no more than that.
    pub(in super::super) fn collect(&mut self, watcher: usize) -> Collected {
        let mut collected = Collected::default();
        let Some(eyes) = self.watchers.get_mut(watcher) else { return collected };
        for index in std::mem::take(&mut eyes.dirty) {
            let Some(target) = eyes.targets.get_mut(index) else { continue };
            target.is_dirty = false;
            let Some(person) = self.people.get(target.person) else { continue };
            // What is told of whoever is doubted is decided with the verdict.
            let Some(visibility) = target.visibility.filter(|_| target.doubt.is_none()) else { continue };
            if !visibility.presence && std::mem::take(&mut target.shown) {
                collected.presences.push(presence(&person.user, None));
                let trace = trace(&person.user, None);
                eyes.digest ^= std::mem::replace(&mut target.trace, trace) ^ trace;
            }
            let Some(newest) = &person.newest else { continue };
            if target.told.as_ref().is_some_and(|told| Rc::ptr_eq(told, newest)) {
                continue;
            }
            target.told = Some(Rc::clone(newest));
            let trace = seen_trace(&person.user, &newest.published, visibility);
            let before = std::mem::replace(&mut target.trace, trace);
            eyes.digest ^= before ^ trace;
            if eyes.viewer.as_ref() == Some(&person.user) {
                collected.itself = true;
            } else if let Some(text) = newest.told(&person.user, visibility) {
                // What looks the same to this viewer is no news, and that there was some could be just what is hidden.
                if !std::mem::replace(&mut target.shown, true) || before != trace {
                    collected.presences.push(text);
                }
            }
        }
        self.collect_typing(watcher, &mut collected);
        collected
    }

    fn collect_typing(&mut self, watcher: usize, collected: &mut Collected) {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return };
        for index in std::mem::take(&mut eyes.dirty_seats) {
            let Some(seat) = eyes.seats.get_mut(index) else { continue };
            seat.is_dirty = false;
            let Some(room) = self.rooms.get(seat.room) else { continue };
            let (mut seen, asked_before) = (Vec::new(), collected.strangers.len());
            for (user, until) in room.typists.iter().filter(|(user, _)| eyes.viewer.as_ref() != Some(user)) {
                if seen.len() + collected.strangers.len() - asked_before >= MAX_SHOWN {
                    break;
                }
                match eyes.sees.get(user) {
                    Some(true) => seen.push((user.clone(), *until)),
                    Some(false) => {}
                    None => collected.strangers.push(user.clone()),
                }
            }
            let name = &room.conversation;
            for (user, _) in seat.told.iter().filter(|(user, _)| !seen.iter().any(|(other, _)| other == user)) {
                collected.typing.push(events::typing(name, user, None));
            }
            for (user, until) in seen.iter().filter(|typist| !seat.told.contains(typist)) {
                collected.typing.push(events::typing(name, user, Some(*until)));
            }
            seat.told = seen;
        }
    }

    /// Takes whether a watcher may see these typists.
    pub(in super::super) fn judge(&mut self, watcher: usize, typists: Vec<(UserId, bool)>) {
        self.remember(watcher, typists);
        self.ask_again(watcher);
    }

    /// Asks again who of the typists may be seen.
    pub(in super::super) fn ask_again(&mut self, watcher: usize) {
        self.watchers.get_mut(watcher).into_iter().for_each(Watcher::mark_seats);
    }

    /// Remembers whether a watcher may see these typists, and forgets those who do not type, where there are many: what is
    /// asked for at this moment is never forgotten, or it would be asked for for ever.
    fn remember(&mut self, watcher: usize, typists: Vec<(UserId, bool)>) {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return };
        if eyes.sees.len() + typists.len() > MAX_REMEMBERED {
            let rooms = eyes.seats.iter().filter_map(|(_, seat)| self.rooms.get(seat.room));
            let now: HashSet<&UserId> = rooms.flat_map(|room| room.typists.iter().map(|(user, _)| user)).collect();
            eyes.sees.retain(|user, _| now.contains(user));
        }
        eyes.sees.extend(typists);
    }

    /// What all that this watcher was told comes to: see [`trace`].
    pub(in super::super) fn digest(&self, watcher: usize) -> u64 {
        self.watchers.get(watcher).map_or(0, |watcher| watcher.digest)
    }

    /// Tells whoever watches this person and was not told of what is newest.
    pub(in super::super) fn remind(&mut self, user: &UserId, now: Instant) {
        if let Some(key) = self.people_by_name.get(user).copied() {
            self.announce(key, now);
        }
    }

    /// A watcher could not be told of this person after all.
    pub(in super::super) fn untold(&mut self, watcher: usize, user: &UserId) {
        let (Some(eyes), Some(key)) = (self.watchers.get_mut(watcher), self.people_by_name.get(user)) else { return };
        let target = eyes.targets.iter_mut().find(|(_, target)| target.person == *key);
        if let Some((_, target)) = target {
            target.told = None;
            eyes.digest ^= std::mem::take(&mut target.trace);
        }
    }

    /// How many pages of so many people there are: see [`Roster::page`].
    pub(in super::super) fn pages(&self, limit: usize) -> usize {
        self.people.capacity().div_ceil(limit).max(1)
    }

    /// A few of the people who are watched, each with how much was heard of them, and where to go on.
    pub(in super::super) fn page(&self, from: usize, limit: usize) -> (Vec<(UserId, u64)>, Option<usize>) {
        let end = self.people.capacity().min(from + limit);
        let people = (from..end).filter_map(|key| self.people.get(key));
        let page = people.map(|person| (person.user.clone(), person.news)).collect();
        (page, (end < self.people.capacity()).then_some(end))
    }

    /// These people, each with how much was heard of them, if they are watched.
    pub(in super::super) fn present(&self, users: Vec<UserId>) -> Vec<(UserId, u64)> {
        let news = |user: &UserId| Some(self.people.get(*self.people_by_name.get(user)?)?.news);
        users.into_iter().filter_map(|user| news(&user).map(|news| (user, news))).collect()
    }

    /// People with at least so many watchers on this worker, and how many they have.
    pub(in super::super) fn popular(&self, at_least: usize) -> Vec<(UserId, u32)> {
        let people = self.people.iter().filter(|(_, person)| person.watchers.len() >= at_least);
        people.map(|(_, person)| (person.user.clone(), person.watchers.len() as u32)).collect()
    }

    /// Whom most watch on this worker, in no particular order. It looks at everybody once.
    pub(in super::super) fn most_watched(&self, limit: usize) -> Vec<UserId> {
        let mut most = BinaryHeap::with_capacity(limit + 1);
        for (_, person) in &self.people {
            most.push(Reverse((person.watchers.len(), Reverse(&person.user))));
            if most.len() > limit {
                most.pop();
            }
        }
        most.into_iter().map(|Reverse((_, Reverse(user)))| user.clone()).collect()
    }

    /// How many watch this person on this worker, and on all hosts if that is counted.
    pub(in super::super) fn watched(&self, user: &UserId) -> Watched {
        let person = self.people_by_name.get(user).and_then(|key| self.people.get(*key));
        let watched = |person: &Person| Watched { here: person.watchers.len() as u64, everywhere: person.everywhere };
        person.map(watched).unwrap_or_default()
    }

    /// How many watch this person on all hosts.
    pub(in super::super) fn counted(&mut self, user: &UserId, everywhere: u64) {
        if let Some(person) = self.people_by_name.get(user).and_then(|key| self.people.get_mut(*key)) {
            person.everywhere = everywhere;
        }
    }

    /// Of whoever has fewer watchers than that on this worker, nobody counts how many there are elsewhere.
    pub(in super::super) fn uncount(&mut self, fewer_than: usize) {
        let few = self.people.iter_mut().filter(|(_, person)| person.watchers.len() < fewer_than);
        few.for_each(|(_, person)| person.everywhere = 0);
    }

    /// How much is watched.
    pub(in super::super) fn sizes(&self) -> Sizes {
        Sizes {
            watchers: self.watchers.len() as i64,
            people: self.people.len() as i64,
            conversations: self.rooms.len() as i64,
        }
    }
}

/// The places of everybody who watches this.
fn places<'a>(people: &'a Slab<Person>, rooms: &'a Slab<Room>, subject: Subject) -> Option<&'a Slab<Place>> {
    match subject {
        Subject::Person(key) => people.get(key).map(|person| &person.watchers),
        Subject::Room(key) => rooms.get(key).map(|room| &room.watchers),
    }
}

/// Marks one watcher.
fn touch(watchers: &mut Slab<Watcher>, subject: Subject, place: Place) {
    let Some(watcher) = watchers.get_mut(place.watcher) else { return };
    match subject {
        Subject::Person(_) => watcher.mark(place.index),
        Subject::Room(_) => watcher.mark_seat(place.index),
    }
}

/// The trace of what a viewer with this much visibility sees of a presence.
pub(super) fn seen_trace(user: &UserId, published: &Published, visibility: Visibility) -> u64 {
    trace(user, mask(published.clone(), visibility).as_ref())
}
