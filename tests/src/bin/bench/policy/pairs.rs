//! Memory of a blocked pair, and the false positive rate of the filter in front of the pairs.

use anyhow::{Result, ensure};
use rollcall_policy::{BITS_PER_KEY, PolicyIndex, false_positive_rate};

use super::{per_cent, plot, population};
use crate::report::{Goal, Section, number};

/// Pairs, and the users among which they are.
const PAIRS: [(u64, u64); 4] = [(100_000, 100_000), (100_000, 10_000), (1_000_000, 1_000_000), (1_000_000, 100_000)];

/// Filter sizes of the curve, in bits per key.
const CURVE: [f64; 11] = [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0];

/// Keys of the curve.
const KEYS: u32 = 1_000_000;

/// Measures both.
pub(crate) fn run() -> Result<Section> {
    let columns = ["pairs", "users", "MB", "bytes per pair", "filter, bits per pair", "false positives"];
    let mut section = Section::new("policy-pairs: blocks in a policy index, and the filter in front", &columns);
    let mut found = Vec::new();
    for (pairs, user_count) in PAIRS {
        let mut policy_index = PolicyIndex::new(0x5eed);
        population::blocks(pairs, user_count)?.iter().for_each(|change| policy_index.apply(change));
        let (count, filter) = (policy_index.counts().blocks, policy_index.filter_stats());
        ensure!(count > pairs * 9 / 10, "only {count} of {pairs} pairs are blocked");
        let bits = filter.bits as f64 / filter.keys as f64;
        let rate = false_positive_rate(u32::try_from(filter.keys)?, bits, pairs);
        found.push((bits, rate));
        let cells = [
            number(count as f64),
            number(policy_index.counts().users as f64),
            number(policy_index.bytes() as f64 / 1e6),
            number(policy_index.bytes() as f64 / count as f64),
            number(bits),
            per_cent(rate),
        ];
        section.row(cells, Goal::None, 0.0);
    }
    let curve: Vec<(f64, f64)> = CURVE.into_iter().map(|bits| (bits, false_positive_rate(KEYS, bits, 1))).collect();
    plot::write(&curve, &found)?;
    let listed: Vec<String> = curve.iter().map(|(bits, rate)| format!("{bits}: {}", per_cent(*rate))).collect();
    section.note(&format!(
        "Names of 36 bytes, which are most of a pair's size where no user is in two pairs. A full part of the filter has \
        {BITS_PER_KEY} bits per key, and half as many more after it grew. False positives: measured with a filter of as \
        many keys and bits, queried for four million other keys; a hit is looked up exactly, so a false positive costs \
        time and hides no user. By bits for each of {} keys: {}. The plot is policy-filter.svg.",
        number(f64::from(KEYS)),
        listed.join(", "),
    ));
    Ok(section)
}
