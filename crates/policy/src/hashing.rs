//! Hashes of ids and pairs.
//!
//! Clients choose ids, so a hash depends on a secret salt. It is the same for the same salt on one machine and may differ on
//! another: no hash leaves the process.

use std::hash::Hasher;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use hashbrown::HashTable;

/// Shards of each structure. They bound the time of a rebuild: with ten million entries a shard has forty thousand.
pub(crate) const SHARDS: usize = 256;

/// A secret seed, against ids chosen to collide.
pub(crate) struct Salt {
    seed: u64,
    shared: SharedSeed,
}

impl Salt {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, shared: SharedSeed::from_u64(seed) }
    }

    /// The hash of an id.
    #[inline]
    pub(crate) fn text(&self, text: &str) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        hasher.write(text.as_bytes());
        hasher.finish()
    }
}

/// The hash of a pair in either order, from the hashes of the ids.
#[inline]
pub(crate) fn pair(one: u64, other: u64) -> u64 {
    mix(one.wrapping_add(other))
}

/// Spreads a difference of two numbers over all bits: twice a multiplication, which carries upwards, and a fold downwards.
#[inline]
pub(crate) fn mix(mut number: u64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    number = (number ^ (number >> 32)).wrapping_mul(FACTOR);
    number = (number ^ (number >> 32)).wrapping_mul(FACTOR);
    number ^ (number >> 32)
}

/// The shard of a hash, from bits that the tables within a shard do not use: they use the lowest for the bucket and the highest
/// seven (of 32 bits on a 32-bit machine) for the tag.
#[inline]
pub(crate) fn shard_of(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

/// Shrinks a table once it is down to an eighth, so that growing and shrinking stay cheap on average.
pub(crate) fn shrink<T>(table: &mut HashTable<T>, hasher: impl Fn(&T) -> u64) {
    if table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, hasher);
    }
}

/// Appends to a column. It grows by a quarter, where a `Vec` alone would double.
pub(crate) fn push<T>(column: &mut Vec<T>, value: T) {
    make_room(column, 1);
    column.push(value);
}

/// Makes room for `more` values.
pub(crate) fn make_room<T>(column: &mut Vec<T>, more: usize) {
    if column.capacity() - column.len() < more {
        column.reserve_exact(column.len() / 4 + more.max(4));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn hash_depends_on_text_and_salt() {
        assert_eq!(Salt::new(1).text("bob"), Salt::new(1).text("bob"));
        assert_ne!(Salt::new(1).text("bob"), Salt::new(2).text("bob"));
        assert_ne!(Salt::new(1).text("bob"), Salt::new(1).text("bo"));
    }

    #[test]
    fn shards_are_balanced() {
        let salt = Salt::new(7);
        let names = (0..25_600).map(|number| salt.text(&format!("user-{number}"))).collect::<Vec<_>>();
        let pairs = names.iter().zip(names.iter().skip(1)).map(|(one, other)| pair(*one, *other)).collect::<Vec<_>>();
        for hashes in [names, pairs] {
            let mut counts = HashMap::<_, u32>::new();
            hashes.into_iter().for_each(|hash| *counts.entry(shard_of(hash)).or_default() += 1);
            assert_eq!(counts.len(), SHARDS);
            assert!(counts.values().all(|count| (50..150).contains(count)), "about a hundred each");
        }
    }

    #[test]
    fn pair_hash_ignores_order() {
        assert_eq!(pair(3, u64::MAX), pair(u64::MAX, 3));
        assert_ne!(pair(3, 4), pair(3, 5));
    }
}
