//! Where each person of a shard is: a hash table from names to places that keeps the hash, not the name.
//!
//! It is a table of our own for one reason: before anything is read, it tells where it *will* be read
//! ([`Places::home`], [`Places::likely`]), so that the memory of a whole batch can be on its way at once. With a
//! million people nearly every heartbeat meets memory that no cache holds, and waiting for it one by one takes longer
//! than everything else together: measured, four times as long.
//! Open addressing, linear probing, deletion by shifting back: eight bytes a person, and no tombstones.

/// A place that is none.
const EMPTY: u32 = u32::MAX;
/// The fewest slots of a table that has any: one cache line.
const FEWEST: usize = 8;

/// One slot of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// The hash of the name. It gives the slot's home too, so the table grows without looking at anybody.
    tag: u32,
    place: u32,
}

const VACANT: Slot = Slot { tag: 0, place: EMPTY };

/// Where people are.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// A power of two of them, or none at all; at most three in four taken, so every search ends at a vacant one.
    slots: Vec<Slot>,
    taken: usize,
}

impl Places {
    /// The slot at which a search for this tag begins.
    pub(super) fn home(&self, tag: u32) -> Option<&Slot> {
        self.slots.get(tag as usize & self.mask())
    }

    /// The place that a search for this tag most likely ends at: in one of four billion it is somebody else's.
    pub(super) fn likely(&self, tag: u32) -> Option<u32> {
        self.find(tag, |_| true)
    }

    /// The place of the one with this tag whom `is_it` knows.
    pub(super) fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (_, slot) = self.seek(tag, is_it)?;
        Some(slot.place)
    }

    /// Adds a place under a tag. Whoever has that place is not in the table yet.
    pub(super) fn insert(&mut self, tag: u32, place: u32) {
        if (self.taken + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        self.put(Slot { tag, place });
        self.taken += 1;
    }

    /// Removes the one with this tag whom `is_it` knows.
    pub(super) fn remove(&mut self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut hole, removed) = self.seek(tag, is_it)?;
        let mask = self.mask();
        let mut at = hole;
        // Whoever was pushed past the hole by it moves back into it; the hole moves on to where they were.
        loop {
            at = (at + 1) & mask;
            let slot = self.slots.get(at).copied().unwrap_or(VACANT);
            if slot.place == EMPTY {
                break;
            }
            let from_home = at.wrapping_sub(slot.tag as usize) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.set(hole, slot);
                hole = at;
            }
        }
        self.set(hole, VACANT);
        self.taken -= 1;
        Some(removed.place)
    }

    fn seek(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, Slot)> {
        let mask = self.mask();
        let mut at = tag as usize & mask;
        loop {
            let slot = *self.slots.get(at)?;
            if slot.place == EMPTY {
                return None;
            }
            if slot.tag == tag && is_it(slot.place) {
                return Some((at, slot));
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = (self.slots.len() * 2).max(FEWEST);
        let before = std::mem::replace(&mut self.slots, vec![VACANT; larger]);
        before.into_iter().filter(|slot| slot.place != EMPTY).for_each(|slot| self.put(slot));
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.mask();
        let mut at = slot.tag as usize & mask;
        while self.slots.get(at).is_some_and(|taken| taken.place != EMPTY) {
            at = (at + 1) & mask;
        }
        self.set(at, slot);
    }

    fn set(&mut self, at: usize, slot: Slot) {
        if let Some(place) = self.slots.get_mut(at) {
            *place = slot;
        }
    }

    /// With no slots at all this is out of every bound, and nothing is found.
    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Few tags, so that they collide, wrap around and are pushed far from home; then everything against a plain map.
    #[test]
    fn it_agrees_with_a_plain_map_however_tags_collide() {
        let mut places = Places::default();
        let mut model: HashMap<u32, u32> = HashMap::new();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for round in 0..200_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = (random >> 40) as u32 % 300;
            // Ends of the range too: a run of slots that wraps around.
            let tag = if place.is_multiple_of(2) { place / 8 } else { u32::MAX - place / 8 };
            let many = (round / 20_000).is_multiple_of(2);
            if !model.contains_key(&place) && (many || random.is_multiple_of(4)) {
                places.insert(tag, place);
                model.insert(place, tag);
            } else if !many || random.is_multiple_of(4) {
                assert_eq!(places.remove(tag, |found| found == place), model.remove(&place).map(|_| place));
            }
            assert_eq!(places.find(tag, |found| found == place), model.contains_key(&place).then_some(place));
        }
        for (&place, &tag) in &model {
            assert_eq!(places.find(tag, |found| found == place), Some(place));
        }
        assert_eq!(places.taken, model.len());
    }

    #[test]
    fn an_empty_table_knows_nobody() {
        let mut places = Places::default();
        assert_eq!(places.find(7, |_| true), None);
        assert_eq!(places.remove(7, |_| true), None);
        assert!(places.home(7).is_none());
    }
}
