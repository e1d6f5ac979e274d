//! A Bloom filter in front of the exact tables. A miss means default privacy and no block.
//!
//! It is a set of blocked Bloom filters, one per shard. A key that was added always hits; few others do, and the caller confirms a hit
//! in the exact tables. `docs/adr/0014-bloom-filter-for-policy.md` has the measurements.
//!
//! A removed key leaves its bits behind. So a shard is rebuilt from the exact tables when a quarter of its keys were removed, and
//! when it outgrows its size: [`ShardedFilter::add`] and [`ShardedFilter::remove`] tell the caller.

use crate::bloom::BloomFilter;
use crate::hashing::{SHARDS, shard_of};

/// Bits per key when a shard is full. Then one lookup in two hundred is a false positive; right after a rebuild, with half as
/// many more bits, one in a thousand.
pub const BITS_PER_KEY: f64 = 12.0;

/// The fewest keys that a shard has room for, and the fewest removed keys that cause a rebuild: a shard with few keys may have
/// many interned users, and a rebuild visits all of them.
const FEWEST_KEYS: u32 = 64;

/// An approximate set of 64-bit keys with few false positives. Keys are hashes, evenly spread over all bits.
pub struct ShardedFilter {
    shards: Box<[Shard]>,
}

#[derive(Default)]
struct Shard {
    bloom: BloomFilter,
    /// The number of keys that `bloom` was made for.
    room: u32,
    live: u32,
    /// Keys that were removed, whose bits remain.
    stale: u32,
}

/// What the caller has to do after a change of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Upkeep {
    /// Nothing.
    None,
    /// Rebuild the shard from all its keys with [`ShardedFilter::rebuild`] before the next lookup.
    Rebuild(usize),
}

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterStats {
    /// Keys, without removed ones.
    pub keys: u64,
    /// Bits.
    pub bits: u64,
}

impl Default for ShardedFilter {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl ShardedFilter {
    /// Whether a key may be in the set. `false` is certain.
    #[inline]
    pub fn may_contain(&self, key: u64) -> bool {
        self.shards.get(shard_of(key)).is_some_and(|shard| shard.bloom.may_contain(key))
    }

    /// Prefetches the memory of a key by reading it, so that a lookup soon after finds it in the cache.
    #[inline]
    pub(crate) fn prefetch(&self, key: u64) -> u64 {
        self.shards.get(shard_of(key)).map_or(0, |shard| shard.bloom.prefetch(key))
    }

    /// Adds a key that is not in the set.
    pub fn add(&mut self, key: u64) -> Upkeep {
        let number = shard_of(key);
        let Some(shard) = self.shards.get_mut(number) else { return Upkeep::None };
        shard.live += 1;
        if shard.live + shard.stale > shard.room {
            return Upkeep::Rebuild(number);
        }
        shard.bloom.set(key);
        Upkeep::None
    }

    /// Removes a key that is in the set.
    pub fn remove(&mut self, key: u64) -> Upkeep {
        let number = shard_of(key);
        let Some(shard) = self.shards.get_mut(number) else { return Upkeep::None };
        shard.live = shard.live.saturating_sub(1);
        shard.stale += 1;
        if shard.live == 0 {
            *shard = Shard::default();
        } else if shard.stale > FEWEST_KEYS.max(shard.live / 3) {
            return Upkeep::Rebuild(number);
        }
        Upkeep::None
    }

    /// Rebuilds a shard from all its keys, with room for half as many more.
    pub fn rebuild(&mut self, shard: usize, keys: impl Iterator<Item = u64>) {
        if let Some(shard) = self.shards.get_mut(shard) {
            let room = shard.live.saturating_add(shard.live / 2).max(FEWEST_KEYS);
            *shard = Shard { live: shard.live, bloom: BloomFilter::new(room, BITS_PER_KEY), room, stale: 0 };
            keys.for_each(|key| shard.bloom.set(key));
        }
    }

    /// The size of the filter.
    pub fn stats(&self) -> FilterStats {
        let bits = self.shards.iter().map(|shard| shard.bloom.bits()).sum();
        let keys = self.shards.iter().map(|shard| u64::from(shard.live)).sum();
        FilterStats { keys, bits }
    }

    /// The bytes that the filter takes.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64 + self.stats().bits / 8
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::hashing::mix;

    /// A filter and the exact set behind it.
    #[derive(Default)]
    struct Both {
        filter: ShardedFilter,
        keys: HashSet<u64>,
        rebuilt: u32,
    }

    impl Both {
        fn change(&mut self, key: u64, add: bool) {
            let upkeep = match add {
                true if self.keys.insert(key) => self.filter.add(key),
                false if self.keys.remove(&key) => self.filter.remove(key),
                true | false => Upkeep::None,
            };
            if let Upkeep::Rebuild(shard) = upkeep {
                self.rebuilt += 1;
                self.filter.rebuild(shard, self.keys.iter().copied().filter(|key| shard_of(*key) == shard));
            }
        }
    }

    #[test]
    fn false_positives_stay_rare_after_many_changes() {
        let mut both = Both::default();
        (0..200_000).for_each(|number| both.change(mix(number), true));
        let false_positives =
            |both: &Both| (1_000_000..2_000_000).filter(|number| both.filter.may_contain(mix(*number))).count();
        assert!(false_positives(&both) < 5_000, "{} of a million", false_positives(&both));
        let stats = both.filter.stats();
        assert_eq!(stats.keys, 200_000);
        assert!((12.0..18.5).contains(&(stats.bits as f64 / 200_000.0)), "{stats:?}");
        (0..190_000).for_each(|number| both.change(mix(number), false));
        assert!(false_positives(&both) < 10_000, "{} of a million", false_positives(&both));
        assert!((190_000..200_000).all(|number| both.filter.may_contain(mix(number))));
        assert!(both.filter.stats().bits < stats.bits / 4);
        (190_000..200_000).for_each(|number| both.change(mix(number), false));
        assert_eq!(both.filter.stats(), FilterStats { keys: 0, bits: 0 });
    }

    #[test]
    fn rebuilds_are_rare() {
        let mut both = Both::default();
        // All in one shard.
        (0..1000).for_each(|number| both.change(mix(number) & !(0xff << 48), true));
        assert!(both.rebuilt < 10, "from 64 by half each time: {}", both.rebuilt);
        let before = both.rebuilt;
        for number in 1000..11_000 {
            both.change(mix(number) & !(0xff << 48), true);
            both.change(mix(number) & !(0xff << 48), false);
        }
        assert!(both.rebuilt - before <= 10_000 / 300, "{}", both.rebuilt - before);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn added_keys_always_hit(
            steps in vec((0..300_u64, any::<bool>()), 0..2000),
            seed: u64,
            shards in prop_oneof![Just(1_u64), Just(3)],
        ) {
            let mut both = Both::default();
            for (number, add) in steps {
                both.change(mix(number ^ seed) & !(0xff << 48) | (number % shards) << 48, add);
            }
            prop_assert!(both.keys.iter().all(|key| both.filter.may_contain(*key)));
            prop_assert_eq!(both.filter.stats().keys, both.keys.len() as u64);
        }
    }
}
