//! Who watches whom on this worker, what is newest about each, and what each watcher has not been told yet.
//!
//! Nothing here waits and nothing here is shared between threads. A person is here for as long as somebody watches.

mod person;
mod room;
mod telling;
mod visibility;
mod watcher;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rollcall_api::call::View;
use rollcall_core::visibility::{Visibility, mask};
use rollcall_core::{ConversationId, Published, State, Time, UserId};
use rollcall_store::Topic;
use slab::Slab;

use super::known::trace;
use person::{Person, Place};
use room::Room;
use watcher::{Seat, Target, Watcher};

pub(super) use visibility::{Doubtful, Doubts};

/// What more than this watch on one worker is told in slices, with everything else in between.
const FEW: usize = 1000;

/// Watchers in a slice: what they are told takes a worker a millisecond or two to write, and so long anybody else waits.
const SLICE: usize = 128;

/// When too many watch somebody for every change to be told at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowds {
    /// Above how many watchers, on all hosts.
    pub(super) above: u64,
    /// How often such a person is told of at most.
    pub(super) every: Duration,
}

/// How much is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Watchers.
    pub(crate) watchers: i64,
    /// People watched.
    pub(crate) people: i64,
    /// Conversations watched.
    pub(crate) conversations: i64,
}

/// Everybody who watches, and everybody and everything watched.
#[derive(Debug)]
pub(super) struct Roster {
    people: Slab<Person>,
    people_by_name: HashMap<UserId, usize, foldhash::fast::RandomState>,
    rooms: Slab<Room>,
    rooms_by_name: HashMap<ConversationId, usize, foldhash::fast::RandomState>,
    /// Rooms in which somebody types.
    busy_rooms: BTreeSet<usize>,
    /// No sign of typing ends before this.
    typing_ends: Option<Time>,
    watchers: Slab<Watcher>,
    /// Watchers by through whose eyes they see.
    viewers: HashMap<UserId, Vec<usize>, foldhash::fast::RandomState>,
    /// How often anything was doubted.
    invalidations: u64,
    /// Where some watchers have been marked and some not, each once.
    parades: VecDeque<Parade>,
    /// People who changed while they are held, by when they may be told of.
    held: BTreeSet<(Instant, usize)>,
    crowds: Crowds,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Person(usize),
    Room(usize),
}

/// How far the watchers of somebody, or of a conversation, have been marked.
#[derive(Debug)]
struct Parade {
    subject: Subject,
    /// From which place on they have not.
    from: usize,
    /// There was another change after it began, so that it has to go round once more.
    again: bool,
}

/// What a watcher has begun to watch.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// The targets, each with how much was heard of its person so far.
    pub(super) targets: Vec<Newcomer>,
    pub(super) seats: Vec<usize>,
    /// Of these, what nobody on this worker is known to listen to.
    pub(super) topics: Vec<Topic>,
}

/// Somebody whom a watcher has begun to watch.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) user: UserId,
    pub(super) index: usize,
    pub(super) news: u64,
}

/// What a watcher is to be told.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Presences, as text.
    pub(super) presences: Vec<Rc<str>>,
    /// Signs of typing, as text.
    pub(super) typing: Vec<String>,
    /// The viewer itself changed, of which it may see more than others: to be asked for.
    pub(super) itself: bool,
    /// Typists of whom it is not known whether the viewer may see them: to be asked for.
    pub(super) strangers: Vec<UserId>,
}

impl Roster {
    pub(super) fn new(crowds: Crowds) -> Self {
        Self {
            people: Slab::new(),
            people_by_name: HashMap::default(),
            rooms: Slab::new(),
            rooms_by_name: HashMap::default(),
            busy_rooms: BTreeSet::new(),
            typing_ends: None,
            watchers: Slab::new(),
            viewers: HashMap::default(),
            invalidations: 0,
            parades: VecDeque::new(),
            held: BTreeSet::new(),
            crowds,
        }
    }

    /// A new watcher, who watches nobody yet.
    pub(super) fn enter(&mut self, viewer: Option<UserId>) -> usize {
        let key = self.watchers.insert(Watcher { viewer: viewer.clone(), ..Watcher::default() });
        viewer.into_iter().for_each(|viewer| self.viewers.entry(viewer).or_default().push(key));
        key
    }

    /// A watcher goes. Answers what nobody watches any more.
    pub(super) fn leave(&mut self, watcher: usize) -> Vec<Topic> {
        let Some(gone) = self.watchers.try_remove(watcher) else { return Vec::new() };
        if let Some(viewer) = &gone.viewer
            && let Some(same) = self.viewers.get_mut(viewer)
        {
            same.retain(|key| *key != watcher);
            if same.is_empty() {
                self.viewers.remove(viewer);
            }
        }
        let mut idle = Vec::new();
        idle.extend(gone.targets.iter().filter_map(|(_, target)| self.forsake(target.person, target.place)));
        idle.extend(gone.seats.iter().filter_map(|(_, seat)| self.vacate(seat.room, seat.place)));
        idle
    }

    /// How many people a watcher watches.
    pub(super) fn watching(&self, watcher: usize) -> usize {
        self.watchers.get(watcher).map_or(0, |watcher| watcher.targets.len())
    }

    /// How many conversations a watcher watches.
    pub(super) fn seated(&self, watcher: usize) -> usize {
        self.watchers.get(watcher).map_or(0, |watcher| watcher.seats.len())
    }

    /// The conversations that a watcher watches.
    pub(super) fn conversations(&self, watcher: usize) -> Vec<ConversationId> {
        let seats = self.watchers.get(watcher).into_iter().flat_map(|watcher| watcher.seats.iter());
        seats.filter_map(|(_, seat)| Some(self.rooms.get(seat.room)?.conversation.clone())).collect()
    }

    /// Puts people and conversations under a watcher's eyes, except those that are there. Nothing is told of them before
    /// they are admitted, but they stay.
    pub(super) fn add(&mut self, watcher: usize, users: Vec<UserId>, conversations: Vec<ConversationId>) -> Added {
        let mut added = Added::default();
        let Some(eyes) = self.watchers.get_mut(watcher) else { return added };
        for user in users {
            let key = match self.people_by_name.get(&user) {
                Some(key) => *key,
                None => {
                    let key = self.people.insert(Person::new(user.clone()));
                    self.people_by_name.insert(user.clone(), key);
                    key
                }
            };
            let Some(person) = self.people.get_mut(key) else { continue };
            if eyes.targets.iter().any(|(_, target)| target.person == key) {
                continue;
            }
            let index = eyes.targets.vacant_key();
            let place = person.watchers.insert(Place { watcher, index });
            eyes.targets.insert(Target::new(key, place));
            if !person.listened {
                added.topics.push(Topic::Person(user.clone()));
            }
            added.targets.push(Newcomer { user, index, news: person.news });
        }
        for conversation in conversations {
            let key = match self.rooms_by_name.get(&conversation) {
                Some(key) => *key,
                None => {
                    let key = self.rooms.insert(Room::new(conversation.clone()));
                    self.rooms_by_name.insert(conversation.clone(), key);
                    key
                }
            };
            let Some(room) = self.rooms.get_mut(key) else { continue };
            if eyes.seats.iter().any(|(_, seat)| seat.room == key) {
                continue;
            }
            let index = eyes.seats.vacant_key();
            let place = room.watchers.insert(Place { watcher, index });
            added.seats.push(eyes.seats.insert(Seat { room: key, place, told: Vec::new(), is_dirty: false }));
            if !room.listened {
                added.topics.push(Topic::Conversation(conversation));
            }
        }
        added
    }

    /// These topics are listened to, for as long as anybody watches.
    pub(super) fn listened(&mut self, topics: &[Topic]) {
        for topic in topics {
            match topic {
                Topic::Person(user) => {
                    let person = self.people_by_name.get(user).and_then(|key| self.people.get_mut(*key));
                    person.into_iter().for_each(|person| person.listened = true);
                }
                Topic::Conversation(conversation) => {
                    let room = self.rooms_by_name.get(conversation).and_then(|key| self.rooms.get_mut(*key));
                    room.into_iter().for_each(|room| room.listened = true);
                }
            }
        }
    }

    /// Takes what was added away again. Answers what nobody watches any more.
    pub(super) fn undo(&mut self, watcher: usize, added: &Added) -> Vec<Topic> {
        let mut idle = Vec::new();
        for newcomer in &added.targets {
            idle.extend(self.drop_target(watcher, newcomer.index));
        }
        for seat in &added.seats {
            idle.extend(self.drop_seat(watcher, *seat));
        }
        idle
    }

    /// Takes people and conversations from under a watcher's eyes. Answers what nobody watches any more.
    pub(super) fn remove(&mut self, watcher: usize, users: &[UserId], conversations: &[ConversationId]) -> Vec<Topic> {
        let mut idle = Vec::new();
        let Some(eyes) = self.watchers.get(watcher) else { return idle };
        let people = users.iter().filter_map(|user| self.people_by_name.get(user));
        let at = |key: &usize| eyes.targets.iter().find(|(_, target)| target.person == *key).map(|(index, _)| index);
        let targets: Vec<usize> = people.filter_map(at).collect();
        let rooms = conversations.iter().filter_map(|conversation| self.rooms_by_name.get(conversation));
        let at = |key: &usize| eyes.seats.iter().find(|(_, seat)| seat.room == *key).map(|(index, _)| index);
        let seats: Vec<usize> = rooms.filter_map(at).collect();
        targets.into_iter().for_each(|index| idle.extend(self.drop_target(watcher, index)));
        seats.into_iter().for_each(|index| idle.extend(self.drop_seat(watcher, index)));
        idle
    }

    fn drop_target(&mut self, watcher: usize, index: usize) -> Option<Topic> {
        let eyes = self.watchers.get_mut(watcher)?;
        let target = eyes.targets.try_remove(index)?;
        eyes.digest ^= target.trace;
        eyes.dirty.retain(|dirty| *dirty != index);
        self.forsake(target.person, target.place)
    }

    fn drop_seat(&mut self, watcher: usize, index: usize) -> Option<Topic> {
        let eyes = self.watchers.get_mut(watcher)?;
        let seat = eyes.seats.try_remove(index)?;
        eyes.dirty_seats.retain(|dirty| *dirty != index);
        self.vacate(seat.room, seat.place)
    }

    /// Somebody watches this person no longer.
    fn forsake(&mut self, key: usize, place: usize) -> Option<Topic> {
        let person = self.people.get_mut(key)?;
        person.watchers.try_remove(place);
        if !person.watchers.is_empty() {
            return None;
        }
        let person = self.people.try_remove(key)?;
        self.people_by_name.remove(&person.user);
        self.held.retain(|(_, held)| *held != key);
        self.parades.retain(|parade| parade.subject != Subject::Person(key));
        Some(Topic::Person(person.user))
    }

    /// Somebody watches this conversation no longer.
    fn vacate(&mut self, key: usize, place: usize) -> Option<Topic> {
        let room = self.rooms.get_mut(key)?;
        room.watchers.try_remove(place);
        if !room.watchers.is_empty() {
            return None;
        }
        let room = self.rooms.try_remove(key)?;
        self.rooms_by_name.remove(&room.conversation);
        self.busy_rooms.remove(&key);
        self.parades.retain(|parade| parade.subject != Subject::Room(key));
        Some(Topic::Conversation(room.conversation))
    }

    /// Admits a target: what was read of it, as the viewer may see it, and how much of the rest the viewer may see. Answers
    /// what to show, which is newer if news came meanwhile. It may be admitted again, if what the viewer may see has changed.
    pub(super) fn admit(
        &mut self,
        watcher: usize,
        newcomer: &Newcomer,
        view: Option<&View>,
        visibility: Visibility,
        now: Instant,
    ) -> Option<Shown> {
        let eyes = self.watchers.get_mut(watcher)?;
        let itself = eyes.viewer.as_ref() == Some(&newcomer.user);
        let target = eyes.targets.get_mut(newcomer.index)?;
        let person = self.people.get_mut(target.person)?;
        // Only whoever may see everything brings what everybody can be told.
        let mut is_news = false;
        if let (Some(view), Visibility { presence: true, last_seen: true }) = (view, visibility) {
            is_news = person.learn(view.published.clone(), newcomer.news);
        }
        let key = target.person;
        target.visibility = Some(visibility);
        target.shown = visibility.presence;
        target.told.clone_from(&person.newest);
        let newer = person.newest.as_ref().filter(|newest| {
            !itself && visibility.presence && view.is_none_or(|view| newest.published.version > view.published.version)
        });
        let published = match newer {
            Some(newest) => mask(newest.published.clone(), visibility),
            None => view.map(|view| view.published.clone()),
        };
        let trace = trace(&newcomer.user, published.as_ref());
        eyes.digest ^= std::mem::replace(&mut target.trace, trace) ^ trace;
        let text = match newer.and_then(|newest| newest.told(&newcomer.user, visibility)) {
            Some(text) => text,
            None => super::known::presence(&newcomer.user, view),
        };
        // Those who watched before have not been told of what the newcomer found.
        if is_news {
            self.announce(key, now);
        }
        // When somebody went offline is when they were last seen: where that is hidden, nobody learns whether it is since.
        let published = published.filter(|published| visibility.last_seen || published.state != State::Offline);
        Some(Shown { text, published })
    }
}

/// What a watcher is shown of somebody at first.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) text: Rc<str>,
    /// None: hidden, or so that nobody may learn when it came about.
    pub(super) published: Option<Published>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests;
