//! How many watch each person, at all hosts together.

use crate::keyspace::{Garbled, decode_count};
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::MAX_BATCH;

use super::super::Inner;
use super::super::batch::{Batch, piece};
use rollcall_store::topics::WATCHERS_TTL;

impl Inner {
    pub(super) async fn count_watchers(&self, station: &str, counts: &[(UserId, u32)]) -> Result<Vec<u64>, Error> {
        let mut sums = Vec::with_capacity(counts.len());
        for part in counts.chunks(MAX_BATCH) {
            let now = self.around.time.now();
            let mut batch = Batch::with_capacity(part.len(), part.len());
            for (user, count) in part {
                let (user, said) = (user.as_str(), (station, *count));
                let shard = self.keys.shard_of(user);
                batch.add(user, shard, |to| self.keys.count_watchers(to, user, said, now, WATCHERS_TTL));
            }
            let replies = self.run(&batch).await;
            for item in replies.items() {
                let sum = item?.first().map_or(Err(Garbled("a reply")), |value| decode_count(piece(value)));
                sums.push(sum.map_err(|error| self.garbled(&error))?);
            }
        }
        Ok(sums)
    }
}
