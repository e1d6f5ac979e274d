//! Which hosts share the store: a sorted set on which each writes itself from time to time.

use rollcall_core::{Span, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::Piece;

/// Whoever has been silent for so long is missed by the others: three times as long as they are silent by custom.
pub const MISSED_AFTER: Span = Span::seconds(3);

/// Whoever has been silent for so long is struck off.
const STRUCK_OFF_AFTER: Span = Span::seconds(60);

/// The names in the answer.
pub fn decode_hosts<'a>(reply: impl Iterator<Item = Piece<'a>>) -> Vec<String> {
    reply.filter_map(|piece| piece.text("a host").ok().flatten().map(str::to_owned)).collect()
}

impl Keyspace {
    /// Adds the commands by which a host says that it is there, and asks who else is. The last one's reply are the names.
    pub fn join_hosts(&self, to: &mut Commands, host: &str, now: Time) {
        let ago = |span: Span| now.0.saturating_sub(span.0);
        to.begin("ZADD").key(self.hosts()).number(now.0).text(host);
        to.begin("ZREMRANGEBYSCORE").key(self.hosts()).text("-inf").number(ago(STRUCK_OFF_AFTER));
        to.begin("ZRANGEBYSCORE").key(self.hosts()).number(ago(MISSED_AFTER)).text("+inf");
    }

    /// Adds the command by which a host says that it ends.
    pub fn leave_hosts(&self, to: &mut Commands, host: &str) {
        to.begin("ZREM").key(self.hosts()).text(host);
    }
}
