//! What watchers may see, when that changes.
//!
//! First everybody concerned is doubted: until the verdict is there, nothing is told of them. Then the verdict settles what
//! the watcher is told: that somebody is hidden now, or how they stand, or nothing because nothing changed.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rollcall_core::UserId;
use rollcall_core::policy::{Invalidation, number_of};
use rollcall_core::visibility::Visibility;

use super::{Added, Roster};

/// Somebody whom a watcher watches, to be asked about anew.
#[derive(Debug)]
pub(in super::super) struct Doubtful {
    watcher: usize,
    index: usize,
    pub(in super::super) user: UserId,
    /// Which doubt this is: a verdict on an earlier one is out of date.
    doubt: u64,
}

/// Doubtful ones, by whose eyes they are seen with.
pub(in super::super) type Doubts = HashMap<Option<UserId>, Vec<Doubtful>>;

impl Roster {
    /// How often anything was doubted: an answer that was asked for before the last time may be out of date.
    pub(in super::super) fn invalidations(&self) -> u64 {
        self.invalidations
    }

    /// Doubts everybody of whom somebody's visibility may have changed. Answers who is to be asked about.
    pub(in super::super) fn doubt(&mut self, invalidations: &[Invalidation]) -> Doubts {
        self.invalidations += 1;
        let mut doubts = Doubts::new();
        let mut subjects = HashSet::new();
        let mut pages = HashSet::new();
        for invalidation in invalidations {
            match invalidation {
                Invalidation::Subject(user) => drop(subjects.insert(user)),
                Invalidation::Numbers(page) => drop(pages.insert(*page)),
                Invalidation::Pair(one, other) => {
                    self.doubt_pair(one, other, &mut doubts);
                    self.doubt_pair(other, one, &mut doubts);
                }
                Invalidation::Everybody => self.doubt_everybody(&mut doubts),
            }
        }
        if !subjects.is_empty() || !pages.is_empty() {
            let is_in_page =
                |user: &UserId| number_of(user.as_str()).is_some_and(|number| pages.contains(&(number >> 16)));
            self.doubt_subjects(|user| subjects.contains(user) || (!pages.is_empty() && is_in_page(user)), &mut doubts);
        }
        doubts
    }

    /// Doubts what anybody sees of those whom this names: one look at everybody, however many changes it comes from.
    fn doubt_subjects(&mut self, names: impl Fn(&UserId) -> bool, doubts: &mut Doubts) {
        let people = self.people.iter().filter(|(_, person)| names(&person.user));
        let places: Vec<_> = people.flat_map(|(_, person)| person.watchers.iter().map(|(_, place)| *place)).collect();
        for place in places {
            self.doubt_target(place.watcher, place.index, doubts);
        }
        for (_, eyes) in self.watchers.iter_mut().filter(|(_, eyes)| !eyes.sees.is_empty()) {
            let before = eyes.sees.len();
            eyes.sees.retain(|user, _| !names(user));
            if eyes.sees.len() < before {
                eyes.mark_seats();
            }
        }
    }

    fn doubt_pair(&mut self, viewer: &UserId, subject: &UserId, doubts: &mut Doubts) {
        let Some(watchers) = self.viewers.get(viewer).cloned() else { return };
        let person = self.people_by_name.get(subject).copied();
        for watcher in watchers {
            let Some(eyes) = self.watchers.get(watcher) else { continue };
            let target = eyes.targets.iter().find(|(_, target)| Some(target.person) == person);
            if let Some((index, _)) = target {
                self.doubt_target(watcher, index, doubts);
            }
            self.forget_typist(watcher, Some(subject));
        }
    }

    fn doubt_everybody(&mut self, doubts: &mut Doubts) {
        let watchers: Vec<usize> = self.watchers.iter().map(|(key, _)| key).collect();
        for watcher in watchers {
            let targets = self.watchers.get(watcher).into_iter().flat_map(|eyes| &eyes.targets);
            let indexes: Vec<usize> = targets.map(|(index, _)| index).collect();
            indexes.into_iter().for_each(|index| self.doubt_target(watcher, index, doubts));
            self.forget_typist(watcher, None);
        }
    }

    fn doubt_target(&mut self, watcher: usize, index: usize, doubts: &mut Doubts) {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return };
        let Some(target) = eyes.targets.get_mut(index) else { return };
        let Some(person) = self.people.get(target.person) else { return };
        // Everybody sees themselves, whatever else changes. Whom two changes concern is asked about once.
        let is_own = eyes.viewer.as_ref() == Some(&person.user);
        if is_own || target.doubt.replace(self.invalidations) == Some(self.invalidations) {
            return;
        }
        // Whoever is not admitted yet is read again by whoever admits them.
        if target.visibility.is_some() {
            let doubtful = Doubtful { watcher, index, user: person.user.clone(), doubt: self.invalidations };
            doubts.entry(eyes.viewer.clone()).or_default().push(doubtful);
        }
    }

    /// Forgets whether a watcher may see somebody type, or anybody; it is asked again if they do.
    fn forget_typist(&mut self, watcher: usize, user: Option<&UserId>) {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return };
        let forgotten = match user {
            Some(user) => eyes.sees.remove(user).is_some(),
            None => !std::mem::take(&mut eyes.sees).is_empty(),
        };
        if forgotten {
            eyes.mark_seats();
        }
    }

    /// Takes the verdict of a viewer about somebody who was doubted. True: they can be seen now, but it is not known how they
    /// stand. Meanwhile the watcher may have gone and another have come in its place: it is not theirs.
    pub(in super::super) fn resolve(
        &mut self,
        viewer: Option<&UserId>,
        doubtful: &Doubtful,
        verdict: Visibility,
    ) -> bool {
        let Doubtful { watcher, index, user, doubt } = doubtful;
        let eyes = self.watchers.get_mut(*watcher).filter(|eyes| eyes.viewer.as_ref() == viewer);
        let Some(eyes) = eyes else { return false };
        let Some(target) = eyes.targets.get_mut(*index) else { return false };
        let person = self.people.get(target.person).filter(|person| person.user == *user);
        let Some(person) = person.filter(|_| target.visibility.is_some() && target.doubt == Some(*doubt)) else {
            return false;
        };
        target.doubt = None;
        if target.visibility.replace(verdict) != Some(verdict) {
            target.told = None;
        }
        let unknown = verdict.presence && person.newest.is_none();
        let is_told = match (&target.told, &person.newest) {
            (Some(told), Some(newest)) => Rc::ptr_eq(told, newest),
            (None, None) => verdict.presence == target.shown,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_told {
            eyes.mark(*index);
        }
        unknown
    }

    /// What was added is about to be read: what it is doubted for was before that.
    pub(in super::super) fn trust(&mut self, watcher: usize, added: &Added) {
        let Some(eyes) = self.watchers.get_mut(watcher) else { return };
        for newcomer in &added.targets {
            eyes.targets.get_mut(newcomer.index).into_iter().for_each(|target| target.doubt = None);
        }
    }

    /// Whether anybody who was added was doubted since.
    pub(in super::super) fn is_doubted(&self, watcher: usize, added: &Added) -> bool {
        let Some(eyes) = self.watchers.get(watcher) else { return false };
        let mut targets = added.targets.iter().filter_map(|newcomer| eyes.targets.get(newcomer.index));
        targets.any(|target| target.doubt.is_some())
    }

    /// Whether nothing changed since this one was doubted: otherwise another is under way, and this verdict is for nobody.
    pub(in super::super) fn is_open(&self, doubtful: &Doubtful) -> bool {
        let target = self.watchers.get(doubtful.watcher).and_then(|eyes| eyes.targets.get(doubtful.index));
        target.is_some_and(|target| target.doubt == Some(doubtful.doubt))
    }
}
