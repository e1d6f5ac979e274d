//! A bitset of numbers, for restricted numeric accounts.
//!
//! Numbers below 2^32 are divided into 65,536 pages of 65,536. A page with up to 512 numbers is a sorted list of two bytes each;
//! beyond that it is a bitmap of 8 KB, which needs no search. An empty page takes only its directory entry. A lookup is one
//! step into the directory and one into the page. Only whole pages are ever reallocated: a billion numbers in a row take
//! 125 MB, 8 KB at a time.

use rollcall_core::policy::{Numbers, PAGE_NUMBERS};

/// The most numbers in a list. A list would be smaller than a bitmap up to 4,096, by up to a factor of eight; but a bitmap takes one
/// memory access, and every check of a number makes it.
const MOST_LISTED: usize = 512;

/// Below this, a bitmap turns into a list again: a quarter apart, so that a page at the limit does not turn with every change.
const FEWEST_BITS: u32 = 384;

const WORDS: usize = PAGE_NUMBERS as usize / 64;

/// A page as bits: number `n` of the page is bit `n % 64`, the lowest first, of word `n / 64`.
type Words = [u64; WORDS];

/// A set of numbers.
#[derive(Default)]
pub(crate) struct NumberSet {
    /// By page number, up to the last page that is not empty.
    pages: Vec<Option<Page>>,
    len: u64,
    /// Bytes of the pages, without the directory.
    page_bytes: u64,
}

/// A page that is not empty.
enum Page {
    /// In ascending order.
    Few(Vec<u16>),
    Bits {
        words: Box<Words>,
        count: u32,
    },
}

impl NumberSet {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.pages.capacity() * size_of::<Option<Page>>()) as u64 + self.page_bytes
    }

    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        let (page, low) = split(number);
        match self.pages.get(page) {
            Some(Some(Page::Few(few))) => lists(few, low),
            Some(Some(Page::Bits { words, .. })) => {
                words.get(usize::from(low >> 6)).is_some_and(|word| word >> (low & 63) & 1 == 1)
            }
            Some(None) | None => false,
        }
    }

    /// Prefetches the memory of a number by reading it, so that a lookup soon after finds it in the cache.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) -> u64 {
        let (page, low) = split(number);
        match self.pages.get(page) {
            Some(Some(Page::Few(few))) => few.get((usize::from(low) * few.len()) >> 16).copied().map_or(0, u64::from),
            Some(Some(Page::Bits { words, .. })) => words.get(usize::from(low >> 6)).copied().unwrap_or_default(),
            Some(None) | None => 0,
        }
    }

    pub(crate) fn insert(&mut self, number: u32) {
        let (page, low) = split(number);
        self.change(page, |page| Some(page.unwrap_or(Page::Few(Vec::new())).with(low)));
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let (page, low) = split(number);
        if page < self.pages.len() {
            self.change(page, |page| page.and_then(|page| page.without(low)));
        }
    }

    pub(crate) fn insert_many(&mut self, numbers: &Numbers) {
        if numbers.bits().iter().all(|byte| *byte == 0) {
            return;
        }
        self.change(numbers.page() as usize, |page| merged(page, numbers, |word, more| word | more));
    }

    pub(crate) fn remove_many(&mut self, numbers: &Numbers) {
        if (numbers.page() as usize) < self.pages.len() {
            self.change(numbers.page() as usize, |page| merged(page, numbers, |word, less| word & !less));
        }
    }

    /// Replaces a page and updates the counts. The directory ends with the last page that is not empty.
    fn change(&mut self, page: usize, change: impl FnOnce(Option<Page>) -> Option<Page>) {
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let Some(slot) = self.pages.get_mut(page) else { return };
        let measure = |page: &Option<Page>| page.as_ref().map_or((0, 0), |page| (page.len(), page.bytes()));
        let (len_before, bytes_before) = measure(slot);
        *slot = change(slot.take());
        let (len, bytes) = measure(slot);
        self.len = self.len - len_before + len;
        self.page_bytes = self.page_bytes - bytes_before + bytes;
        while self.pages.pop_if(|page| page.is_none()).is_some() {}
        if self.pages.len() * 4 < self.pages.capacity() {
            self.pages.shrink_to(self.pages.len() * 2);
        }
    }
}

/// Whether an ascending list contains a number. The search begins where the number would be if all were spread evenly, which they
/// mostly are, and continues in growing steps: one or two cache lines, where a binary search would touch five.
#[inline]
fn lists(few: &[u16], low: u16) -> bool {
    let guess = (usize::from(low) * few.len()) >> 16;
    let (mut from, mut to, mut step) = (guess, guess, 8);
    while from > 0 && few.get(from).is_none_or(|found| *found > low) {
        from = from.saturating_sub(step);
        step *= 2;
    }
    step = 8;
    while few.get(to).is_some_and(|found| *found < low) {
        to += step;
        step *= 2;
    }
    let to = few.len().min(to + 1);
    few.get(from..to).is_some_and(|near| near.binary_search(&low).is_ok())
}

impl Page {
    fn len(&self) -> u64 {
        match self {
            Self::Few(few) => few.len() as u64,
            Self::Bits { count, .. } => u64::from(*count),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Few(few) => (few.capacity() * size_of::<u16>()) as u64,
            Self::Bits { .. } => size_of::<Words>() as u64,
        }
    }

    fn with(mut self, low: u16) -> Self {
        match &mut self {
            Self::Few(few) => {
                if let Err(place) = few.binary_search(&low) {
                    few.insert(place, low);
                    if few.len() > MOST_LISTED {
                        return Self::Bits { words: spread(few), count: few.len() as u32 };
                    }
                }
            }
            Self::Bits { words, count } => {
                if let Some(word) = words.get_mut(usize::from(low >> 6)) {
                    *count += u32::from(*word >> (low & 63) & 1 == 0);
                    *word |= 1 << (low & 63);
                }
            }
        }
        self
    }

    /// The page without this number; `None` if that was the last.
    fn without(mut self, low: u16) -> Option<Self> {
        match &mut self {
            Self::Few(few) => {
                if let Ok(place) = few.binary_search(&low) {
                    few.remove(place);
                    if few.len() * 4 < few.capacity() {
                        few.shrink_to(few.len() * 2);
                    }
                }
                (!few.is_empty()).then_some(self)
            }
            Self::Bits { words, count } => {
                if let Some(word) = words.get_mut(usize::from(low >> 6)) {
                    *count -= u32::from(*word >> (low & 63) & 1 == 1);
                    *word &= !(1 << (low & 63));
                }
                if *count < FEWEST_BITS { Some(Self::Few(listed(words, *count))) } else { Some(self) }
            }
        }
    }

    /// The page as a bitmap, and the count from which on it stays one.
    fn into_words(self) -> (Box<Words>, u32) {
        match self {
            Self::Few(few) => (spread(&few), MOST_LISTED as u32 + 1),
            Self::Bits { words, .. } => (words, FEWEST_BITS),
        }
    }
}

/// A page and these numbers, combined word by word.
fn merged(page: Option<Page>, numbers: &Numbers, combine: impl Fn(u64, u64) -> u64) -> Option<Page> {
    let (mut words, bits_from) = page.unwrap_or(Page::Few(Vec::new())).into_words();
    for (word, bytes) in words.iter_mut().zip(numbers.bits().chunks(8)) {
        let mut whole = [0; 8];
        whole.iter_mut().zip(bytes).for_each(|(whole, byte)| *whole = *byte);
        // A Redis bitmap begins with the highest bit of the first byte, a word with its lowest bit.
        *word = combine(*word, u64::from_be_bytes(whole).reverse_bits());
    }
    match words.iter().map(|word| word.count_ones()).sum() {
        0 => None,
        count if count < bits_from => Some(Page::Few(listed(&words, count))),
        count => Some(Page::Bits { words, count }),
    }
}

fn split(number: u32) -> (usize, u16) {
    ((number >> 16) as usize, number as u16)
}

fn spread(few: &[u16]) -> Box<Words> {
    let mut words = Box::new([0; WORDS]);
    for low in few {
        if let Some(word) = words.get_mut(usize::from(low >> 6)) {
            *word |= 1 << (low & 63);
        }
    }
    words
}

fn listed(words: &Words, count: u32) -> Vec<u16> {
    let mut few = Vec::with_capacity(count as usize);
    for (word, first) in words.iter().zip((0..=u16::MAX).step_by(64)) {
        let mut rest = *word;
        while rest != 0 {
            few.push(first + rest.trailing_zeros() as u16);
            rest &= rest - 1;
        }
    }
    few
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on has failed")]
mod tests;
