//! Last seen where Redis is also the archive: a sorted set per shard, kept for ever. `ZADD GT` never moves a last seen
//! backwards, so no script is needed.

use rollcall_core::Time;

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;

impl Keyspace {
    /// Adds the command that stores a last seen unless a later one is stored.
    pub fn put_last_seen(&self, to: &mut Commands, user: &str, last_seen: Time) {
        to.begin("ZADD").key(self.last_seen(self.shard_of(user))).text("GT").number(last_seen.0).text(user);
    }

    /// Adds the command that reads the last seen of users of a shard; see [`decode_score`](crate::keyspace::decode_score).
    pub fn get_last_seen<'a>(&self, to: &mut Commands, shard: u32, users: impl Iterator<Item = &'a str>) {
        to.begin("ZMSCORE").key(self.last_seen(shard));
        users.for_each(|user| {
            to.text(user);
        });
    }
}
