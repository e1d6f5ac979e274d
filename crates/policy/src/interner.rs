//! Interned user ids: every user in a block, on a contact list, or with flags.
//!
//! Each has a four-byte handle for as long as a pair or flags refer to it. A lookup compares the text, never the hash alone.
//!
//! Memory: 20 bytes in the columns, 6 to 11 in the table, and the text. A lookup is four memory accesses: two to the table, one to
//! the entry, one to the text. Handles never move, so slots that churn has emptied are reused, and freed only when their shard
//! is empty.

use hashbrown::HashTable;

use crate::hashing::{SHARDS, make_room, push, shard_of, shrink};
use crate::user_flags::UserFlags;

/// An interned user: the shard in the highest eight bits, the slot in the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(u32);

/// The bits of a slot.
const SLOT_BITS: u32 = 24;
const SLOTS: u32 = 1 << SLOT_BITS;

impl Handle {
    fn new(shard: usize, slot: u32) -> Self {
        Self((shard as u32) << SLOT_BITS | slot)
    }

    fn shard(self) -> usize {
        (self.0 >> SLOT_BITS) as usize
    }

    fn slot(self) -> u32 {
        self.0 % SLOTS
    }

    /// A number that is unique per handle.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The interned users.
pub(crate) struct Interner {
    shards: Box<[Shard]>,
    len: u64,
}

/// One shard. The columns have one entry per slot, in use or free.
#[derive(Default)]
struct Shard {
    entries: Vec<Entry>,
    /// A separate column, because only growing the table and rebuilding the filter need it.
    hashes: Vec<u64>,
    /// Free slots.
    free: Vec<u32>,
    /// Slots in use, by the hash of the text.
    table: HashTable<u32>,
    text: Vec<u8>,
    /// Bytes of `text` that are no longer used.
    garbage: usize,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Where in `text` the name begins.
    start: u32,
    /// How many pairs hold this user, once for each side.
    references: u32,
    length: u8,
    flags: UserFlags,
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

    /// The handle of a user, given the hash of the text.
    pub(crate) fn find(&self, hash: u64, text: &str) -> Option<Handle> {
        let shard = shard_of(hash);
        let slot = self.shards.get(shard)?.find(hash, text.as_bytes())?;
        Some(Handle::new(shard, slot))
    }

    /// Interns a user. The caller must call `hold` or `set_flags` next, which decide whether the user stays. `None` if the shard is
    /// full, at 16 million users; all shards together have room for 4 billion.
    pub(crate) fn intern(&mut self, hash: u64, text: &str) -> Option<Handle> {
        let number = shard_of(hash);
        let shard = self.shards.get_mut(number)?;
        let slot = match shard.find(hash, text.as_bytes()) {
            Some(slot) => slot,
            None => {
                let slot = shard.add(hash, text.as_bytes())?;
                self.len += 1;
                slot
            }
        };
        Some(Handle::new(number, slot))
    }

    pub(crate) fn hold(&mut self, user: Handle) {
        self.change(user, |entry| entry.references += 1);
    }

    /// Undoes a `hold`. A user without holds and flags is dropped.
    pub(crate) fn release(&mut self, user: Handle) {
        self.change(user, |entry| entry.references = entry.references.saturating_sub(1));
    }

    /// Sets the flags. A user without holds and flags is dropped.
    pub(crate) fn set_flags(&mut self, user: Handle, flags: UserFlags) {
        self.change(user, |entry| entry.flags = flags);
    }

    fn change(&mut self, user: Handle, change: impl FnOnce(&mut Entry)) {
        let Some(shard) = self.shards.get_mut(user.shard()) else { return };
        let Some(entry) = shard.entries.get_mut(user.slot() as usize) else { return };
        change(entry);
        if entry.references == 0 && entry.flags.is_default() {
            self.len -= u64::from(shard.forget(user.slot()));
        }
    }

    pub(crate) fn flags(&self, user: Handle) -> UserFlags {
        self.shards.get(user.shard()).map_or_else(UserFlags::default, |shard| at(&shard.entries, user.slot()).flags)
    }

    pub(crate) fn hash_of(&self, user: Handle) -> u64 {
        self.shards.get(user.shard()).map_or(0, |shard| at(&shard.hashes, user.slot()))
    }

    /// The hashes of the users in a shard that have flags.
    pub(crate) fn flagged(&self, shard: usize) -> impl Iterator<Item = u64> {
        let columns = self.shards.get(shard).map(|shard| shard.entries.iter().zip(&shard.hashes));
        columns.into_iter().flatten().filter(|(entry, _)| !entry.flags.is_default()).map(|(_, hash)| *hash)
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
        self.table.find(hash, |slot| self.text_at(*slot) == text).copied()
    }

    fn text_at(&self, slot: u32) -> &[u8] {
        let Entry { start, length, .. } = at(&self.entries, slot);
        self.text.get(start as usize..start as usize + usize::from(length)).unwrap_or_default()
    }

    /// A slot for a new name. `None` if the shard is full or the text is longer than an id can be.
    fn add(&mut self, hash: u64, text: &[u8]) -> Option<u32> {
        let length = u8::try_from(text.len()).ok()?;
        let start = u32::try_from(self.text.len()).ok()?;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.entries.len()).ok().filter(|slot| *slot < SLOTS)?;
                push(&mut self.entries, Entry::default());
                push(&mut self.hashes, 0);
                slot
            }
        };
        make_room(&mut self.text, text.len());
        self.text.extend_from_slice(text);
        set(&mut self.entries, slot, Entry { start, length, ..Entry::default() });
        set(&mut self.hashes, slot, hash);
        let hashes = &self.hashes;
        self.table.insert_unique(hash, slot, |slot| at(hashes, *slot));
        Some(slot)
    }

    /// Frees a slot; returns whether it was in use.
    fn forget(&mut self, slot: u32) -> bool {
        let Ok(found) = self.table.find_entry(at(&self.hashes, slot), |found| *found == slot) else { return false };
        found.remove();
        if self.table.is_empty() {
            *self = Self::default();
            return true;
        }
        self.garbage += usize::from(at(&self.entries, slot).length);
        set(&mut self.entries, slot, Entry::default());
        push(&mut self.free, slot);
        let hashes = &self.hashes;
        shrink(&mut self.table, |slot| at(hashes, *slot));
        if self.garbage * 2 > self.text.len() {
            self.compact();
        }
        true
    }

    /// Copies the text without its unused bytes.
    fn compact(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.garbage);
        for entry in &mut self.entries {
            let old = entry.start as usize;
            // Not greater than before, so it still fits.
            entry.start = text.len() as u32;
            text.extend_from_slice(self.text.get(old..old + usize::from(entry.length)).unwrap_or_default());
        }
        self.text = text;
        self.garbage = 0;
    }
}

fn at<T: Copy + Default>(column: &[T], slot: u32) -> T {
    column.get(slot as usize).copied().unwrap_or_default()
}

fn set<T>(column: &mut [T], slot: u32, value: T) {
    if let Some(slot) = column.get_mut(slot as usize) {
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

    fn hidden() -> UserFlags {
        UserFlags::default().with_privacy(Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody })
    }

    #[test]
    fn equal_hashes_differ_by_text() {
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
    fn shards_are_compacted_and_slots_reused() {
        let mut names = Interner::new();
        // All in the first shard: the hash is the number itself.
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
            assert!(handles.contains(&handle), "reuses a slot");
        }
        handles.iter().take(100).for_each(|handle| names.release(*handle));
        assert_eq!(names.len(), 900);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Hold(u8),
        Release(u8),
        SetFlags(u8, bool),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn only_referenced_users_are_interned(
            steps in vec(prop_oneof![
                (0..20_u8).prop_map(Step::Hold),
                (0..20_u8).prop_map(Step::Release),
                (0..20_u8, any::<bool>()).prop_map(|(name, hidden)| Step::SetFlags(name, hidden)),
            ], 0..200),
            salt: u64,
        ) {
            let salt = Salt::new(salt);
            let mut names = Interner::new();
            let mut model = HashMap::<u8, (u32, bool)>::new();
            let floor = names.bytes();
            let name = |number: u8| "x".repeat(usize::from(number) + 1);
            for step in steps {
                let (Step::Hold(user) | Step::Release(user) | Step::SetFlags(user, _)) = step;
                let hash = salt.text(&name(user));
                let mattered = model.entry(user).or_default();
                match step {
                    Step::Hold(_) => { names.intern(hash, &name(user)).map(|user| names.hold(user)).unwrap(); mattered.0 += 1; }
                    Step::Release(_) if mattered.0 > 0 => {
                        names.find(hash, &name(user)).map(|user| names.release(user)).unwrap();
                        mattered.0 -= 1;
                    }
                    Step::Release(_) => {}
                    Step::SetFlags(_, out) => {
                        let user = names.intern(hash, &name(user)).unwrap();
                        names.set_flags(user, if out { hidden() } else { UserFlags::default() });
                        mattered.1 = out;
                    }
                }
            }
            model.retain(|_, mattered| mattered.0 > 0 || mattered.1);
            prop_assert_eq!(names.len(), model.len() as u64);
            for user in 0..20 {
                let hash = salt.text(&name(user));
                let found = names.find(hash, &name(user));
                prop_assert_eq!(found.is_some(), model.contains_key(&user));
                if let (Some(found), Some((_, out))) = (found, model.get(&user)) {
                    prop_assert_eq!((names.hash_of(found), !names.flags(found).is_default()), (hash, *out));
                    prop_assert_eq!(names.flagged(shard_of(hash)).any(|other| other == hash), *out);
                }
            }
            for (user, (references, _)) in model {
                let found = names.find(salt.text(&name(user)), &name(user)).unwrap();
                (0..references).for_each(|_| names.release(found));
                names.set_flags(found, UserFlags::default());
            }
            prop_assert_eq!((names.len(), names.bytes()), (0, floor));
        }
    }
}
