//! Last seen, kept for ever, where Redis is the archive too: a sorted set per shard. A score that only rises is what
//! never moving a last seen backwards means, so no script is needed.

use rollcall_core::Time;

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;

impl Keyspace {
    /// Adds the command that keeps a last seen entry, unless a later one is kept.
    pub fn put_last_seen(&self, to: &mut Commands, user: &str, last_seen: Time) {
        to.begin("ZADD").key(self.last_seen(self.shard_of(user))).text("GT").number(last_seen.0).text(user);
    }

    /// Adds the command that says when somebody was last seen; see [`decode_score`](crate::keyspace::decode_score).
    pub fn get_last_seen(&self, to: &mut Commands, user: &str) {
        to.begin("ZSCORE").key(self.last_seen(self.shard_of(user))).text(user);
    }
}
