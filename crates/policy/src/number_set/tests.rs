//! `NumberSet` against a `BTreeSet`, at the edges of pages and at the counts where a page changes its form.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use rollcall_core::policy::PAGE_BYTES;

use super::*;

/// A page's numbers, as Redis counts bits.
fn numbers(page: u32, lows: impl IntoIterator<Item = u16>) -> Numbers {
    let mut bits = vec![0_u8; PAGE_BYTES];
    for low in lows {
        bits[usize::from(low) / 8] |= 0x80 >> (low % 8);
    }
    let used = bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bits.truncate(used);
    Numbers::new(page, bits).unwrap()
}

fn is_bits(set: &NumberSet, page: usize) -> bool {
    matches!(set.pages[page], Some(Page::Bits { .. }))
}

#[test]
fn bit_position_matches_plain_bitmap() {
    let number = 523_234_320;
    assert_eq!((number / 64, number % 64), (8_175_536, 16));
    let mut set = NumberSet::default();
    let page = number >> 16;
    set.insert_many(&numbers(page, 0..=u16::MAX));
    set.remove_many(&numbers(page, (0..=u16::MAX).filter(|low| u32::from(*low) != number & 0xffff && low % 2 == 0)));
    let Some(Page::Bits { words, .. }) = &set.pages[page as usize] else { panic!("half a page is bits") };
    let word = words[number as usize / 64 - page as usize * WORDS];
    assert_eq!(word, 0xaaaa_aaaa_aaaa_aaaa | 1 << 16, "odd numbers, and bit 16 of word 8,175,536");
    assert!(set.contains(number) && !set.contains(number + 2));
}

#[test]
fn billion_numbers_take_one_bit_each() {
    let mut set = NumberSet::default();
    for page in 0..1_000_000_000_u32.div_ceil(PAGE_NUMBERS) {
        set.insert_many(&Numbers::new(page, vec![0xff; PAGE_BYTES]).unwrap());
    }
    assert!(set.len() >= 1_000_000_000);
    assert!((125_000_000..130_000_000).contains(&set.bytes()), "{}", set.bytes());
    assert!(set.contains(0) && set.contains(999_999_999) && !set.contains(u32::MAX));
}

#[test]
fn page_changes_form_with_hysteresis() {
    let mut set = NumberSet::default();
    (0..512).for_each(|number| set.insert(number * 128));
    assert!(!is_bits(&set, 0));
    assert!(set.page_bytes <= PAGE_BYTES as u64 / 8, "a full list is an eighth of the bits");
    set.insert(1);
    assert!(is_bits(&set, 0));
    (0..129).for_each(|number| set.remove(number * 128));
    assert!(is_bits(&set, 0), "384 are left");
    set.remove(1);
    assert!(!is_bits(&set, 0));
    assert_eq!(set.len(), 383);
    assert!(set.bytes() < PAGE_BYTES as u64);
    assert!((0..512).all(|number| set.contains(number * 128) == (number >= 129)));
}

#[test]
fn empty_set_takes_no_memory() {
    let mut set = NumberSet::default();
    set.remove(u32::MAX);
    set.remove_many(&numbers(65_535, [1]));
    set.insert_many(&numbers(65_535, []));
    assert_eq!((set.len(), set.bytes()), (0, 0));
    set.insert(u32::MAX);
    assert!(set.contains(u32::MAX));
    set.remove(u32::MAX);
    assert_eq!((set.len(), set.bytes()), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    One(bool, u32),
    Many(bool, u32, Vec<u16>),
}

fn step() -> impl Strategy<Value = Step> {
    let page = prop_oneof![Just(0_u32), Just(1), Just(65_535)];
    let low = prop_oneof![Just(0_u16), Just(u16::MAX), 0..200_u16, any::<u16>()];
    // Runs of thousands, so that pages change their form.
    let run = (any::<u16>(), 0..6000_u16, 1..4_usize);
    let lows =
        run.prop_map(|(first, length, step)| (first..=first.saturating_add(length)).step_by(step).collect::<Vec<_>>());
    prop_oneof![
        (any::<bool>(), page.clone(), low).prop_map(|(set, page, low)| Step::One(set, page << 16 | u32::from(low))),
        (any::<bool>(), page, lows).prop_map(|(set, page, lows)| Step::Many(set, page, lows)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn number_set_matches_btree_set(steps in vec(step(), 1..40)) {
        let mut set = NumberSet::default();
        let mut model = BTreeSet::new();
        for step in steps {
            match step {
                Step::One(true, number) => { set.insert(number); model.insert(number); }
                Step::One(false, number) => { set.remove(number); model.remove(&number); }
                Step::Many(true, page, lows) => {
                    set.insert_many(&numbers(page, lows.clone()));
                    model.extend(lows.iter().map(|low| page << 16 | u32::from(*low)));
                }
                Step::Many(false, page, lows) => {
                    set.remove_many(&numbers(page, lows.clone()));
                    lows.iter().for_each(|low| { model.remove(&(page << 16 | u32::from(*low))); });
                }
            }
            prop_assert_eq!(set.len(), model.len() as u64);
        }
        for page in [0, 1, 2, 65_535] {
            for low in 0..=u16::MAX {
                let number = page << 16 | u32::from(low);
                prop_assert_eq!(set.contains(number), model.contains(&number), "{}", number);
            }
        }
        let bytes = set.pages.iter().flatten().map(Page::bytes).sum::<u64>();
        prop_assert_eq!(set.page_bytes, bytes);
        model.iter().for_each(|number| set.remove(*number));
        prop_assert_eq!((set.len(), set.bytes()), (0, 0));
    }
}

#[test]
fn uneven_lists_are_searched_correctly() {
    let lists: [Vec<u16>; 7] = [
        vec![],
        vec![0],
        vec![u16::MAX],
        (0..4096).collect(),
        (u16::MAX - 4095..=u16::MAX).collect(),
        (0..2000).chain(60_000..62_000).chain([65_535]).collect(),
        (0..4096).map(|number: u16| number * 16 + number % 7).collect(),
    ];
    for list in lists {
        for low in 0..=u16::MAX {
            assert_eq!(super::lists(&list, low), list.binary_search(&low).is_ok(), "{low} of {}", list.len());
        }
    }
}
