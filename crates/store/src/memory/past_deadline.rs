//! Users past their deadline in many shards: the earliest deadline first, with work proportional to the answer.

use std::collections::BinaryHeap;

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::Shards;

use super::Memory;
use super::shard::Queue;

/// The capacity reserved for an answer; a larger answer grows it.
const USUAL: usize = 1024;

impl Memory {
    /// Users in these shards whose instant in the queue has passed. Shards that do not exist are empty.
    pub(super) fn past_deadline(&self, queue: Queue, shards: Shards, limit: u32) -> Vec<UserId> {
        let now = self.now();
        let limit = limit as usize;
        let first = shards.first as usize;
        let count = (shards.end as usize).saturating_sub(first);
        // The `limit` earliest deadlines so far, the latest of them on top: the scan of a shard ends as soon as its next
        // deadline is later than that.
        let mut earliest: BinaryHeap<(Time, usize, u32)> = BinaryHeap::with_capacity(limit.min(USUAL));
        for (index, shard) in self.shards.iter().enumerate().skip(first).take(count) {
            if limit == 0 || shard.earliest(queue).is_none_or(|earliest| earliest > now) {
                continue;
            }
            shard.passed(queue, now, |at, slot| {
                if earliest.len() == limit {
                    match earliest.peek() {
                        Some((latest, _, _)) if at < *latest => earliest.pop(),
                        _ => return false,
                    };
                }
                earliest.push((at, index, slot));
                true
            });
        }
        let earliest = earliest.into_sorted_vec();
        // A user who was settled in between is no longer due.
        let user = |(at, index, slot): (Time, usize, u32)| self.shards.get(index)?.waiting(queue, at, slot);
        earliest.into_iter().filter_map(user).collect()
    }
}
