//! The due queue and the archive queue: sorted sets of instants, read in pages.

use rollcall_core::{Time, UserId};

use crate::keyspace::command::Commands;
use crate::keyspace::keys::{Key, Keyspace};
use crate::keyspace::reply::{BadReply, Piece};

impl Keyspace {
    /// Adds the command that reads one page of the members of a set whose instant passed, earliest first. The set is
    /// one of [`Keyspace::due`] and [`Keyspace::archive_queue`].
    pub fn passed(&self, to: &mut Commands, set: Key<'_>, now: Time, skip: usize, page: usize) {
        to.begin("ZRANGEBYSCORE").key(set).text("-inf").number(now.0).text("WITHSCORES");
        to.text("LIMIT").number(skip as u64).number(page as u64);
    }

    /// Adds the command that reads which of these users have a deadline.
    pub fn which_due<'a>(&self, to: &mut Commands, shard: u32, users: impl Iterator<Item = &'a str>) {
        to.begin("ZMSCORE").key(self.due(shard));
        users.for_each(|user| {
            to.text(user);
        });
    }

    /// Adds the command that counts a shard's users with a deadline: everyone online, connected invisible users, and
    /// offline users whose choice is going to end.
    pub fn count_due(&self, to: &mut Commands, shard: u32) {
        to.begin("ZCARD").key(self.due(shard));
    }

    /// Adds the command that reads a user's `alive` key. Redis expires a key lazily when it is read, and sends its
    /// notification.
    pub fn trigger_expiry(&self, to: &mut Commands, user: &str) {
        to.begin("EXISTS").key(self.alive(user));
    }
}

/// The instant that is a member's score; `None` if it is not in the set.
pub fn decode_score(reply: Piece<'_>) -> Result<Option<Time>, BadReply> {
    const WHAT: &str = "a score";
    let Some(text) = reply.text(WHAT)? else { return Ok(None) };
    if let Ok(ms) = text.parse() {
        return Ok(Some(Time(ms)));
    }
    // Redis writes a score too large for an integer as `1.8e+19`.
    let score: f64 = text.parse().map_err(|_| BadReply(WHAT))?;
    Ok(Some(Time(score.max(0.0) as u64)))
}

/// The users in a page with their instants. Members that are not user ids are skipped: they cannot be settled.
pub fn decode_member_scores<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<Vec<(Time, UserId)>, BadReply> {
    let mut members = Vec::new();
    while let Some(member) = reply.next() {
        let score = decode_score(reply.next().unwrap_or(Piece::Nil))?.ok_or(BadReply("a score"))?;
        let text = member.text("a member").ok().flatten();
        if let Some(user) = text.and_then(|text| UserId::parse(text).ok()) {
            members.push((score, user));
        }
    }
    Ok(members)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn large_scores_are_instants() {
        for (text, ms) in
            [("0", 0), ("1700000000000", 1_700_000_000_000), ("1.8446744073709552e+19", u64::MAX), ("-5", 0)]
        {
            assert_eq!(decode_score(Piece::Bytes(text.as_bytes())), Ok(Some(Time(ms))), "{text}");
        }
        assert_eq!(decode_score(Piece::Nil), Ok(None));
        assert!(decode_score(Piece::Bytes(b"x")).is_err());
    }

    #[test]
    fn page_skips_invalid_members() {
        let pieces = [&b"bob"[..], b"5", b"", b"6", b"\xff", b"6", b"eve", b"7"].map(Piece::Bytes);
        let users = decode_member_scores(pieces.into_iter()).unwrap();
        let named: Vec<_> = users.iter().map(|(at, user)| (at.0, user.as_str())).collect();
        assert_eq!(named, [(5, "bob"), (7, "eve")]);
    }
}
