//! What happens to a watcher's entries when visibility changes.
//!
//! First the affected entries are invalidated: nothing is pushed for them until visibility is checked again. The result
//! decides what is sent: that the user is hidden now, their newest record, or nothing because nothing changed.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use rollcall_core::UserId;
use rollcall_core::policy::{Invalidation, number_of};
use rollcall_core::visibility::Visibility;

use super::registry::{Added, Registry};

/// An invalidated entry whose visibility is to be checked again.
#[derive(Debug)]
pub(crate) struct RecheckItem {
    watcher_id: usize,
    index: usize,
    pub(crate) user: UserId,
    /// Which invalidation this belongs to: a result for an earlier one is out of date.
    invalidated_at: u64,
}

/// Entries to check, by viewer.
pub(crate) type Rechecks = HashMap<Option<UserId>, Vec<RecheckItem>>;

impl Registry {
    /// How many invalidations there were: a check that started before the last one may be out of date.
    pub(super) fn invalidations(&self) -> u64 {
        self.invalidations
    }

    /// Invalidates every affected entry. Returns the entries to check again.
    pub(crate) fn invalidate(&mut self, invalidations: &[Invalidation]) -> Rechecks {
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
                Invalidation::All => self.invalidate_all(&mut rechecks),
            }
        }
        if !subjects.is_empty() || !pages.is_empty() {
            let is_in_page =
                |user: &UserId| number_of(user.as_str()).is_some_and(|number| pages.contains(&(number >> 16)));
            let is_affected = |user: &UserId| subjects.contains(user) || (!pages.is_empty() && is_in_page(user));
            self.invalidate_subjects(is_affected, &mut rechecks);
        }
        rechecks
    }

    /// Invalidates every viewer's entries of the affected users, in one pass however many changes there are.
    fn invalidate_subjects(&mut self, is_affected: impl Fn(&UserId) -> bool, rechecks: &mut Rechecks) {
        let users = self.users.iter().filter(|(_, watched)| is_affected(&watched.user));
        let slots: Vec<_> = users.flat_map(|(_, watched)| watched.watchers.iter().map(|(_, slot)| *slot)).collect();
        for slot in slots {
            self.invalidate_target(slot.watcher_id, slot.index, rechecks);
        }
        for (_, watcher) in self.watchers.iter_mut().filter(|(_, watcher)| !watcher.visible_typists.is_empty()) {
            let before = watcher.visible_typists.len();
            watcher.visible_typists.retain(|user, _| !is_affected(user));
            if watcher.visible_typists.len() < before {
                watcher.mark_conversations();
            }
        }
    }

    fn invalidate_pair(&mut self, viewer: &UserId, subject: &UserId, rechecks: &mut Rechecks) {
        let Some(watchers) = self.viewers.get(viewer).cloned() else { return };
        let key = self.users_by_id.get(subject).copied();
        for watcher_id in watchers {
            let Some(watcher) = self.watchers.get(watcher_id) else { continue };
            let target = watcher.users.iter().find(|(_, target)| Some(target.user_key) == key);
            if let Some((index, _)) = target {
                self.invalidate_target(watcher_id, index, rechecks);
            }
            self.forget_typists(watcher_id, Some(subject));
        }
    }

    fn invalidate_all(&mut self, rechecks: &mut Rechecks) {
        let watchers: Vec<usize> = self.watchers.iter().map(|(key, _)| key).collect();
        for watcher_id in watchers {
            let targets = self.watchers.get(watcher_id).into_iter().flat_map(|watcher| &watcher.users);
            let indexes: Vec<usize> = targets.map(|(index, _)| index).collect();
            indexes.into_iter().for_each(|index| self.invalidate_target(watcher_id, index, rechecks));
            self.forget_typists(watcher_id, None);
        }
    }

    fn invalidate_target(&mut self, watcher_id: usize, index: usize, rechecks: &mut Rechecks) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let Some(target) = watcher.users.get_mut(index) else { return };
        let Some(watched) = self.users.get(target.user_key) else { return };
        // Users always see themselves. An entry that two changes affect is checked once.
        let is_viewer = watcher.viewer.as_ref() == Some(&watched.user);
        if is_viewer || target.invalidated_at.replace(self.invalidations) == Some(self.invalidations) {
            return;
        }
        // An entry that is not admitted yet is read again by its admission.
        if target.visibility.is_some() {
            let (user, invalidated_at) = (watched.user.clone(), self.invalidations);
            let item = RecheckItem { watcher_id, index, user, invalidated_at };
            rechecks.entry(watcher.viewer.clone()).or_default().push(item);
        }
    }

    /// Forgets whether a watcher may see this typist, or any. It is checked again if they type.
    fn forget_typists(&mut self, watcher_id: usize, user: Option<&UserId>) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        let forgotten = match user {
            Some(user) => watcher.visible_typists.remove(user).is_some(),
            None => !std::mem::take(&mut watcher.visible_typists).is_empty(),
        };
        if forgotten {
            watcher.mark_conversations();
        }
    }

    /// Every invalidated entry that is not checked yet.
    pub(crate) fn unresolved(&self) -> Rechecks {
        let mut rechecks = Rechecks::new();
        for (watcher_id, watcher) in &self.watchers {
            for (index, target) in watcher.users.iter().filter(|(_, target)| target.visibility.is_some()) {
                let watched = self.users.get(target.user_key);
                if let (Some(invalidated_at), Some(watched)) = (target.invalidated_at, watched) {
                    let item = RecheckItem { watcher_id, index, user: watched.user.clone(), invalidated_at };
                    rechecks.entry(watcher.viewer.clone()).or_default().push(item);
                }
            }
        }
        rechecks
    }

    /// Applies the result of a check to an invalidated entry. Returns whether the user is visible now and their state
    /// unknown.
    ///
    /// The watcher may have gone meanwhile and another may have its key: the result applies only to the viewer checked.
    pub(crate) fn resolve(&mut self, viewer: Option<&UserId>, item: &RecheckItem, visibility: Visibility) -> bool {
        let RecheckItem { watcher_id, index, user, invalidated_at } = item;
        let watcher = self.watchers.get_mut(*watcher_id).filter(|watcher| watcher.viewer.as_ref() == viewer);
        let Some(watcher) = watcher else { return false };
        let Some(target) = watcher.users.get_mut(*index) else { return false };
        let is_answered = target.visibility.is_some() && target.invalidated_at == Some(*invalidated_at);
        let watched = self.users.get(target.user_key).filter(|watched| watched.user == *user && is_answered);
        let Some(watched) = watched else { return false };
        target.invalidated_at = None;
        if target.visibility.replace(visibility) != Some(visibility) {
            target.sent = None;
        }
        let unknown = visibility.presence && watched.newest.is_none();
        let is_sent = match (&target.sent, &watched.newest) {
            (Some(sent), Some(newest)) => Rc::ptr_eq(sent, newest),
            (None, None) => visibility.presence == target.shown,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_sent {
            watcher.mark_user(*index);
        }
        unknown
    }

    /// The added users are about to be read: earlier invalidations do not matter.
    pub(super) fn clear_invalidated(&mut self, watcher_id: usize, added: &Added) {
        let Some(watcher) = self.watchers.get_mut(watcher_id) else { return };
        for user in &added.users {
            watcher.users.get_mut(user.index).into_iter().for_each(|target| target.invalidated_at = None);
        }
    }

    /// Whether an added user was invalidated since.
    pub(super) fn was_invalidated(&self, watcher_id: usize, added: &Added) -> bool {
        let Some(watcher) = self.watchers.get(watcher_id) else { return false };
        let mut targets = added.users.iter().filter_map(|user| watcher.users.get(user.index));
        targets.any(|target| target.invalidated_at.is_some())
    }

    /// Whether the entry was not invalidated again since: otherwise a newer item replaces this one.
    pub(crate) fn is_current(&self, item: &RecheckItem) -> bool {
        let target = self.watchers.get(item.watcher_id).and_then(|watcher| watcher.users.get(item.index));
        target.is_some_and(|target| target.invalidated_at == Some(item.invalidated_at))
    }
}
