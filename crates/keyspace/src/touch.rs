//! Touches: the commands of one trace, and what it found.
//!
//! A steady beat is three plain commands, in this order. The deadline comes first: a connection that breaks in between
//! leaves somebody due who has nothing new, which is settled and forgotten, and never a device that nobody looks at.
//! Then the trace, with its stamp. What was published is read last: a commit that still fell before the trace is seen,
//! and one after it knows of the beat.

use rollcall_core::heartbeat::Found;
use rollcall_core::{MAX_DEVICES, Span, Time};
use rollcall_functions::capabilities::Trace;

use crate::command::Commands;
use crate::commit::Stamped;
use crate::fields::{ACTIVE, DEVICE, FOUND, NOTHING_FOUND, TOUCHES, found_of, kind_word};
use crate::keys::Keyspace;
use crate::reply::{Garbled, Piece};
use crate::script::Script;

/// The commands that one touch was sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Three plain commands; the second writes so many fields.
    Beat {
        /// How many fields are written.
        fields: u8,
    },
    /// One call of a script.
    Departure,
}

impl Sent {
    /// How many commands it is.
    pub fn commands(self) -> usize {
        match self {
            Self::Beat { .. } => 3,
            Self::Departure => 1,
        }
    }

    /// Which of its replies says what was found.
    pub fn found_at(self) -> usize {
        self.commands() - 1
    }

    /// Whether a device may have joined others, so that they must be counted. `written` are the replies' second piece:
    /// the number of fields that were not there before. None: the person is known here with this device. All: the
    /// person was not known at all.
    pub fn may_crowd(self, written: Piece<'_>) -> bool {
        match (self, written) {
            (Self::Beat { fields }, Piece::Int(new)) => new > 0 && new < i64::from(fields),
            _ => false,
        }
    }
}

impl Keyspace {
    /// Adds the commands of one touch.
    pub fn touch(&self, to: &mut Commands, user: &str, device: &str, trace: Trace, at: Stamped) -> Sent {
        let departure = |to: &mut Commands, grace: Option<Span>| {
            self.evalsha(to, Script::Depart, 2).key(self.user(user)).key(self.due(self.shard_of(user)));
            to.text(user).text(device).number(at.stamp).number(at.now().0);
            match grace {
                Some(grace) => to.number(grace.0),
                None => to.text("-"),
            };
            Sent::Departure
        };
        match trace {
            Trace::Dropped(grace) => departure(to, Some(grace)),
            Trace::Logout => departure(to, None),
            Trace::Beat { kind, active, alive_for } => {
                let key = self.user(user);
                to.begin("ZADD")
                    .key(self.due(self.shard_of(user)))
                    .text("LT")
                    .number((at.now() + alive_for).0)
                    .text(user);
                to.begin("HSET").key(key).text(TOUCHES).number(at.stamp).format(format_args!("{DEVICE}{device}"));
                to.format(format_args!("{} {} {}", at.now().0, alive_for.0, kind_word(kind)));
                if active {
                    to.format(format_args!("{ACTIVE}{device}")).number(at.now().0);
                }
                to.begin("HGET").key(key).text(FOUND);
                Sent::Beat { fields: if active { 3 } else { 2 } }
            }
        }
    }

    /// Adds the command that keeps a person's devices within their bound, after these came.
    pub fn trim<'a>(&self, to: &mut Commands, user: &str, dead_by: Time, came: impl Iterator<Item = &'a str>) {
        self.evalsha(to, Script::Trim, 1).key(self.user(user)).number(MAX_DEVICES as u64).number(dead_by.0);
        came.for_each(|device| {
            to.text(device);
        });
    }
}

/// What a touch found.
pub fn decode_found(reply: Piece<'_>) -> Result<Found, Garbled> {
    reply.text("the field `f`")?.map_or(Ok(NOTHING_FOUND), found_of)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::{DeviceKind, State};

    const AT: Stamped = Stamped { now_us: 1_700_000_000_000_999, stamp: 42 };

    fn sent(trace: Trace) -> (Sent, Vec<String>) {
        let keys = Keyspace::new("rc", 256).unwrap();
        let mut commands = Commands::default();
        let sent = keys.touch(&mut commands, "bob", "web-1", trace, AT);
        let text = |command: crate::Command<'_>| {
            command.args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join("|")
        };
        (sent, commands.iter().map(text).collect())
    }

    #[test]
    fn a_beat_is_three_plain_commands() {
        let beat = |active| Trace::Beat { kind: DeviceKind::Web, active, alive_for: Span::seconds(45) };
        let (sent_as, commands) = sent(beat(true));
        assert_eq!((sent_as, sent_as.commands(), sent_as.found_at()), (Sent::Beat { fields: 3 }, 3, 2));
        assert_eq!(
            commands,
            [
                "ZADD|rc:{111}:due|LT|1700000045000|bob",
                "HSET|rc:{111}:user:bob|t|42|d:web-1|1700000000000 45000 w|a:web-1|1700000000000",
                "HGET|rc:{111}:user:bob|f",
            ]
        );
        let (sent_as, commands) = sent(beat(false));
        assert_eq!(sent_as, Sent::Beat { fields: 2 });
        assert_eq!(commands[1], "HSET|rc:{111}:user:bob|t|42|d:web-1|1700000000000 45000 w", "the last use stays");
    }

    #[test]
    fn a_departure_is_one_script() {
        let (sent_as, commands) = sent(Trace::Dropped(Span(5)));
        assert_eq!((sent_as, commands.len()), (Sent::Departure, 1));
        assert!(commands[0].starts_with("EVALSHA|"), "{commands:?}");
        assert!(
            commands[0].ends_with("|2|rc:{111}:user:bob|rc:{111}:due|bob|web-1|42|1700000000000|5"),
            "{commands:?}"
        );
        assert!(sent(Trace::Logout).1[0].ends_with("|1700000000000|-"));
    }

    #[test]
    fn only_a_device_that_joins_others_is_a_reason_to_count() {
        let sent = Sent::Beat { fields: 3 };
        let crowds: Vec<bool> = (0..=3).map(|new| sent.may_crowd(Piece::Int(new))).collect();
        assert_eq!(crowds, [false, true, true, false]);
        assert!(!Sent::Departure.may_crowd(Piece::Int(1)));
    }

    #[test]
    fn nothing_there_is_nothing_found() {
        assert_eq!(decode_found(Piece::Nil), Ok(NOTHING_FOUND));
        assert_eq!(decode_found(Piece::Bytes(b"busy 3")).map(|found| found.state), Ok(State::Busy));
        assert!(decode_found(Piece::Int(1)).is_err() && decode_found(Piece::Bytes(b"\xff")).is_err());
    }
}
