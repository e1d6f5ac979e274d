//! The policy snapshot, page by page, and the changes since.

use std::collections::HashMap;

use rollcall_core::Error;
use rollcall_core::policy::{Numbers, PolicyChange};
use rollcall_functions::capabilities::{ChangesSince, Cursor, PolicyPage};

use super::RedisStore;
use crate::keyspace::{
    Entry, Part, Read, changes_of, decode_bucket, decode_count, decode_end, decode_log, decode_numbers, decode_pages,
    decode_slice, pages_of,
};
use crate::transport::{Batch, IN_ORDER, Reply, Transport, piece, pieces};

/// Asking for fewer log entries than this is not worth a round trip.
const LEAST: u32 = 64;

/// The first read of a part.
struct PartHead<R> {
    cursor: Cursor,
    /// How many pages of numbers each group has.
    counts: Vec<u64>,
    /// The replies to the part's own commands.
    values: Vec<R>,
}

impl<T: Transport> RedisStore<T> {
    pub(crate) async fn page(&self, number: u32) -> Result<PolicyPage, Error> {
        let part = self.keys().part(number);
        let PartHead { cursor, counts, values } = self.find(&part).await?;
        let mut changes = Vec::new();
        let next = match part {
            Part::Buckets(buckets) => {
                let fields = values.iter().map(|value| self.read(decode_count(value.piece())));
                let fields = fields.collect::<Result<Vec<_>, _>>()?;
                let (filled, next) = self.keys().buckets_of_part(&buckets, &fields, &counts);
                changes = self.buckets(&filled).await?;
                next
            }
            Part::Slice(slice) => {
                for value in &values {
                    changes.extend(self.read(decode_slice(value.pieces(), slice))?);
                }
                self.keys().part_after_slice(slice, &counts)
            }
            Part::Numbers { group, from } => {
                let pages = self.read(decode_pages(pieces(&values)))?;
                let (pages, next) = self.keys().pages_of_part(pages, from);
                let restricted = self.numbers(&pages).await?;
                changes.extend(restricted.into_values().map(PolicyChange::RestrictMany));
                next.or_else(|| self.keys().part_of_groups(group + 1, &counts))
            }
            Part::Nothing => None,
        };
        Ok(PolicyPage { changes, next, cursor, salt: self.salt })
    }

    /// Reads where the logs end and the first commands of the part, in one round trip.
    async fn find(&self, part: &Part) -> Result<PartHead<T::Reply>, Error> {
        let (keys, groups) = (self.keys(), self.keys().groups());
        let mut batch = Batch::default();
        for group in 0..groups {
            batch.add(IN_ORDER, group, |to| keys.log_end(to, group));
        }
        for group in 0..groups {
            batch.add(IN_ORDER, group, |to| keys.count_pages(to, group));
        }
        match part {
            Part::Buckets(buckets) => {
                for bucket in buckets.clone() {
                    batch.add(IN_ORDER, keys.group_of_bucket(bucket), |to| keys.count_fields(to, bucket));
                }
            }
            Part::Slice(slice) => {
                let group = keys.group_of_bucket(slice.bucket);
                batch.add(IN_ORDER, group, |to| keys.bucket(to, slice.bucket));
            }
            Part::Numbers { group, .. } => batch.add(IN_ORDER, *group, |to| keys.list_pages(to, *group)),
            Part::Nothing => {}
        }
        let replies = self.transport.run(batch).await;
        let mut items = replies.items();
        let (mut cursor, mut counts, mut values) = (Cursor::new(), Vec::new(), Vec::new());
        for item in items.by_ref().take(groups as usize) {
            cursor.push(self.read(decode_end(pieces(item?)))?);
        }
        for item in items.by_ref().take(groups as usize) {
            counts.push(self.read(decode_count(piece(item?)))?);
        }
        for item in items {
            values.extend_from_slice(item?);
        }
        Ok(PartHead { cursor, counts, values })
    }

    pub(crate) async fn follow(&self, mut cursor: Cursor, limit: u32) -> Result<ChangesSince, Error> {
        let groups = self.keys().groups();
        if cursor.is_empty() {
            return Ok(ChangesSince::Changes(Vec::new(), self.find(&Part::Nothing).await?.cursor));
        }
        if cursor.len() != groups as usize {
            return Ok(ChangesSince::Gap);
        }
        let limit = (limit / groups).max(LEAST);
        let mut batch = Batch::default();
        for (group, place) in (0..groups).zip(&cursor) {
            batch.add("", group, |to| self.keys().read_log(to, group, *place, limit));
        }
        let replies = self.transport.run(batch).await;
        let mut entries: Vec<Entry> = Vec::new();
        for (item, place) in replies.items().zip(&mut cursor) {
            match self.read(decode_log(pieces(item?), *place))? {
                Read::Entries(more, end) => {
                    entries.extend(more);
                    *place = end;
                }
                Read::Gap => return Ok(ChangesSince::Gap),
            }
        }
        let pages: Vec<u32> = pages_of(entries.iter()).into_iter().collect();
        let mut restricted = self.numbers(&pages).await?;
        Ok(ChangesSince::Changes(changes_of(entries, |page| restricted.remove(&page)), cursor))
    }

    /// All settings in these buckets.
    async fn buckets(&self, buckets: &[u32]) -> Result<Vec<PolicyChange>, Error> {
        let mut batch = Batch::default();
        for &bucket in buckets {
            batch.add("", self.keys().group_of_bucket(bucket), |to| self.keys().bucket(to, bucket));
        }
        let replies = self.transport.run(batch).await;
        let mut changes = Vec::new();
        for item in replies.items() {
            for value in item? {
                changes.extend(self.read(decode_bucket(value.pieces()))?);
            }
        }
        Ok(changes)
    }

    /// The restricted accounts of these pages that have any.
    async fn numbers(&self, pages: &[u32]) -> Result<HashMap<u32, Numbers>, Error> {
        let mut batch = Batch::default();
        for &page in pages {
            batch.add("", self.keys().group_of_page(page), |to| self.keys().read_numbers(to, page));
        }
        let replies = self.transport.run(batch).await;
        let mut restricted = HashMap::new();
        for (&page, item) in pages.iter().zip(replies.items()) {
            let numbers = self.read(decode_numbers(piece(item?), page))?;
            restricted.extend(numbers.map(|numbers| (page, numbers)));
        }
        Ok(restricted)
    }
}
