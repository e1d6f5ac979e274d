//! Random numbers in a range, for pauses and jitter.

use std::ops::RangeInclusive;

use rollcall_wasi::random;

/// A uniformly random number in the range.
pub(crate) fn any_of(range: RangeInclusive<u64>) -> u64 {
    spread(random(), range)
}

fn spread(random: u64, range: RangeInclusive<u64>) -> u64 {
    let (first, last) = range.into_inner();
    match last.saturating_sub(first).checked_add(1) {
        Some(count) => first.saturating_add(random % count),
        None => random,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_number_stays_within_its_range() {
        for random in [0, 1, 2000, 2001, u64::MAX] {
            assert!((1000..=3000).contains(&spread(random, 1000..=3000)));
            assert_eq!(spread(random, 5..=5), 5);
            assert_eq!(spread(random, 0..=u64::MAX), random);
        }
    }
}
