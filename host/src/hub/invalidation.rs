//! What watchers may see, when that changes.
//!
//! First everybody concerned is doubted: until the verdict is there, nothing is told of them. Then the verdict settles what
//! the watcher is told: that somebody is hidden now, or how they stand, or nothing because nothing changed.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rollcall_core::UserId;
use rollcall_core::policy::{Invalidation, number_of};
use rollcall_core::visibility::Visibility;

use super::registry::{Added, Registry};

/// Somebody whom a watcher watches, to be asked about anew.
#[derive(Debug)]
pub(super) struct RecheckItem {
    watcher_id: usize,
    index: usize,
    pub(super) user: UserId,
    /// Which doubt this is: a verdict on an earlier one is out of date.
    invalidated_at: u64,
}

/// RecheckItem ones, by whose eyes they are seen with.
pub(super) type Rechecks = HashMap<Option<UserId>, Vec<RecheckItem>>;

impl Registry {
    /// How often anything was doubted: an answer that was asked for before the last time may be out of date.
    pub(super) fn invalidations(&self) -> u64 {
        self.invalidations
    }

    /// Rechecks everybody of whom somebody's visibility may have changed. Answers who is to be asked about.
    pub(super) fn invalidate(&mut self, invalidations: &[Invalidation]) -> Rechecks {
        self.invalidations += 1;
        let mut rechecks = Rechecks::new();
        let mut subjects = HashSet::new();
        let mut pages = HashSet::new();
        for invalidation in invalidations {
            match invalidation {
                Invalidation::Subject(user) => drop(subjects.insert(user)),
                Invalidation::Numbers(page) => drop(pages.insert(*page)),
                Invalidation::Pair(one, other) => {
                    self.invalidate_pair(one, other, &mut rechecks);
                    self.invalidate_pair(other, one, &mut rechecks);
                }
                Invalidation::Everybody => self.invalidate_all(&mut rechecks),
            }
        }
        if !subjects.is_empty() || !pages.is_empty() {
            let is_in_page =
                |user: &UserId| number_of(user.as_str()).is_some_and(|number| pages.contains(&(number >> 16)));
            self.invalidate_subjects(
                |user| subjects.contains(user) || (!pages.is_empty() && is_in_page(user)),
                &mut rechecks,
            );
        }
        rechecks
    }

    /// Rechecks what anybody sees of those whom this names: one look at everybody, however many changes it comes from.
    fn invalidate_subjects(&mut self, names: impl Fn(&UserId) -> bool, rechecks: &mut Rechecks) {
        let users = self.users.iter().filter(|(_, watched)| names(&watched.user));
        let slots: Vec<_> = users.flat_map(|(_, watched)| watched.watchers.iter().map(|(_, slot)| *slot)).collect();
        for slot in slots {
            self.invalidate_target(slot.watcher_id, slot.index, rechecks);
        }
        for (_, watcher) in self.watchers.iter_mut().filter(|(_, watcher)| !watcher.typist_visibility.is_empty()) {
            let before = watcher.typist_visibility.len();
            watcher.typist_visibility.retain(|user, _| !names(user));
            if watcher.typist_visibility.len() < before {
                watcher.mark_conversations();
            }
        }
    }

    fn invalidate_pair(&mut self, viewer: &UserId, subject: &UserId, rechecks: &mut Rechecks) {
        let Some(watchers) = self.viewers.get(viewer).cloned() else { return };
        let watched = self.users_by_id.get(subject).copied();
        for watcher_id in watchers {
            let Some(watcher) = self.watchers.get(watcher_id) else { continue };
            let target = watcher.targets.iter().find(|(_, target)| Some(target.user_key) == watched);
            if let Some((index, _)) = target {
                self.invalidate_target(watcher_id, index, rechecks);
            }
            self.forget_typist(watcher_id, Some(subject));
        }
    }

    fn invalidate_all(&mut self, rechecks: &mut Rechecks) {
        let watchers: Vec<usize> = self.watchers.iter().map(|(key, _)| key).collect();
        for watcher_id in watchers {
            let targets = self.watchers.get(watcher_id).into_iter().flat_map(|watcher| &watcher.targets);
            let indexes: Vec<usize> = targets.map(|(index, _)| index).collect();
            indexes.into_iter().for_each(|index| self.invalidate_target(watcher_id, index, rechecks));
            self.forget_typist(watcher_id, None);
        }
    }

    fn invalidate_target(&mut self, watcher_id: usize, index: usize, rechecks: &mut Rechecks) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let Some(target) = watcher.targets.get_mut(index) else { return };
        let Some(watched) = self.users.get(target.user_key) else { return };
        // Everybody sees themselves, whatever else changes. Whom two changes concern is asked about once.
        let is_own = watcher.viewer.as_ref() == Some(&watched.user);
        if is_own || target.invalidated_at.replace(self.invalidations) == Some(self.invalidations) {
            return;
        }
        // Whoever is not admitted yet is read again by whoever admits them.
        if target.visibility.is_some() {
            let item =
                RecheckItem { watcher_id, index, user: watched.user.clone(), invalidated_at: self.invalidations };
            rechecks.entry(watcher.viewer.clone()).or_default().push(item);
        }
    }

    /// Forgets whether a watcher may see somebody type, or anybody; it is asked again if they do.
    fn forget_typist(&mut self, watcher_id: usize, user: Option<&UserId>) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let forgotten = match user {
            Some(user) => watcher.typist_visibility.remove(user).is_some(),
            None => !std::mem::take(&mut watcher.typist_visibility).is_empty(),
        };
        if forgotten {
            watcher.mark_conversations();
        }
    }

    /// Takes the verdict of a viewer about somebody who was doubted. True: they can be seen now, but it is not known how they
    /// stand. Meanwhile the watcher may have gone and another have come in its place: it is not theirs.
    pub(super) fn resolve(&mut self, viewer: Option<&UserId>, item: &RecheckItem, verdict: Visibility) -> bool {
        let RecheckItem { watcher_id, index, user, invalidated_at } = item;
        let watcher = self.watchers.get_mut(*watcher_id).filter(|watcher| watcher.viewer.as_ref() == viewer);
        let Some(watcher) = watcher else { return false };
        let Some(target) = watcher.targets.get_mut(*index) else { return false };
        let watched = self.users.get(target.user_key).filter(|watched| watched.user == *user);
        let Some(watched) =
            watched.filter(|_| target.visibility.is_some() && target.invalidated_at == Some(*invalidated_at))
        else {
            return false;
        };
        target.invalidated_at = None;
        if target.visibility.replace(verdict) != Some(verdict) {
            target.sent = None;
        }
        let unknown = verdict.presence && watched.newest.is_none();
        let is_told = match (&target.sent, &watched.newest) {
            (Some(sent), Some(newest)) => Rc::ptr_eq(sent, newest),
            (None, None) => verdict.presence == target.shown,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_told {
            watcher.mark(*index);
        }
        unknown
    }

    /// What was added is about to be read: what it is doubted for was before that.
    pub(super) fn clear_invalidated(&mut self, watcher_id: usize, added: &Added) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        for added_user in &added.targets {
            watcher.targets.get_mut(added_user.index).into_iter().for_each(|target| target.invalidated_at = None);
        }
    }

    /// Whether anybody who was added was doubted since.
    pub(super) fn was_invalidated(&self, watcher_id: usize, added: &Added) -> bool {
        let Some(watcher) = self.watchers.get(watcher_id) else { return false };
        let mut targets = added.targets.iter().filter_map(|added_user| watcher.targets.get(added_user.index));
        targets.any(|target| target.invalidated_at.is_some())
    }

    /// Whether nothing changed since this one was doubted: otherwise another is under way, and this verdict is for nobody.
    pub(super) fn is_current(&self, item: &RecheckItem) -> bool {
        let target = self.watchers.get(item.watcher_id).and_then(|watcher| watcher.targets.get(item.index));
        target.is_some_and(|target| target.invalidated_at == Some(item.invalidated_at))
    }
}
