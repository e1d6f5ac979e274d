//! The users of a large service and their policy: the same in every run.

use anyhow::{Context, Result};
use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Numbers, PAGE_BYTES, PAGE_NUMBERS, PolicyChange, Privacy};

use crate::users::{self, Random};

/// Accounts with numeric ids; one in a hundred is restricted.
pub(super) const NUMBERED: u64 = RESTRICTED_PAGES as u64 * PAGE_NUMBERS as u64;
const RESTRICTED_PAGES: u32 = 1526;
pub(super) const RESTRICTED: u64 = 1_000_000;

/// Users with names as ids; each blocks one other.
pub(super) const PAIRS: u64 = 1_000_000;

/// After them, users who show presence to nobody.
pub(super) const SETTINGS: u64 = 100_000;

/// After those, users without settings and blocks.
const UNRELATED: u64 = 18_000_000;

/// The whole policy.
pub(super) fn changes() -> Result<Vec<PolicyChange>> {
    let mut changes = scattered(RESTRICTED_PAGES, RESTRICTED).collect::<Result<Vec<_>>>()?;
    changes.extend(blocks(PAIRS, PAIRS)?);
    changes.extend(settings(PAIRS, SETTINGS)?);
    Ok(changes)
}

/// Settings by which `count` users, from `first` on, show presence to nobody.
pub(super) fn settings(first: u64, count: u64) -> Result<Vec<PolicyChange>> {
    let privacy = Privacy { presence: Audience::Nobody, last_seen: Audience::Nobody };
    (first..first + count).map(|index| Ok(PolicyChange::SetPrivacy(user(index)?, privacy))).collect()
}

/// Blocks among users.
pub(super) fn blocks(pairs: u64, user_count: u64) -> Result<Vec<PolicyChange>> {
    (0..pairs).map(|index| block(index, user_count)).collect()
}

/// Owners take turns; the blocked user is random.
fn block(index: u64, user_count: u64) -> Result<PolicyChange> {
    Ok(PolicyChange::Block(user(index % user_count)?, user(blocked_by(index, user_count))?))
}

/// The user blocked by this block.
pub(super) fn blocked_by(index: u64, user_count: u64) -> u64 {
    let other = Random::new(index + 1).below(user_count - 1);
    if other == index % user_count { user_count - 1 } else { other }
}

fn user(index: u64) -> Result<UserId> {
    Ok(UserId::parse(users::name(index))?)
}

/// Restricted numbers at random, spread evenly over the pages.
pub(super) fn scattered(pages: u32, count: u64) -> impl Iterator<Item = Result<PolicyChange>> {
    let mut random = Random::new(count);
    let until = move |page: u32| count * u64::from(page) / u64::from(pages);
    (0..pages).map(move |page| {
        let mut bits = vec![0; PAGE_BYTES];
        let mut left = until(page + 1) - until(page);
        while left > 0 {
            let low = random.below(u64::from(PAGE_NUMBERS)) as usize;
            let byte: &mut u8 = bits.get_mut(low / 8).context("a bit beyond its page")?;
            let bit = 0x80 >> (low % 8);
            left -= u64::from(*byte & bit == 0);
            *byte |= bit;
        }
        Ok(PolicyChange::RestrictMany(Numbers::new(page, bits)?))
    })
}

/// The first `count` numbers, all restricted.
pub(super) fn in_a_row(count: u64) -> impl Iterator<Item = Result<PolicyChange>> {
    let pages = count.div_ceil(u64::from(PAGE_NUMBERS)) as u32;
    (0..pages).map(move |page| {
        let left = (count - u64::from(page) * u64::from(PAGE_NUMBERS)).min(u64::from(PAGE_NUMBERS)) as usize;
        let mut bits = vec![0xff; left / 8];
        if !left.is_multiple_of(8) {
            bits.push(0xff << (8 - left % 8));
        }
        Ok(PolicyChange::RestrictMany(Numbers::new(page, bits)?))
    })
}

/// The ids of the subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Names and numbers in turn.
    Mixed,
    Names,
    Numbers,
}

/// A subject of this kind: one in a hundred is hidden from all viewers, and of the names one in twenty is in a block with a user
/// other than the viewer.
pub(super) fn subject(kind: Kind, place: usize, random: &mut Random) -> String {
    if kind == Kind::Numbers || (kind == Kind::Mixed && place % 2 == 1) {
        return random.below(NUMBERED).to_string();
    }
    users::name(match random.below(100) {
        0 => PAIRS + random.below(SETTINGS),
        1..=5 => random.below(PAIRS),
        _ => PAIRS + SETTINGS + random.below(UNRELATED),
    })
}

#[cfg(test)]
mod tests {
    use rollcall_policy::PolicyIndex;

    use super::*;

    fn restricted(changes: impl Iterator<Item = Result<PolicyChange>>) -> Result<u64> {
        let mut policy_index = PolicyIndex::new(1);
        for change in changes {
            policy_index.apply(&change?);
        }
        Ok(policy_index.counts().restricted)
    }

    #[test]
    fn populations_restrict_the_given_count() -> Result<()> {
        for count in [1, 7, 8, 65_535, 65_536, 100_001] {
            assert_eq!(restricted(in_a_row(count))?, count);
            assert_eq!(restricted(scattered(1000, count))?, count);
        }
        Ok(())
    }

    #[test]
    fn no_user_blocks_themselves() {
        assert!((0..1000).all(|index| blocked_by(index, 10) != index % 10));
    }
}
