//! Commits and evictions: one script each, and their outcomes.

use rollcall_core::{Next, Revision, Time};
use rollcall_functions::capabilities::{Commit, Committed, Eviction};

use crate::keyspace::command::Commands;
use crate::keyspace::fields::{note_text, record_text, rest_text, stance_text};
use crate::keyspace::keys::Keyspace;
use crate::keyspace::payload::encode_payload;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// Which command publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publishing {
    /// `PUBLISH`: reaches subscribers on any connection. For a single server.
    Plain,
    /// `SPUBLISH`: reaches subscribers at the shard's master. For a Cluster, where `PUBLISH` would go to every node.
    Sharded,
}

impl Publishing {
    /// The command that publishes.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }
}

/// The time of a touch or a commit, and the stamp that makes its revision unique.
#[derive(Debug, Clone, Copy)]
pub struct Stamped {
    /// The store's time in microseconds.
    pub now_us: u64,
    /// Unique among the touches of all processes, and not 0. Below 2^63, so that Redis keeps it in eight bytes.
    pub stamp: u64,
}

impl Stamped {
    pub(crate) fn now(self) -> Time {
        Time(self.now_us / 1000)
    }
}

impl Keyspace {
    /// Adds the command of one commit.
    pub fn commit(&self, to: &mut Commands, commit: &Commit, at: Stamped, publishing: Publishing) {
        let Commit { user, expected, decision } = commit;
        let user = user.as_str();
        let shard = self.shard_of(user);
        self.evalsha(to, Script::Commit, 6).key(self.user(user)).key(self.due(shard)).key(self.archive_queue(shard));
        to.key(self.alive(user)).key(self.evicted(shard)).key(self.topic(user));
        revision(to, *expected).number(at.now().0).number(at.now_us).number(at.stamp).text(user);
        let (waits_for, until) = match decision.next {
            Next::Nothing => ("nothing", 0),
            Next::Settle(at) => ("settle", at.0),
            Next::Evict(at) => ("evict", at.0),
        };
        to.text(waits_for).number(until).number(decision.prune_expired_by.0);
        match &decision.publish {
            Some(published) => {
                to.text(&record_text(published)).text(&rest_text(published)).text(&note_text(published.note.as_ref()));
                to.number(published.version).text(publishing.command()).arg(&encode_payload(user, published));
            }
            None => {
                (0..6).for_each(|_| {
                    to.text("");
                });
            }
        }
        match &decision.choice {
            Some(choice) => {
                to.number(choice.at.0).text(&stance_text(choice)).text(&note_text(choice.note.as_ref()));
            }
            None => {
                to.text("").text("").text("");
            }
        }
    }

    /// Adds the command of one eviction.
    pub fn evict(&self, to: &mut Commands, eviction: &Eviction, now_us: u64) {
        let user = eviction.user.as_str();
        let shard = self.shard_of(user);
        self.evalsha(to, Script::Evict, 5).key(self.user(user)).key(self.due(shard)).key(self.archive_queue(shard));
        to.key(self.alive(user)).key(self.evicted(shard));
        revision(to, eviction.expected).number(now_us).text(user);
    }
}

fn revision(to: &mut Commands, revision: Revision) -> &mut Commands {
    to.number(revision.commits).number(revision.touches)
}

/// The outcome of a commit or an eviction.
pub fn decode_outcome(reply: Piece<'_>) -> Result<Committed, BadReply> {
    match reply.number("a script's answer")? {
        1 => Ok(Committed::Applied),
        0 => Ok(Committed::Stale),
        _ => Err(BadReply("a script's answer")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::settle::Decision;
    use rollcall_core::{Published, Span, State, UserId};

    #[test]
    fn commit_sends_every_argument_of_its_script() {
        let keys = Keyspace::new("rc", 256).unwrap();
        let publish = Published { state: State::Online, note: None, since: None, last_seen: None, version: 5 };
        let choice =
            rollcall_core::Choice { stance: rollcall_core::Stance::Auto, at: Time(1), until: None, note: None };
        for (publish, choice) in
            [(None, None), (Some(publish.clone()), None), (None, Some(choice.clone())), (Some(publish), Some(choice))]
        {
            let decision = Decision { publish, choice, prune_expired_by: Time(0), next: Next::Nothing, lag: Span(0) };
            let commit = Commit { user: UserId::parse("bob").unwrap(), expected: Revision::default(), decision };
            let mut commands = Commands::default();
            keys.commit(&mut commands, &commit, Stamped { now_us: 7_000, stamp: 1 }, Publishing::Plain);
            // EVALSHA, digest, the number of keys, the keys and eighteen arguments.
            assert_eq!(commands.get(0).map(|command| command.args().len()), Some(3 + 6 + 18));
        }
    }

    #[test]
    fn outcomes_are_applied_or_stale() {
        assert_eq!(decode_outcome(Piece::Int(1)), Ok(Committed::Applied));
        assert_eq!(decode_outcome(Piece::Bytes(b"0")), Ok(Committed::Stale));
        assert!(decode_outcome(Piece::Nil).is_err() && decode_outcome(Piece::Int(2)).is_err());
    }
}
