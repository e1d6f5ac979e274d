//! What hosts share: the membership list, how many users are online, and how many watchers each user has.

use rollcall_core::{Error, Span, UserId};
use rollcall_functions::capabilities::MAX_BATCH;

use super::RedisStore;
use crate::keyspace::{decode_count, decode_hosts};
use crate::transport::{Batch, Reply, Transport, piece};

/// The shard of the keys that are shared by all shards.
const SHARED_KEYS_SHARD: u32 = 0;

impl<T: Transport> RedisStore<T> {
    /// Writes this host into the membership list and returns the names of all hosts on it, in order.
    pub async fn renew_membership(&self, host: &str) -> Result<Vec<String>, Error> {
        let now = self.transport.now().await?;
        let mut batch = Batch::decided_at(now, 1, 3);
        batch.add(host, SHARED_KEYS_SHARD, |to| self.keys().renew_membership(to, host, now.time()));
        let replies = self.transport.run(batch).await;
        let mut hosts = Vec::new();
        for item in replies.items() {
            hosts.extend(item?.last().into_iter().flat_map(|reply| decode_hosts(reply.pieces())));
        }
        hosts.sort_unstable();
        Ok(hosts)
    }

    /// Removes this host from the membership list.
    pub async fn leave_membership(&self, host: &str) -> Result<(), Error> {
        let mut batch = Batch::with_capacity(1, 1);
        batch.add(host, SHARED_KEYS_SHARD, |to| self.keys().leave_membership(to, host));
        let replies = self.transport.run(batch).await;
        replies.items().try_for_each(|item| item.map(drop))
    }

    /// How many users have a deadline, in all shards: one command each, in one pipeline per server.
    ///
    /// Every user who is not offline has one. Connected invisible users, offline users whose choice or note is going to
    /// end and, briefly, users who are due are counted too. If a server does not answer there is no count: a partial
    /// one would look as if users had left.
    pub async fn online_count(&self) -> Result<u64, Error> {
        let shards = self.keys().shards();
        let mut batch = Batch::with_capacity(shards as usize, shards as usize);
        for shard in 0..shards {
            batch.add("", shard, |to| self.keys().count_due(to, shard));
        }
        let replies = self.transport.run(batch).await;
        replies.items().map(|item| self.read(decode_count(piece(item?)))).sum()
    }

    /// Stores how many watchers `worker` has of each user, for `ttl`; returns how many all workers have together.
    pub async fn sum_watchers(&self, worker: &str, counts: &[(UserId, u32)], ttl: Span) -> Result<Vec<u64>, Error> {
        let mut sums = Vec::with_capacity(counts.len());
        for part in counts.chunks(MAX_BATCH) {
            let now = self.transport.now().await?;
            let mut batch = Batch::decided_at(now, part.len(), part.len());
            for (user, count) in part {
                let (user, said) = (user.as_str(), (worker, *count));
                let shard = self.keys().shard_of(user);
                batch.add(user, shard, |to| self.keys().count_watchers(to, user, said, now.time(), ttl));
            }
            let replies = self.transport.run(batch).await;
            for item in replies.items() {
                sums.push(self.read(decode_count(piece(item?)))?);
            }
        }
        Ok(sums)
    }
}
