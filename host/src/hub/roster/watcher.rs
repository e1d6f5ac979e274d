//! A watcher: one connection's eyes. What it was told of each person, and of whom there is something new.
//!
//! There is no queue. Of each person there is a mark that something changed, and what is told is what is newest when
//! the connection can take it; so a connection that reads slowly costs no more memory than one that reads at once.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;

use rollcall_core::visibility::Visibility;
use rollcall_core::{Time, UserId};
use slab::Slab;

use super::super::known::Known;

/// Somebody who is watched by one watcher.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) person: usize,
    /// Where the person keeps this watcher.
    pub(super) place: usize,
    /// None: not admitted yet.
    pub(super) visibility: Option<Visibility>,
    /// What was newest when the watcher was last told.
    pub(super) told: Option<Rc<Known>>,
    /// The trace of what it was told: see [`super::super::known::trace`].
    pub(super) trace: u64,
    /// Whether it was told something that can be seen, and not that the person is hidden.
    pub(super) shown: bool,
    /// What the viewer may see may have changed, with this invalidation: nothing is told before it is asked anew.
    pub(super) doubt: Option<u64>,
    pub(super) is_dirty: bool,
}

impl Target {
    /// Somebody who is not admitted yet.
    pub(super) fn new(person: usize, place: usize) -> Self {
        Self { person, place, visibility: None, told: None, trace: 0, shown: false, doubt: None, is_dirty: false }
    }
}

/// A conversation that is watched by one watcher.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) room: usize,
    /// Where the room keeps this watcher.
    pub(super) place: usize,
    /// Who types, as the watcher was told.
    pub(super) told: Vec<(UserId, Time)>,
    pub(super) is_dirty: bool,
}

/// One connection's eyes.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    /// Through whose eyes; none: a service's.
    pub(super) viewer: Option<UserId>,
    pub(super) targets: Slab<Target>,
    pub(super) seats: Slab<Seat>,
    /// Targets to look at, each once.
    pub(super) dirty: Vec<usize>,
    /// Seats to look at, each once.
    pub(super) dirty_seats: Vec<usize>,
    pub(super) waker: Option<Waker>,
    /// All traces together.
    pub(super) digest: u64,
    /// Which typists the viewer may see, as far as anybody asked.
    pub(super) sees: HashMap<UserId, bool>,
}

impl Watcher {
    /// Marks a target that is admitted, and wakes the connection.
    pub(super) fn mark(&mut self, index: usize) {
        let Some(target) = self.targets.get_mut(index) else { return };
        if target.visibility.is_some() && !std::mem::replace(&mut target.is_dirty, true) {
            self.dirty.push(index);
            self.rouse();
        }
    }

    /// Marks a seat, and wakes the connection.
    pub(super) fn mark_seat(&mut self, index: usize) {
        let Some(seat) = self.seats.get_mut(index) else { return };
        if !std::mem::replace(&mut seat.is_dirty, true) {
            self.dirty_seats.push(index);
            self.rouse();
        }
    }

    /// Marks every seat, and wakes the connection.
    pub(super) fn mark_seats(&mut self) {
        let seats: Vec<usize> = self.seats.iter().map(|(index, _)| index).collect();
        seats.into_iter().for_each(|index| self.mark_seat(index));
    }

    pub(super) fn has_news(&self) -> bool {
        !self.dirty.is_empty() || !self.dirty_seats.is_empty()
    }

    fn rouse(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
