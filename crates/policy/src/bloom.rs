//! A blocked Bloom filter: all bits of a key are in one cache line, so that a lookup is one memory access.

use crate::hashing::mix;

/// Bits that a key sets. Each position takes nine bits of a 64-bit product.
const BITS_SET: u32 = 6;

/// Bits of a cache line.
const LINE_BITS: usize = 512;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; LINE_BITS / 64]);

/// An approximate set of 64-bit keys of fixed size. Keys are hashes, evenly spread over their bits.
#[derive(Default)]
pub struct BloomFilter(Box<[Line]>);

impl BloomFilter {
    /// An empty filter for this many keys at this many bits each.
    pub fn new(keys: u32, bits_per_key: f64) -> Self {
        let lines = (f64::from(keys) * bits_per_key / LINE_BITS as f64).ceil() as usize;
        Self(vec![Line::default(); lines.max(1)].into_boxed_slice())
    }

    /// The number of bits.
    pub fn bits(&self) -> u64 {
        (self.0.len() * LINE_BITS) as u64
    }

    /// Whether a key may be in the set. `false` is certain.
    #[inline]
    pub fn may_contain(&self, key: u64) -> bool {
        // Without branches: the processor could not predict which bit is the first that is missing.
        let set = |line: &Line| bits_of(key).map(|(word, bit)| at(line, word) >> bit).fold(1, |all, bit| all & bit);
        self.0.get(self.line_of(key)).is_some_and(|line| set(line) == 1)
    }

    /// Prefetches the cache line of a key by reading it.
    #[inline]
    pub(crate) fn prefetch(&self, key: u64) -> u64 {
        self.0.get(self.line_of(key)).map_or(0, |line| at(line, 0))
    }

    /// Adds a key.
    #[inline]
    pub fn set(&mut self, key: u64) {
        let place = self.line_of(key);
        if let Some(line) = self.0.get_mut(place) {
            bits_of(key).for_each(|(word, bit)| {
                if let Some(word) = line.0.get_mut(word) {
                    *word |= 1 << bit;
                }
            });
        }
    }

    /// From the lowest 32 bits, scaled, so that any number of lines works.
    #[inline]
    fn line_of(&self, key: u64) -> usize {
        (((key & u64::from(u32::MAX)) * self.0.len() as u64) >> 32) as usize
    }
}

/// The word and the bit in it, for each bit that a key sets in its line, from a product that depends on all bits of the key.
#[inline]
fn bits_of(key: u64) -> impl Iterator<Item = (usize, u32)> {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let spread = (key ^ (key >> 32)).wrapping_mul(FACTOR);
    (0..BITS_SET).map(move |number| {
        let place = spread >> (64 - 9 * (number + 1));
        ((place >> 6) as usize % (LINE_BITS / 64), (place & 63) as u32)
    })
}

#[inline]
fn at(line: &Line, word: usize) -> u64 {
    line.0.get(word).copied().unwrap_or_default()
}

/// The false positive rate of a filter with this many keys at this many bits each, measured with four million other keys. The
/// same for the same seed.
pub fn false_positive_rate(keys: u32, bits_per_key: f64, seed: u64) -> f64 {
    const ASKED: u64 = 4_000_000;
    let key = |number: u64| mix(number ^ mix(seed));
    let mut filter = BloomFilter::new(keys, bits_per_key);
    (0..u64::from(keys)).for_each(|number| filter.set(key(number)));
    let hits = (0..ASKED).filter(|number| filter.may_contain(key(u64::MAX - number))).count();
    hits as f64 / ASKED as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_positive_rate_matches_theory() {
        for bits in [6.0, 12.0, 24.0] {
            let rate = false_positive_rate(100_000, bits, 1);
            let plain = (1.0 - f64::exp(-f64::from(BITS_SET) / bits)).powi(BITS_SET as i32);
            assert!(
                (plain * 0.9..plain * 4.0).contains(&rate),
                "{rate} at {bits} bits, where a classic Bloom filter has {plain}"
            );
        }
    }

    #[test]
    fn added_keys_hit() {
        for keys in [1, 2, 100, 10_000] {
            let mut filter = BloomFilter::new(keys, 4.0);
            (0..u64::from(keys)).for_each(|key| filter.set(mix(key)));
            assert!((0..u64::from(keys)).all(|key| filter.may_contain(mix(key))));
        }
        assert!(!BloomFilter::default().may_contain(1), "an empty filter has no keys");
    }
}
