//! Time and chance, as the platform has them. Presence itself never reads this clock: it is for tokens, pauses and jitter.

use std::ops::RangeInclusive;
use std::time::Duration;

use wasip3::clocks::{monotonic_clock, system_clock};
use wasip3::random::random::get_random_u64;

/// Unix seconds, for tokens, which other people's clocks stamped.
pub(crate) fn unix_now() -> u64 {
    u64::try_from(system_clock::now().seconds).unwrap_or_default()
}

/// Returns after this long.
pub(crate) async fn wait(pause: Duration) {
    monotonic_clock::wait_for(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX)).await;
}

/// A number of these, each as likely as any other.
pub(crate) fn any_of(range: RangeInclusive<u64>) -> u64 {
    spread(get_random_u64(), range)
}

/// A number that nobody has seen before.
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
    fn a_number_of_a_range_is_within_it() {
        for random in [0, 1, 2000, 2001, u64::MAX] {
            assert!((1000..=3000).contains(&spread(random, 1000..=3000)));
            assert_eq!(spread(random, 5..=5), 5);
            assert_eq!(spread(random, 0..=u64::MAX), random);
        }
    }
}
