//! Touches: the commands of one trace, and what it found.
//!
//! A beat is three plain commands, in this order. The deadline comes first: a connection that breaks in between leaves
//! somebody due who has nothing new, which is settled and forgotten, and never a device that nobody looks at. Then the
//! trace, with its stamp. What was published is read last: a commit that still fell before the trace is seen, and one
//! after it knows of the beat.
//!
//! A steady beat leaves out the first: whoever sends it knows that the person was left due a moment ago. What it finds
//! says whether that still holds, and if it does not, the deadline is sent after it: `docs/adr/0011-deadline-cache.md` says
//! why that is enough.

use rollcall_core::heartbeat::Found;
use rollcall_core::{MAX_DEVICES, Span, Time};
use rollcall_functions::capabilities::DeviceEvent;

use crate::keyspace::command::Commands;
use crate::keyspace::commit::Stamped;
use crate::keyspace::fields::{ACTIVE, DEVICE, FOUND, NOTHING_FOUND, TOUCHES, found_of, kind_word};
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// How many fields a beat writes: its stamp, and one for its device.
const BEAT_FIELDS: i64 = 2;

/// The commands that one touch was sent as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Two plain commands, or three; the last but one writes the fields.
    Beat {
        /// Whether the deadline is among them.
        deadline: Deadline,
    },
    /// One call of a script.
    Departure,
}

/// What a beat does about the deadline of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Leaves it no later than the beat's own end.
    Set,
    /// Takes it to be so already. Whether it was is in what the beat finds.
    Trusted,
}

/// What a touch found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// What was published, and the stance.
    pub found: Found,
    /// The session is due by this instant, or earlier; none: it is not known to be due.
    pub due_by: Option<Time>,
}

impl Sent {
    /// How many commands it is.
    pub fn commands(self) -> usize {
        match self {
            Self::Beat { deadline: Deadline::Set, .. } => 3,
            Self::Beat { deadline: Deadline::Trusted, .. } => 2,
            Self::Departure => 1,
        }
    }

    /// Which of its replies says what was found.
    pub fn found_at(self) -> usize {
        self.commands() - 1
    }

    /// Which of its replies says how many fields were not there before; none: none does.
    pub fn written_at(self) -> Option<usize> {
        match self {
            Self::Beat { .. } => self.found_at().checked_sub(1),
            Self::Departure => None,
        }
    }

    /// Whether a device may have joined others, so that they must be counted: if some of the fields were not there
    /// before. None: the person is known here with this device. All: the person was not known at all.
    pub fn may_crowd(self, written: Piece<'_>) -> bool {
        match (self, written) {
            (Self::Beat { .. }, Piece::Int(new)) => new > 0 && new < BEAT_FIELDS,
            _ => false,
        }
    }

    /// Whether nothing was kept of the person before.
    pub fn is_first(self, written: Piece<'_>) -> bool {
        match (self, written) {
            (Self::Beat { .. }, Piece::Int(new)) => new == BEAT_FIELDS,
            _ => false,
        }
    }
}

/// One device's trace.
#[derive(Debug, Clone, Copy)]
pub struct Touching<'a> {
    /// Whose device.
    pub user: &'a str,
    /// Which of them.
    pub device: &'a str,
    /// What happened to it.
    pub event: DeviceEvent,
}

impl Keyspace {
    /// Adds the commands of one touch; a departure always sees to its deadline.
    pub fn touch(&self, to: &mut Commands, touch: Touching<'_>, at: Stamped, deadline: Deadline) -> Sent {
        let Touching { user, device, event } = touch;
        let departure = |to: &mut Commands, grace: Option<Span>| {
            self.evalsha(to, Script::Depart, 2).key(self.user(user)).key(self.due(self.shard_of(user)));
            to.text(user).text(device).number(at.stamp).number(at.now().0);
            match grace {
                Some(grace) => to.number(grace.0),
                None => to.text("-"),
            };
            Sent::Departure
        };
        match event {
            DeviceEvent::Dropped(grace) => departure(to, Some(grace)),
            DeviceEvent::Logout => departure(to, None),
            DeviceEvent::Beat { kind, active, alive_for } => {
                let key = self.user(user);
                if deadline == Deadline::Set {
                    self.leave_due(to, user, at.now() + alive_for);
                }
                let field = if active { ACTIVE } else { DEVICE };
                to.begin("HSET").key(key).text(TOUCHES).number(at.stamp).format(format_args!("{field}{device}"));
                to.format(format_args!("{} {} {}", at.now().0, alive_for.0, kind_word(kind)));
                to.begin("HGET").key(key).text(FOUND);
                Sent::Beat { deadline }
            }
        }
    }

    /// Adds the command that leaves a session due by this instant.
    pub fn leave_due(&self, to: &mut Commands, user: &str, by: Time) {
        to.begin("ZADD").key(self.due(self.shard_of(user))).text("LT").number(by.0).text(user);
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
pub fn decode_found(reply: Piece<'_>) -> Result<Finding, BadReply> {
    reply.text("the field `f`")?.map_or(Ok(Finding { found: NOTHING_FOUND, due_by: None }), found_of)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::{DeviceKind, State};

    const AT: Stamped = Stamped { now_us: 1_700_000_000_000_999, stamp: 42 };

    fn sent(event: DeviceEvent, deadline: Deadline) -> (Sent, Vec<String>) {
        let keys = Keyspace::new("rc", 256).unwrap();
        let mut commands = Commands::default();
        let sent = keys.touch(&mut commands, Touching { user: "bob", device: "web-1", event }, AT, deadline);
        let text = |command: crate::keyspace::Command<'_>| {
            command.args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join("|")
        };
        (sent, commands.iter().map(text).collect())
    }

    #[test]
    fn a_beat_is_three_plain_commands() {
        let beat = |active| DeviceEvent::Beat { kind: DeviceKind::Web, active, alive_for: Span::seconds(45) };
        let (sent_as, commands) = sent(beat(true), Deadline::Set);
        assert_eq!(sent_as, Sent::Beat { deadline: Deadline::Set });
        assert_eq!((sent_as.commands(), sent_as.written_at(), sent_as.found_at()), (3, Some(1), 2));
        assert_eq!(
            commands,
            [
                "ZADD|rc:{111}:due|LT|1700000045000|bob",
                "HSET|rc:{111}:user:bob|t|42|a:web-1|1700000000000 45000 w",
                "HGET|rc:{111}:user:bob|f",
            ]
        );
        let (sent_as, commands) = sent(beat(false), Deadline::Set);
        assert_eq!(sent_as, Sent::Beat { deadline: Deadline::Set });
        assert_eq!(commands[1], "HSET|rc:{111}:user:bob|t|42|d:web-1|1700000000000 45000 w", "the last use stays");
    }

    #[test]
    fn a_beat_that_trusts_its_deadline_is_the_same_without_it() {
        let beat = DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: Span::seconds(45) };
        let (sent_as, commands) = sent(beat, Deadline::Trusted);
        assert_eq!(commands, sent(beat, Deadline::Set).1[1..]);
        assert_eq!((sent_as.commands(), sent_as.written_at(), sent_as.found_at()), (2, Some(0), 1));
    }

    #[test]
    fn a_departure_is_one_script() {
        let (sent_as, commands) = sent(DeviceEvent::Dropped(Span(5)), Deadline::Trusted);
        assert_eq!((sent_as, sent_as.written_at(), commands.len()), (Sent::Departure, None, 1));
        assert!(commands[0].starts_with("EVALSHA|"), "{commands:?}");
        assert!(
            commands[0].ends_with("|2|rc:{111}:user:bob|rc:{111}:due|bob|web-1|42|1700000000000|5"),
            "{commands:?}"
        );
        assert!(sent(DeviceEvent::Logout, Deadline::Set).1[0].ends_with("|1700000000000|-"));
    }

    #[test]
    fn only_a_device_that_joins_others_is_a_reason_to_count() {
        let sent = Sent::Beat { deadline: Deadline::Set };
        let crowds: Vec<bool> = (0..=2).map(|new| sent.may_crowd(Piece::Int(new))).collect();
        assert_eq!(crowds, [false, true, false]);
        let firsts: Vec<bool> = (0..=2).map(|new| sent.is_first(Piece::Int(new))).collect();
        assert_eq!(firsts, [false, false, true]);
        assert!(!Sent::Departure.may_crowd(Piece::Int(1)) && !Sent::Departure.is_first(Piece::Int(3)));
    }

    #[test]
    fn nothing_there_is_nothing_found() {
        assert_eq!(decode_found(Piece::Nil), Ok(Finding { found: NOTHING_FOUND, due_by: None }));
        let busy = decode_found(Piece::Bytes(b"busy 3 90")).unwrap();
        assert_eq!((busy.found.state, busy.due_by), (State::Busy, Some(Time(90))));
        assert!(decode_found(Piece::Int(1)).is_err() && decode_found(Piece::Bytes(b"\xff")).is_err());
    }
}
