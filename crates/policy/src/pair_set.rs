//! A set of ordered pairs of users: blocks, contacts.
//!
//! A pair is eight bytes, and both orders have the same hash, so that one lookup tells whether either of two users blocked the other.
//! The caller names the shard of a pair, always the same for the same two users, so that a shard of the filter can be
//! rebuilt from one shard of the blocks.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::hashing::{SHARDS, mix, shrink};
use crate::interner::Handle;

type Pair = (Handle, Handle);

/// A set of ordered pairs.
pub(crate) struct PairSet {
    shards: Box<[HashTable<Pair>]>,
    len: u64,
}

impl PairSet {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.shards.iter().map(HashTable::allocation_size).sum::<usize>();
        (size_of_val(&*self.shards) + tables) as u64
    }

    /// Adds a pair; returns whether it was new.
    pub(crate) fn insert(&mut self, shard: usize, pair: Pair) -> bool {
        let Some(table) = self.shards.get_mut(shard) else { return false };
        match table.entry(hash(&pair), |found| *found == pair, hash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(pair);
                self.len += 1;
                true
            }
        }
    }

    /// Removes a pair; returns whether it was there.
    pub(crate) fn remove(&mut self, shard: usize, pair: Pair) -> bool {
        let Some(table) = self.shards.get_mut(shard) else { return false };
        let Ok(entry) = table.find_entry(hash(&pair), |found| *found == pair) else { return false };
        entry.remove();
        shrink(table, hash);
        self.len -= 1;
        true
    }

    /// Whether the pair is in the set, in this order.
    pub(crate) fn contains(&self, shard: usize, pair: Pair) -> bool {
        self.shards.get(shard).is_some_and(|table| table.find(hash(&pair), |found| *found == pair).is_some())
    }

    /// Whether the pair is in the set, in either order.
    pub(crate) fn contains_either(&self, shard: usize, pair: Pair) -> bool {
        let reverse = (pair.1, pair.0);
        let either = |found: &Pair| *found == pair || *found == reverse;
        self.shards.get(shard).is_some_and(|table| table.find(hash(&pair), either).is_some())
    }

    /// The pairs of a shard.
    pub(crate) fn iter(&self, shard: usize) -> impl Iterator<Item = Pair> {
        self.shards.get(shard).into_iter().flatten().copied()
    }
}

/// The same for both orders. Not salted: handles follow from salted hashes, so clients cannot choose them.
fn hash(pair: &Pair) -> u64 {
    let (first, last) = (pair.0.min(pair.1), pair.0.max(pair.1));
    mix(u64::from(first.number()) << 32 | u64::from(last.number()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::interner::Interner;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pair_set_matches_hash_set(steps in vec((any::<bool>(), 0..12_usize, 0..12_usize), 0..200)) {
            let mut names = Interner::new();
            let users = (0..12).map(|number| names.intern(number << 48, "x").unwrap()).collect::<Vec<_>>();
            let user = |number: usize| users.get(number).copied().unwrap();
            let shard = |one: usize, other: usize| (one + other) % SHARDS;
            let mut pairs = PairSet::new();
            let mut model = HashSet::new();
            let floor = pairs.bytes();
            for (set, one, other) in steps {
                let pair = (user(one), user(other));
                if set {
                    prop_assert_eq!(pairs.insert(shard(one, other), pair), model.insert((one, other)));
                } else {
                    prop_assert_eq!(pairs.remove(shard(one, other), pair), model.remove(&(one, other)));
                }
                prop_assert_eq!(pairs.len(), model.len() as u64);
            }
            for (one, other) in (0..12).flat_map(|one| (0..12).map(move |other| (one, other))) {
                let (there, back) = (model.contains(&(one, other)), model.contains(&(other, one)));
                let pair = (user(one), user(other));
                prop_assert_eq!(pairs.contains(shard(one, other), pair), there);
                prop_assert_eq!(pairs.contains_either(shard(one, other), pair), there || back);
                prop_assert_eq!(pairs.iter(shard(one, other)).any(|found| found == pair), there);
            }
            for (one, other) in model {
                prop_assert!(pairs.remove(shard(one, other), (user(one), user(other))));
            }
            prop_assert_eq!((pairs.len(), pairs.bytes()), (0, floor));
        }
    }
}
