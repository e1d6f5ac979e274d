//! Who is overdue, over many shards: the longest first, and no more work than the answer is long.

use std::collections::BinaryHeap;

use rollcall_core::{Time, UserId};
use rollcall_functions::capabilities::Shards;

use super::Memory;
use super::shard::Agenda;

/// Room made in advance for an answer; a caller that asks for everybody pays for what it gets.
const USUAL: usize = 1024;

impl Memory {
    /// People in these shards whose time on this agenda has come. Shards that do not exist hold nobody.
    pub(super) fn overdue(&self, agenda: Agenda, shards: Shards, limit: u32) -> Vec<UserId> {
        let now = self.now();
        let limit = limit as usize;
        let first = shards.first as usize;
        let count = (shards.end as usize).saturating_sub(first);
        // The `limit` longest overdue so far, the least overdue of them on top: a shard is left as soon as it has
        // nobody who waits longer than that.
        let mut longest: BinaryHeap<(Time, usize, u32)> = BinaryHeap::with_capacity(limit.min(USUAL));
        for (index, shard) in self.shards.iter().enumerate().skip(first).take(count) {
            if limit == 0 || shard.earliest(agenda).is_none_or(|earliest| earliest > now) {
                continue;
            }
            shard.passed(agenda, now, |at, place| {
                if longest.len() == limit {
                    match longest.peek() {
                        Some((least, _, _)) if at < *least => longest.pop(),
                        _ => return false,
                    };
                }
                longest.push((at, index, place));
                true
            });
        }
        let longest = longest.into_sorted_vec();
        // Between the two looks somebody may have been settled; they are not overdue any more.
        let who = |(at, index, place): (Time, usize, u32)| self.shards.get(index)?.waiting(agenda, at, place);
        longest.into_iter().filter_map(who).collect()
    }
}
