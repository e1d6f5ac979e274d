//! The platform's clocks and random numbers, for tokens, pauses and jitter. Presence uses the store's clock instead.

use std::ops::RangeInclusive;
use std::time::Duration;

use wasip3::clocks::{monotonic_clock, system_clock};
use wasip3::random::random::get_random_u64;

/// Unix seconds, to check tokens, whose times come from the issuer's clock.
pub(crate) fn unix_now() -> u64 {
    u64::try_from(system_clock::now().seconds).unwrap_or_default()
}

/// Waits this long.
pub(crate) async fn wait(pause: Duration) {
    monotonic_clock::wait_for(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)).await;
}

/// A uniformly random number in the range.
pub(crate) fn any_of(range: RangeInclusive<u64>) -> u64 {
    spread(get_random_u64(), range)
}

/// A random number that is unique in practice.
pub(crate) fn unique() -> u64 {
    get_random_u64()
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
