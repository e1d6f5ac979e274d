//! Which hosts share the store: a sorted set in which each host writes itself every second.

use rollcall_core::{Span, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::Piece;

/// A host silent for this long counts as gone: three times the interval at which hosts write.
pub const MISSED_AFTER: Span = Span::seconds(3);

/// A host silent for this long is removed from the set.
const REMOVED_AFTER: Span = Span::seconds(60);

/// The names in the reply.
pub fn decode_hosts<'a>(reply: impl Iterator<Item = Piece<'a>>) -> Vec<String> {
    reply.filter_map(|piece| piece.text("a host").ok().flatten().map(str::to_owned)).collect()
}

impl Keyspace {
    /// Adds the commands that write this host into the set and list all hosts. The last reply has the names.
    pub fn renew_membership(&self, to: &mut Commands, host: &str, now: Time) {
        let ago = |span: Span| now.0.saturating_sub(span.0);
        to.begin("ZADD").key(self.hosts()).number(now.0).text(host);
        to.begin("ZREMRANGEBYSCORE").key(self.hosts()).text("-inf").number(ago(REMOVED_AFTER));
        to.begin("ZRANGEBYSCORE").key(self.hosts()).number(ago(MISSED_AFTER)).text("+inf");
    }

    /// Adds the command that removes a host.
    pub fn leave_membership(&self, to: &mut Commands, host: &str) {
        to.begin("ZREM").key(self.hosts()).text(host);
    }
}
