//! Restricted accounts in memory: names as ids, numbers as bitmaps.

use std::collections::{BTreeMap, BTreeSet};

use rollcall_core::UserId;
use rollcall_core::policy::{Numbers, PAGE_NUMBERS, PolicyChange, number_of};

/// A set of accounts.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// The bits of each page, up to its highest number.
    pub(super) pages: BTreeMap<u32, Vec<u8>>,
    pub(super) names: BTreeSet<UserId>,
}

impl Accounts {
    /// Applies a change; ignores changes that are not about restrictions.
    pub(super) fn apply(&mut self, change: PolicyChange) {
        match change {
            PolicyChange::Restrict(user) => match number_of(user.as_str()) {
                Some(number) => self.add(number),
                None => {
                    self.names.insert(user);
                }
            },
            PolicyChange::Unrestrict(user) => match number_of(user.as_str()) {
                Some(number) => self.remove(number),
                None => {
                    self.names.remove(&user);
                }
            },
            PolicyChange::RestrictMany(numbers) => self.set(&numbers),
            PolicyChange::UnrestrictMany(numbers) => self.clear(&numbers),
            PolicyChange::Block(..)
            | PolicyChange::Unblock(..)
            | PolicyChange::AddContact(..)
            | PolicyChange::RemoveContact(..)
            | PolicyChange::SetPrivacy(..) => {}
        }
    }

    /// Adds a number.
    pub(super) fn add(&mut self, number: u32) {
        let (byte, bit) = bit_position(number);
        let bits = self.pages.entry(number / PAGE_NUMBERS).or_default();
        if bits.len() <= byte {
            bits.resize(byte + 1, 0);
        }
        bits.iter_mut().skip(byte).take(1).for_each(|bits| *bits |= bit);
    }

    fn remove(&mut self, number: u32) {
        let (byte, bit) = bit_position(number);
        let bits = self.pages.entry(number / PAGE_NUMBERS).or_default();
        bits.iter_mut().skip(byte).take(1).for_each(|bits| *bits &= !bit);
    }

    fn set(&mut self, numbers: &Numbers) {
        let bits = self.pages.entry(numbers.page()).or_default();
        bits.resize(bits.len().max(numbers.bits().len()), 0);
        bits.iter_mut().zip(numbers.bits()).for_each(|(bits, set)| *bits |= set);
    }

    fn clear(&mut self, numbers: &Numbers) {
        let bits = self.pages.entry(numbers.page()).or_default();
        bits.iter_mut().zip(numbers.bits()).for_each(|(bits, cleared)| *bits &= !cleared);
    }
}

/// How many bits are set.
pub(super) fn count(bits: &[u8]) -> u64 {
    bits.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// The numbers whose bits are set in a page, in order.
pub(super) fn each(page: u32, bits: &[u8]) -> impl Iterator<Item = u32> {
    let of_byte = |byte: u8| (0..8).filter(move |bit| byte & (0x80 >> bit) != 0);
    // No overflow: a page is below 65,536, and so is a number within it.
    (0_u32..).zip(bits).flat_map(move |(at, &byte)| of_byte(byte).map(move |bit| page * PAGE_NUMBERS + at * 8 + bit))
}

fn bit_position(number: u32) -> (usize, u8) {
    let within = number % PAGE_NUMBERS;
    ((within / 8) as usize, 0x80 >> (within % 8))
}
