//! Published records: one `MGET` of the users' `alive` keys, and one script for those who have none. On a Cluster, one of each
//! for every shard.

use rollcall_core::{Error, Ids, Record, UserId};
use rollcall_functions::capabilities::Records;

use super::{MAX_BATCH, RedisStore, bounded};
use crate::keyspace::{BadReply, Piece, Publishing, decode_alive, decode_record};
use crate::transport::{Batch, Transport, pieces};

/// The most users in one command. The server serves nobody else meanwhile, and two lookups a user take it a microsecond.
const MAX_IN_COMMAND: usize = 256;

/// Users who share a command, by their index in the request.
struct Group {
    shard: u32,
    users: Vec<usize>,
}

impl<T: Transport> RedisStore<T> {
    pub(super) async fn read_records(&self, users: &Ids<UserId>) -> Result<Records, Error> {
        bounded(users.len(), MAX_BATCH)?;
        let users: Vec<&str> = users.iter().collect();
        let mut records: Vec<Option<Result<Record, Error>>> = vec![None; users.len()];
        let groups = self.groups(&users, (0..users.len()).collect());
        let mut batch = Batch::with_capacity(groups.len(), groups.len());
        self.transport.begin_read(&mut batch);
        for group in &groups {
            batch.read(group.shard, |to| self.keys().read_alive(to, group.names(&users)));
        }
        let replies = self.transport.run(batch).await;
        let now = replies.moment()?.now;
        for (group, item) in groups.iter().zip(replies.items()) {
            self.fill(&mut records, group, item, |[alive]| decode_alive(alive));
        }
        let missing = records.iter().enumerate().filter(|(_, record)| record.is_none());
        let groups = self.groups(&users, missing.map(|(index, _)| index).collect());
        let mut batch = Batch::with_capacity(groups.len(), groups.len());
        for group in &groups {
            batch.read(group.shard, |to| self.keys().read_records(to, group.names(&users)));
        }
        if !groups.is_empty() {
            let replies = self.transport.run(batch).await;
            for (group, item) in groups.iter().zip(replies.items()) {
                self.fill(&mut records, group, item, |values| decode_record(values, now).map(Some));
            }
        }
        let missing = || self.read(Err(BadReply("fewer values than users")));
        Ok(Records { now, records: records.into_iter().map(|record| record.unwrap_or_else(missing)).collect() })
    }

    /// The users in groups of which each fits into one command.
    fn groups(&self, users: &[&str], mut asked: Vec<usize>) -> Vec<Group> {
        let shard_of = |index: &usize| users.get(*index).map_or(0, |user| self.keys().shard_of(user));
        let group = |users: &[usize]| Group { shard: users.first().map_or(0, shard_of), users: users.to_vec() };
        match self.transport.publishing() {
            // A single server, which has all shards.
            Publishing::Plain => asked.chunks(MAX_IN_COMMAND).map(group).collect(),
            Publishing::Sharded => {
                asked.sort_by_cached_key(shard_of);
                let shards = asked.chunk_by(|one, other| shard_of(one) == shard_of(other));
                shards.flat_map(|shard| shard.chunks(MAX_IN_COMMAND)).map(group).collect()
            }
        }
    }

    /// Stores a group's answers: `N` values for each user.
    fn fill<const N: usize>(
        &self,
        records: &mut [Option<Result<Record, Error>>],
        group: &Group,
        item: Result<&[T::Reply], Error>,
        decode: impl Fn([Piece<'_>; N]) -> Result<Option<Record>, BadReply>,
    ) {
        let mut values = item.as_ref().map(|values| pieces(values)).ok();
        for index in &group.users {
            let Some(record) = records.get_mut(*index) else { continue };
            *record = match (&item, &mut values) {
                (Ok(_), Some(values)) => {
                    let values = std::array::from_fn(|_| values.next().unwrap_or(Piece::Nil));
                    self.read(decode(values)).transpose()
                }
                (Err(error), _) => Some(Err(error.clone())),
                (Ok(_), None) => None,
            };
        }
    }
}

impl Group {
    fn names<'a>(&'a self, users: &'a [&'a str]) -> impl Iterator<Item = &'a str> + Clone {
        self.users.iter().filter_map(|index| users.get(*index).copied())
    }
}
