//! Memory of restricted accounts in a policy index, linked natively.

use std::time::Instant;

use anyhow::{Result, ensure};
use rollcall_core::policy::PolicyChange;
use rollcall_policy::PolicyIndex;

use super::population;
use crate::report::{Goal, Section, number};

/// Restricted accounts.
const RESTRICTED: [u64; 3] = [1_000_000, 100_000_000, BILLION];
const BILLION: u64 = 1_000_000_000;

/// Target for a billion consecutive ones.
const TARGET_MB: f64 = 130.0;

/// All pages.
const PAGES: u32 = 1 << 16;

/// Measures consecutive and random numbers.
pub(crate) fn run() -> Result<Section> {
    let columns = ["restricted numbers", "which", "MB", "bits each", "taken in, s"];
    let mut section = Section::new("policy-memory: restricted accounts in a policy index", &columns);
    for count in RESTRICTED {
        let goal = if count == BILLION { Goal::AtMost(TARGET_MB) } else { Goal::None };
        row(&mut section, count, "in a row", population::in_a_row(count), goal)?;
        row(&mut section, count, "at random below 2^32", population::scattered(PAGES, count), Goal::None)?;
    }
    section.note(
        "The size of the policy index's structures by its own count, loaded in pages of 65,536. A billion at random are 23 % of \
        all numbers below 2^32: every page is a bitmap then, 537 MB in total.",
    );
    Ok(section)
}

fn row(
    section: &mut Section,
    count: u64,
    which: &str,
    changes: impl Iterator<Item = Result<PolicyChange>>,
    goal: Goal,
) -> Result<()> {
    let mut policy_index = PolicyIndex::new(1);
    let mut spent_s = 0.0;
    for change in changes {
        let change = change?;
        let began = Instant::now();
        policy_index.apply(&change);
        spent_s += began.elapsed().as_secs_f64();
    }
    ensure!(
        policy_index.counts().restricted == count,
        "{} are restricted instead of {count}",
        policy_index.counts().restricted
    );
    let megabytes = policy_index.bytes() as f64 / 1e6;
    let bits = number(policy_index.bytes() as f64 * 8.0 / count as f64);
    section.row([number(count as f64), which.to_owned(), number(megabytes), bits, number(spent_s)], goal, megabytes);
    Ok(())
}
