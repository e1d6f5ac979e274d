//! A snapshot in parts: first the buckets, then the pages of numbers, group by group. The number of a part alone says
//! what it contains, so the server keeps no state per reader. It names the first item, not an offset, so pages that are
//! added or removed during a snapshot do not shift the others.

use std::ops::Range;

use rollcall_core::policy::{Numbers, PAGE_NUMBERS};

use super::BUCKETS;
use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use rollcall_core::shard_of;

/// How many buckets are examined at once.
const BUCKETS_AT_ONCE: u32 = 1024;

/// The most bucket fields in one part: a reader processes them in a few milliseconds. A larger bucket is read once for
/// each of its slices.
const FIELDS_AT_ONCE: u64 = 16_384;

/// Set in the numbers of slices.
const SLICE: u32 = 1 << 30;

/// The bits of a slice's number that hold the bucket.
const BUCKET_BITS: u32 = BUCKETS.ilog2();

/// The bits of a slice's number that hold the index of the slice.
const SLICE_BITS: u32 = 14;

/// How many pages of numbers are read at once: half a megabyte.
const PAGES_AT_ONCE: usize = 64;

/// A part of buckets has the number of its first bucket; other parts have higher numbers.
const BUCKET_PARTS: u32 = BUCKETS;

/// A part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The first of these buckets, as many as fit: [`Keyspace::buckets_of_part`].
    Buckets(Range<u32>),
    /// The fields of a bucket that belong to a slice: [`Slice::has`].
    Slice(Slice),
    /// A group's pages of numbers from this one on, as many as fit.
    Numbers {
        /// The group.
        group: u32,
        /// The first page.
        from: u32,
    },
    /// Beyond the last part.
    Nothing,
}

/// A slice of a bucket: the fields whose hash falls into it. Its number includes how many slices there are, so fields
/// that are added or removed during a snapshot do not shift the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The bucket.
    pub bucket: u32,
    /// The number of slices, as a power of two.
    power: u32,
    index: u32,
}

impl Slice {
    /// The first slice of a bucket with this many fields.
    fn first(bucket: u32, fields: u64) -> Self {
        let power = fields.div_ceil(FIELDS_AT_ONCE).next_power_of_two().ilog2().min(SLICE_BITS);
        Self { bucket, power, index: 0 }
    }

    fn of(number: u32) -> Self {
        let bits = |from: u32, count: u32| (number >> from) & ((1 << count) - 1);
        let power = bits(BUCKET_BITS + SLICE_BITS, 4).min(SLICE_BITS);
        Self { bucket: bits(0, BUCKET_BITS), power, index: bits(BUCKET_BITS, SLICE_BITS) }
    }

    fn number(self) -> u32 {
        SLICE | self.power << (BUCKET_BITS + SLICE_BITS) | self.index << BUCKET_BITS | self.bucket
    }

    /// Whether a field belongs to this slice.
    pub fn has(&self, field: &[u8]) -> bool {
        // A field that is not text is put into slice 0; decoding it fails there.
        std::str::from_utf8(field).map_or(self.index == 0, |field| shard_of(field, 1 << self.power) == self.index)
    }

    /// The number of the next slice, or as the error the next bucket.
    fn next(self) -> Result<u32, u32> {
        let next = Self { index: self.index + 1, ..self };
        if next.index < 1 << self.power { Ok(next.number()) } else { Err(self.bucket + 1) }
    }
}

impl Keyspace {
    /// The part with this number.
    pub fn part(&self, number: u32) -> Part {
        if number & SLICE != 0 {
            return Part::Slice(Slice::of(number));
        }
        let Some(place) = number.checked_sub(BUCKET_PARTS) else {
            return Part::Buckets(number..(number + BUCKETS_AT_ONCE).min(BUCKETS));
        };
        let (group, row) = (place / self.pages_per_group(), place % self.pages_per_group());
        if group >= self.groups() {
            return Part::Nothing;
        }
        Part::Numbers { group, from: row * self.groups() + group }
    }

    /// Which of these buckets fit into the part, by their numbers of fields, and the number of the next part. `counts`
    /// has the number of pages of each group.
    pub fn buckets_of_part(&self, buckets: &Range<u32>, fields: &[u64], counts: &[u64]) -> (Vec<u32>, Option<u32>) {
        let (mut read, mut total) = (Vec::new(), 0);
        for (bucket, &fields) in buckets.clone().zip(fields) {
            total += fields;
            match total > FIELDS_AT_ONCE {
                true if read.is_empty() => return (read, Some(Slice::first(bucket, fields).number())),
                true => return (read, self.part_of_bucket(bucket, counts)),
                false if fields > 0 => read.push(bucket),
                false => {}
            }
        }
        (read, self.part_of_bucket(buckets.end, counts))
    }

    /// The number of the part after a slice.
    pub fn part_after_slice(&self, slice: Slice, counts: &[u64]) -> Option<u32> {
        slice.next().map_or_else(|bucket| self.part_of_bucket(bucket, counts), Some)
    }

    /// Which of a group's pages fit into the part, and the number of the next part. `pages` in any order.
    pub fn pages_of_part(&self, mut pages: Vec<u32>, from: u32) -> (Vec<u32>, Option<u32>) {
        pages.retain(|page| *page >= from);
        pages.sort_unstable();
        let next = pages.get(PAGES_AT_ONCE).map(|page| self.part_of_page(*page));
        pages.truncate(PAGES_AT_ONCE);
        (pages, next)
    }

    /// The number of the part that begins with this bucket. `counts` has the number of pages of each group.
    fn part_of_bucket(&self, bucket: u32, counts: &[u64]) -> Option<u32> {
        if bucket < BUCKETS { Some(bucket) } else { self.part_of_groups(0, counts) }
    }

    /// The number of the first part of the first group, from this one on, that has pages of numbers.
    pub fn part_of_groups(&self, first: u32, counts: &[u64]) -> Option<u32> {
        let mut groups = (0..self.groups()).zip(counts).skip(first as usize);
        groups.find(|(_, count)| **count > 0).map(|(group, _)| BUCKET_PARTS + group * self.pages_per_group())
    }

    /// Adds the command that counts a bucket's fields.
    pub fn count_fields(&self, to: &mut Commands, bucket: u32) {
        to.begin("HLEN").key(self.policy(bucket));
    }

    /// Adds the command that counts a group's pages of numbers.
    pub fn count_pages(&self, to: &mut Commands, group: u32) {
        to.begin("SCARD").key(self.pages(group));
    }

    /// Adds the command that lists a group's pages of numbers; see [`decode_pages`].
    pub fn list_pages(&self, to: &mut Commands, group: u32) {
        to.begin("SMEMBERS").key(self.pages(group));
    }

    /// Adds the command that reads a page of numbers; see [`decode_numbers`].
    pub fn read_numbers(&self, to: &mut Commands, page: u32) {
        to.begin("GET").key(self.numbers(page));
    }

    fn part_of_page(&self, page: u32) -> u32 {
        BUCKET_PARTS + self.group_of_page(page) * self.pages_per_group() + page / self.groups()
    }

    fn pages_per_group(&self) -> u32 {
        PAGE_NUMBERS.div_ceil(self.groups())
    }
}

/// The pages of numbers that a group has.
pub fn decode_pages<'a>(reply: impl Iterator<Item = Piece<'a>>) -> Result<Vec<u32>, BadReply> {
    const WHAT: &str = "a page of numbers";
    let pages = reply.filter(|piece| *piece != Piece::Nil).map(|piece| {
        let page = piece.number(WHAT)?;
        u32::try_from(page).ok().filter(|page| *page < PAGE_NUMBERS).ok_or(BadReply(WHAT))
    });
    pages.collect()
}

/// The restricted accounts of a page; `None` if there are none.
pub fn decode_numbers(reply: Piece<'_>, page: u32) -> Result<Option<Numbers>, BadReply> {
    const WHAT: &str = "a page of numbers";
    match reply {
        Piece::Nil => Ok(None),
        Piece::Int(_) => Err(BadReply(WHAT)),
        Piece::Bytes(bits) => Numbers::new(page, bits.to_vec()).map(Some).map_err(|_| BadReply(WHAT)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Reads every bucket and every page, part by part.
    fn read_all(keys: &Keyspace, fields: &[u64], pages: &BTreeSet<u32>) -> (Vec<u32>, BTreeSet<u32>, usize) {
        let of_group =
            |group| pages.iter().copied().filter(|page| keys.group_of_page(*page) == group).collect::<Vec<_>>();
        let counts: Vec<u64> = (0..keys.groups()).map(|group| of_group(group).len() as u64).collect();
        let (mut buckets, mut read, mut parts, mut next) = (Vec::new(), BTreeSet::new(), 0, Some(0));
        while let Some(number) = next {
            parts += 1;
            next = match keys.part(number) {
                Part::Buckets(range) => {
                    let those = &fields[range.start as usize..range.end as usize];
                    let (part, next) = keys.buckets_of_part(&range, those, &counts);
                    let total: u64 = part.iter().map(|bucket| fields[*bucket as usize]).sum();
                    assert!(total <= FIELDS_AT_ONCE, "{total} fields at once");
                    assert_ne!(next, Some(range.start), "the next part differs");
                    buckets.extend(part);
                    next
                }
                Part::Slice(slice) => {
                    if slice.index == 0 {
                        buckets.push(slice.bucket);
                    }
                    assert!(fields[slice.bucket as usize] <= FIELDS_AT_ONCE << slice.power);
                    keys.part_after_slice(slice, &counts)
                }
                Part::Numbers { group, from } => {
                    let (part, next) = keys.pages_of_part(of_group(group), from);
                    assert!(part.len() <= PAGES_AT_ONCE);
                    assert!(part.iter().all(|page| read.insert(*page)), "a page was read twice");
                    next.or_else(|| keys.part_of_groups(group + 1, &counts))
                }
                Part::Nothing => None,
            };
        }
        (buckets, read, parts)
    }

    #[test]
    fn parts_cover_every_page_once() {
        for shards in [1, 3, 16, 256] {
            let keys = Keyspace::new("rc", shards).unwrap();
            let dense: BTreeSet<u32> = (0..3000).collect();
            let sparse: BTreeSet<u32> = (0..200).map(|index| index * index).chain([65_534, 65_535]).collect();
            for pages in [BTreeSet::new(), [65_535].into(), dense, sparse] {
                let (buckets, read, parts) = read_all(&keys, &[0; BUCKETS as usize], &pages);
                assert_eq!((buckets, read), (Vec::new(), pages.clone()), "{shards} shards");
                assert!(parts <= 4 + pages.len() / PAGES_AT_ONCE + 16, "{parts} parts for {} pages", pages.len());
            }
        }
    }

    #[test]
    fn buckets_are_read_once_in_small_parts() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let even = |fields| vec![fields; BUCKETS as usize];
        let mut odd = even(0);
        for (bucket, fields) in [(0, 1), (7, FIELDS_AT_ONCE * 3), (8, FIELDS_AT_ONCE), (9, 1), (4095, 100_000)] {
            odd[bucket] = fields;
        }
        for (fields, most) in [(even(0), 4), (even(1), 4), (even(20), 8), (even(20_000), 4096 * 3), (odd, 24)] {
            let filled: Vec<u32> = (0..BUCKETS).filter(|bucket| fields[*bucket as usize] > 0).collect();
            let (buckets, _, parts) = read_all(&keys, &fields, &BTreeSet::new());
            assert_eq!(buckets, filled);
            assert!(parts <= most, "{parts} parts");
        }
    }

    #[test]
    fn slices_cover_every_field_once() {
        let keys = Keyspace::new("rc", 256).unwrap();
        for (count, most) in [(FIELDS_AT_ONCE + 1, 2), (200_000, 16), (1 << 30, 1 << 14)] {
            let mut part = Slice::first(4095, count).number();
            let (mut slices, fields) = (Vec::new(), (0..50_000_u32).map(|number| format!("user-{number}\nb")));
            while let Part::Slice(slice) = keys.part(part) {
                assert!(part < 1 << 31 && slice.bucket == 4095);
                slices.push(slice);
                let Some(next) = keys.part_after_slice(slice, &[1]) else { break };
                part = next;
            }
            assert_eq!(slices.len(), most);
            assert_eq!(keys.part(part), Part::Numbers { group: 0, from: 0 }, "after the bucket come the pages");
            if most > 16 {
                continue;
            }
            let mut sizes = vec![0; most];
            for field in fields {
                let of: Vec<usize> = (0..most).filter(|index| slices[*index].has(field.as_bytes())).collect();
                assert_eq!(of.len(), 1, "{field}");
                sizes[of[0]] += 1;
            }
            let fair = 50_000 / most;
            assert!(sizes.iter().all(|size| (fair / 2..fair * 2).contains(size)), "{sizes:?}");
        }
    }

    #[test]
    fn parts_end_with_nothing() {
        let keys = Keyspace::new("rc", 256).unwrap();
        assert_eq!((keys.part(0), keys.part(4000)), (Part::Buckets(0..1024), Part::Buckets(4000..4096)));
        assert_eq!(keys.part(4096), Part::Numbers { group: 0, from: 0 });
        assert_eq!(keys.part(4096 + 65_535), Part::Numbers { group: 15, from: 65_535 });
        assert_eq!((keys.part(4096 + 65_536), keys.part((1 << 30) - 1)), (Part::Nothing, Part::Nothing));
    }

    #[test]
    fn invalid_pages_are_refused() {
        assert_eq!(decode_pages([Piece::Bytes(b"7"), Piece::Int(65_535)].into_iter()), Ok(vec![7, 65_535]));
        for bad in [Piece::Bytes(b"x"), Piece::Int(-1), Piece::Int(65_536)] {
            assert!(decode_pages([bad].into_iter()).is_err());
        }
        assert_eq!(decode_numbers(Piece::Nil, 1), Ok(None));
        assert!(decode_numbers(Piece::Bytes(&[0; 8193]), 1).is_err());
    }
}
