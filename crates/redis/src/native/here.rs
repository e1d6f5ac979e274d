//! How many people are here, counted without looking at any of them.

use crate::keyspace::{Garbled, decode_count};
use rollcall_core::Error;

use super::Redis;
use super::batch::{Batch, piece};

impl Redis {
    /// How many people wait for a deadline, in all shards: one command each, in one pipeline per server.
    ///
    /// Whoever is not offline does, so nobody who is here is missing. Counted in besides are the invisible who are connected,
    /// those absent whose choice or note is going to end, and for a moment those whose time has come. If a server does not
    /// answer there is no count: half of one would tell that people had left.
    pub async fn here(&self) -> Result<u64, Error> {
        let inner = &self.inner;
        let shards = inner.keys.shards();
        let mut batch = Batch::with_capacity(shards as usize, shards as usize);
        for shard in 0..shards {
            batch.add("", shard, |to| inner.keys.count_due(to, shard));
        }
        let replies = inner.run(&batch).await;
        let mut here = 0;
        for item in replies.items() {
            let count = item?.first().map_or(Err(Garbled("a reply")), |value| decode_count(piece(value)));
            here += count.map_err(|error| inner.garbled(&error))?;
        }
        Ok(here)
    }
}
