//! The number of watchers of each user, at all workers together.

use rollcall_core::{Span, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

impl Keyspace {
    /// Adds the command that stores how many watchers a worker has of a user, and for how long that counts; see
    /// [`decode_count`].
    pub fn count_watchers(&self, to: &mut Commands, user: &str, (worker, count): (&str, u32), now: Time, holds: Span) {
        self.evalsha(to, Script::Watchers, 1).key(self.watchers(user));
        to.text(worker).number(u64::from(count)).number(now.0).number(holds.0);
    }
}

/// The number of watchers at all workers.
pub fn decode_count(reply: Piece<'_>) -> Result<u64, BadReply> {
    u64::try_from(reply.number("a script's answer")?).map_err(|_| BadReply("a script's answer"))
}
