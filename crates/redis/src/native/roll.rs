//! Which hosts share the store, so that they can share the work.

use crate::keyspace::decode_hosts;
use redis::Value;
use rollcall_core::Error;

use super::Redis;
use super::batch::{Batch, pieces};

/// The shard that what belongs to nobody is in.
const SHARD: u32 = 0;

impl Redis {
    /// Says that this host is there, and answers with the names of all that are, in order.
    pub async fn answer_roll(&self, host: &str) -> Result<Vec<String>, Error> {
        let inner = &self.inner;
        let mut batch = Batch::with_capacity(1, 3);
        batch.add(host, SHARD, |to| inner.keys.answer_roll(to, host, self.now()));
        let replies = inner.run(&batch).await;
        let mut hosts = Vec::new();
        for item in replies.items() {
            hosts.extend(decode_hosts(pieces(item?.last().unwrap_or(&Value::Nil))));
        }
        hosts.sort_unstable();
        Ok(hosts)
    }

    /// Says that this host ends.
    pub async fn leave_roll(&self, host: &str) -> Result<(), Error> {
        let mut batch = Batch::with_capacity(1, 1);
        batch.add(host, SHARD, |to| self.inner.keys.leave_roll(to, host));
        let replies = self.inner.run(&batch).await;
        replies.items().try_for_each(|item| item.map(drop))
    }
}
