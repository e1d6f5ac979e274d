//! People whose ids matter by name: everybody in a block or on a contact list, and everybody who stands otherwise than all.
//!
//! Each has a handle, by which pairs know them in four bytes, for as long as anything refers to them. Interner are confirmed by
//! comparing the text, never by the hash alone.
//!
//! Memory: 20 bytes in the columns, 6 to 11 in the table, and the text. What a look needs is together, so that it is four
//! accesses to memory: two to the table, one to the entry, one to the text. A handle stays where it is, so places that churn has
//! emptied are used again, and given back only when the last of their part is gone.

use hashbrown::HashTable;

use crate::hashing::{SHARDS, make_room, push, shard_of, shrink};
use crate::standing::Standing;

/// A person: the part in the highest eight bits, the place in it in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(u32);

/// The bits of a place.
const PLACE_BITS: u32 = 24;
const PLACES: u32 = 1 << PLACE_BITS;

impl Handle {
    fn new(shard: usize, place: u32) -> Self {
        Self((shard as u32) << PLACE_BITS | place)
    }

    fn shard(self) -> usize {
        (self.0 >> PLACE_BITS) as usize
    }

    fn place(self) -> u32 {
        self.0 % PLACES
    }

    /// A number of its own.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Everybody known by name.
pub(crate) struct Interner {
    shards: Box<[Shard]>,
    len: u64,
}

/// A part of them. The columns have one entry per place, in use or free.
#[derive(Default)]
struct Shard {
    entries: Vec<Entry>,
    /// Apart, because only a table that grows and a filter that is rebuilt need them.
    hashes: Vec<u64>,
    /// Places that are free.
    free: Vec<u32>,
    /// Places in use, by the hash of the text.
    table: HashTable<u32>,
    text: Vec<u8>,
    /// Bytes of `text` that are nobody's any more.
    garbage: usize,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Where in `text` the name begins.
    start: u32,
    /// How many pairs hold this person, once for each side.
    references: u32,
    length: u8,
    standing: Standing,
}

impl Interner {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64 + self.shards.iter().map(Shard::bytes).sum::<u64>()
    }

    /// Who has this name, which hashes so.
    pub(crate) fn find(&self, hash: u64, text: &str) -> Option<Handle> {
        let shard = shard_of(hash);
        let place = self.shards.get(shard)?.find(hash, text.as_bytes())?;
        Some(Handle::new(shard, place))
    }

    /// Who has this name, known from now on: until `hold` or `stand` gives a reason to stay, for as long as nothing else is
    /// done. None if this part is full, at sixteen million: there would be four billion people in all.
    pub(crate) fn intern(&mut self, hash: u64, text: &str) -> Option<Handle> {
        let number = shard_of(hash);
        let shard = self.shards.get_mut(number)?;
        let place = match shard.find(hash, text.as_bytes()) {
            Some(place) => place,
            None => {
                let place = shard.add(hash, text.as_bytes())?;
                self.len += 1;
                place
            }
        };
        Some(Handle::new(number, place))
    }

    pub(crate) fn hold(&mut self, who: Handle) {
        self.change(who, |entry| entry.references += 1);
    }

    /// Takes back a `hold`. Whoever is held by nothing and stands as all do is forgotten.
    pub(crate) fn release(&mut self, who: Handle) {
        self.change(who, |entry| entry.references = entry.references.saturating_sub(1));
    }

    /// Sets how somebody stands. Whoever is held by nothing and stands as all do is forgotten.
    pub(crate) fn stand(&mut self, who: Handle, standing: Standing) {
        self.change(who, |entry| entry.standing = standing);
    }

    fn change(&mut self, who: Handle, change: impl FnOnce(&mut Entry)) {
        let Some(shard) = self.shards.get_mut(who.shard()) else { return };
        let Some(entry) = shard.entries.get_mut(who.place() as usize) else { return };
        change(entry);
        if entry.references == 0 && entry.standing.is_default() {
            self.len -= u64::from(shard.forget(who.place()));
        }
    }

    pub(crate) fn standing(&self, who: Handle) -> Standing {
        self.shards.get(who.shard()).map_or_else(Standing::default, |shard| at(&shard.entries, who.place()).standing)
    }

    pub(crate) fn hash_of(&self, who: Handle) -> u64 {
        self.shards.get(who.shard()).map_or(0, |shard| at(&shard.hashes, who.place()))
    }

    /// The hashes of those in a part who stand otherwise than all.
    pub(crate) fn standing_out(&self, shard: usize) -> impl Iterator<Item = u64> {
        let columns = self.shards.get(shard).map(|shard| shard.entries.iter().zip(&shard.hashes));
        columns.into_iter().flatten().filter(|(entry, _)| !entry.standing.is_default()).map(|(_, hash)| *hash)
    }
}

impl Shard {
    fn bytes(&self) -> u64 {
        let columns = self.entries.capacity() * size_of::<Entry>()
            + self.hashes.capacity() * size_of::<u64>()
            + self.free.capacity() * size_of::<u32>();
        (columns + self.table.allocation_size() + self.text.capacity()) as u64
    }

    fn find(&self, hash: u64, text: &[u8]) -> Option<u32> {
        self.table.find(hash, |place| self.text_at(*place) == text).copied()
    }

    fn text_at(&self, place: u32) -> &[u8] {
        let Entry { start, length, .. } = at(&self.entries, place);
        self.text.get(start as usize..start as usize + usize::from(length)).unwrap_or_default()
    }

    /// A place for a name that has none. None if there are no more places, or the text is longer than an id can be.
    fn add(&mut self, hash: u64, text: &[u8]) -> Option<u32> {
        let length = u8::try_from(text.len()).ok()?;
        let start = u32::try_from(self.text.len()).ok()?;
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(self.entries.len()).ok().filter(|place| *place < PLACES)?;
                push(&mut self.entries, Entry::default());
                push(&mut self.hashes, 0);
                place
            }
        };
        make_room(&mut self.text, text.len());
        self.text.extend_from_slice(text);
        set(&mut self.entries, place, Entry { start, length, ..Entry::default() });
        set(&mut self.hashes, place, hash);
        let hashes = &self.hashes;
        self.table.insert_unique(hash, place, |place| at(hashes, *place));
        Some(place)
    }

    /// Frees a place; whether it was in use.
    fn forget(&mut self, place: u32) -> bool {
        let Ok(found) = self.table.find_entry(at(&self.hashes, place), |found| *found == place) else { return false };
        found.remove();
        if self.table.is_empty() {
            *self = Self::default();
            return true;
        }
        self.garbage += usize::from(at(&self.entries, place).length);
        set(&mut self.entries, place, Entry::default());
        push(&mut self.free, place);
        let hashes = &self.hashes;
        shrink(&mut self.table, |place| at(hashes, *place));
        if self.garbage * 2 > self.text.len() {
            self.compact();
        }
        true
    }

    /// Copies the text without what is nobody's.
    fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.garbage);
        for entry in &mut self.entries {
            let old = entry.start as usize;
            // No further than it was, so it still fits.
            entry.start = text.len() as u32;
            text.extend_from_slice(self.text.get(old..old + usize::from(entry.length)).unwrap_or_default());
        }
        self.text = text;
        self.garbage = 0;
    }
}

fn at<T: Copy + Default>(column: &[T], place: u32) -> T {
    column.get(place as usize).copied().unwrap_or_default()
}

fn set<T>(column: &mut [T], place: u32, value: T) {
    if let Some(slot) = column.get_mut(place as usize) {
        *slot = value;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use rollcall_core::policy::{Audience, Privacy};

    use super::*;
    use crate::hashing::Salt;

    fn hidden() -> Standing {
        Standing::default().with_privacy(Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody })
    }

    #[test]
    fn equal_hashes_are_told_apart_by_the_text() {
        let mut names = Interner::new();
        let [alice, bob] = ["alice", "bob"].map(|name| names.intern(7, name).unwrap());
        names.hold(alice);
        names.hold(bob);
        assert_ne!(alice, bob);
        assert_eq!(
            (names.find(7, "alice"), names.find(7, "bob"), names.find(7, "carol")),
            (Some(alice), Some(bob), None)
        );
        names.release(alice);
        assert_eq!((names.find(7, "alice"), names.find(7, "bob")), (None, Some(bob)));
    }

    #[test]
    fn a_part_is_compacted_and_its_places_used_again() {
        let mut names = Interner::new();
        // All in one part, the first: the hash is the number itself.
        let name = |number: u64| format!("a name of thirty bytes {number:07}");
        let handles = (0..1000).map(|number| names.intern(number, &name(number)).unwrap()).collect::<Vec<_>>();
        handles.iter().for_each(|handle| names.hold(*handle));
        let full = names.bytes();
        handles.iter().skip(100).for_each(|handle| names.release(*handle));
        assert!(names.bytes() < full - 25_000, "{} of {full}", names.bytes());
        assert!((0..1000).all(|number| names.find(number, &name(number)).is_some() == (number < 100)));
        for number in 1000..1900 {
            let handle = names.intern(number, &name(number)).unwrap();
            names.hold(handle);
            assert!(handles.contains(&handle), "no place of its own");
        }
        handles.iter().take(100).for_each(|handle| names.release(*handle));
        assert_eq!(names.len(), 900);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Hold(u8),
        Release(u8),
        Stand(u8, bool),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whoever_matters_is_known_and_nobody_else(
            steps in vec(prop_oneof![
                (0..20_u8).prop_map(Step::Hold),
                (0..20_u8).prop_map(Step::Release),
                (0..20_u8, any::<bool>()).prop_map(|(name, hidden)| Step::Stand(name, hidden)),
            ], 0..200),
            salt: u64,
        ) {
            let salt = Salt::new(salt);
            let mut names = Interner::new();
            let mut model = HashMap::<u8, (u32, bool)>::new();
            let floor = names.bytes();
            let name = |number: u8| "x".repeat(usize::from(number) + 1);
            for step in steps {
                let (Step::Hold(who) | Step::Release(who) | Step::Stand(who, _)) = step;
                let hash = salt.text(&name(who));
                let mattered = model.entry(who).or_default();
                match step {
                    Step::Hold(_) => { names.intern(hash, &name(who)).map(|who| names.hold(who)).unwrap(); mattered.0 += 1; }
                    Step::Release(_) if mattered.0 > 0 => {
                        names.find(hash, &name(who)).map(|who| names.release(who)).unwrap();
                        mattered.0 -= 1;
                    }
                    Step::Release(_) => {}
                    Step::Stand(_, out) => {
                        let who = names.intern(hash, &name(who)).unwrap();
                        names.stand(who, if out { hidden() } else { Standing::default() });
                        mattered.1 = out;
                    }
                }
            }
            model.retain(|_, mattered| mattered.0 > 0 || mattered.1);
            prop_assert_eq!(names.len(), model.len() as u64);
            for who in 0..20 {
                let hash = salt.text(&name(who));
                let found = names.find(hash, &name(who));
                prop_assert_eq!(found.is_some(), model.contains_key(&who));
                if let (Some(found), Some((_, out))) = (found, model.get(&who)) {
                    prop_assert_eq!((names.hash_of(found), !names.standing(found).is_default()), (hash, *out));
                    prop_assert_eq!(names.standing_out(shard_of(hash)).any(|other| other == hash), *out);
                }
            }
            for (who, (references, _)) in model {
                let found = names.find(salt.text(&name(who)), &name(who)).unwrap();
                (0..references).for_each(|_| names.release(found));
                names.stand(found, Standing::default());
            }
            prop_assert_eq!((names.len(), names.bytes()), (0, floor));
        }
    }
}
