//! Touches: the commands of one touch, and what it finds.
//!
//! A beat is three plain commands, in this order. The deadline comes first: if the connection breaks after it, a user
//! is due without a new beat, which the sweep settles; there is never a device without a deadline. Then the beat, with
//! its stamp. The published record is read last: a commit before the beat is seen, and a commit after it sees the beat.
//!
//! A steady beat omits the first command: its sender knows from the deadline cache that the deadline was set recently.
//! What the beat finds says whether it still is, and if not, the deadline is set afterwards:
//! `docs/adr/0011-deadline-cache.md` says why that is enough.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::{MAX_DEVICES, Span, Time};
use rollcall_functions::capabilities::DeviceEvent;

use crate::keyspace::command::Commands;
use crate::keyspace::commit::Stamped;
use crate::keyspace::fields::{ACTIVE, DEVICE, PRIOR, TOUCHES, kind_word, prior_of};
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// The fields a beat writes: its stamp and its device.
const BEAT_FIELDS: i64 = 2;

/// The commands of one touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Two or three plain commands; the last but one writes the fields.
    Beat {
        /// Whether the deadline is one of them.
        deadline: Deadline,
    },
    /// One call of a script.
    Departure,
}

/// What a beat does about the deadline of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Sets it to no later than the end of the beat.
    Set,
    /// Assumes that it is set. What the beat finds says whether it was.
    Trusted,
}

/// The state before a touch, and the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TouchReply {
    /// What was published, and the stance.
    pub prior: PriorState,
    /// The session is due by this instant or earlier; `None` if it is not known to be due.
    pub due_by: Option<Time>,
}

impl Sent {
    /// The number of commands.
    pub fn commands(self) -> usize {
        match self {
            Self::Beat { deadline: Deadline::Set, .. } => 3,
            Self::Beat { deadline: Deadline::Trusted, .. } => 2,
            Self::Departure => 1,
        }
    }

    /// Which reply has the prior state.
    pub fn prior_at(self) -> usize {
        self.commands() - 1
    }

    /// Which reply has the number of new fields; `None` if none has.
    pub fn written_at(self) -> Option<usize> {
        match self {
            Self::Beat { .. } => self.prior_at().checked_sub(1),
            Self::Departure => None,
        }
    }

    /// Whether the user may have a new device, so that devices must be counted: some fields were new. None new: the
    /// device was known. All new: the user had no session.
    pub fn may_have_new_device(self, written: Piece<'_>) -> bool {
        match (self, written) {
            (Self::Beat { .. }, Piece::Int(new)) => new > 0 && new < BEAT_FIELDS,
            _ => false,
        }
    }

    /// Whether the user had no session before.
    pub fn is_first(self, written: Piece<'_>) -> bool {
        match (self, written) {
            (Self::Beat { .. }, Piece::Int(new)) => new == BEAT_FIELDS,
            _ => false,
        }
    }
}

/// A touch of one device.
#[derive(Debug, Clone, Copy)]
pub struct Touching<'a> {
    /// The user.
    pub user: &'a str,
    /// The device.
    pub device: &'a str,
    /// The event.
    pub event: DeviceEvent,
}

impl Keyspace {
    /// Adds the commands of one touch; a departure always sets its deadline.
    pub fn touch(&self, to: &mut Commands, touch: Touching<'_>, at: Stamped, deadline: Deadline) -> Sent {
        let Touching { user, device, event } = touch;
        let departure = |to: &mut Commands, grace: Option<Span>| {
            self.evalsha(to, Script::Depart, 3).key(self.user(user)).key(self.due(self.shard_of(user)));
            to.key(self.alive(user));
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
                    self.set_deadline_by(to, user, at.now() + alive_for);
                }
                let field = if active { ACTIVE } else { DEVICE };
                to.begin("HSET").key(key).text(TOUCHES).number(at.stamp).format(format_args!("{field}{device}"));
                to.format(format_args!("{} {} {}", at.now().0, alive_for.0, kind_word(kind)));
                to.begin("HGET").key(key).text(PRIOR);
                Sent::Beat { deadline }
            }
        }
    }

    /// Adds the command that sets a session's deadline to no later than this.
    pub fn set_deadline_by(&self, to: &mut Commands, user: &str, by: Time) {
        to.begin("ZADD").key(self.due(self.shard_of(user))).text("LT").number(by.0).text(user);
    }

    /// Adds the command that keeps a user's devices within the bound, after these new ones.
    pub fn trim<'a>(
        &self,
        to: &mut Commands,
        user: &str,
        expired_by: Time,
        new_devices: impl Iterator<Item = &'a str>,
    ) {
        self.evalsha(to, Script::Trim, 1).key(self.user(user)).number(MAX_DEVICES as u64).number(expired_by.0);
        new_devices.for_each(|device| {
            to.text(device);
        });
    }
}

/// The state before a touch, and the deadline.
pub fn decode_prior(reply: Piece<'_>) -> Result<TouchReply, BadReply> {
    reply.text("the field `f`")?.map_or(Ok(TouchReply { prior: PriorState::NOTHING, due_by: None }), prior_of)
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
    fn beat_is_three_plain_commands() {
        let beat = |active| DeviceEvent::Beat { kind: DeviceKind::Web, active, alive_for: Span::seconds(45) };
        let (sent_as, commands) = sent(beat(true), Deadline::Set);
        assert_eq!(sent_as, Sent::Beat { deadline: Deadline::Set });
        assert_eq!((sent_as.commands(), sent_as.written_at(), sent_as.prior_at()), (3, Some(1), 2));
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
        assert_eq!(commands[1], "HSET|rc:{111}:user:bob|t|42|d:web-1|1700000000000 45000 w", "the last activity stays");
    }

    #[test]
    fn trusted_deadline_omits_the_zadd() {
        let beat = DeviceEvent::Beat { kind: DeviceKind::Web, active: true, alive_for: Span::seconds(45) };
        let (sent_as, commands) = sent(beat, Deadline::Trusted);
        assert_eq!(commands, sent(beat, Deadline::Set).1[1..]);
        assert_eq!((sent_as.commands(), sent_as.written_at(), sent_as.prior_at()), (2, Some(0), 1));
    }

    #[test]
    fn departure_is_one_script() {
        let (sent_as, commands) = sent(DeviceEvent::Dropped(Span(5)), Deadline::Trusted);
        assert_eq!((sent_as, sent_as.written_at(), commands.len()), (Sent::Departure, None, 1));
        assert!(commands[0].starts_with("EVALSHA|"), "{commands:?}");
        assert!(
            commands[0].ends_with("|3|rc:{111}:user:bob|rc:{111}:due|rc:{111}:alive:bob|bob|web-1|42|1700000000000|5"),
            "{commands:?}"
        );
        assert!(sent(DeviceEvent::Logout, Deadline::Set).1[0].ends_with("|1700000000000|-"));
    }

    #[test]
    fn only_new_devices_cause_a_count() {
        let sent = Sent::Beat { deadline: Deadline::Set };
        let may_be_new: Vec<bool> = (0..=2).map(|new| sent.may_have_new_device(Piece::Int(new))).collect();
        assert_eq!(may_be_new, [false, true, false]);
        let firsts: Vec<bool> = (0..=2).map(|new| sent.is_first(Piece::Int(new))).collect();
        assert_eq!(firsts, [false, false, true]);
        assert!(!Sent::Departure.may_have_new_device(Piece::Int(1)) && !Sent::Departure.is_first(Piece::Int(3)));
    }

    #[test]
    fn missing_field_is_nothing_found() {
        assert_eq!(decode_prior(Piece::Nil), Ok(TouchReply { prior: PriorState::NOTHING, due_by: None }));
        let busy = decode_prior(Piece::Bytes(b"busy 3 90")).unwrap();
        assert_eq!((busy.prior.state, busy.due_by), (State::Busy, Some(Time(90))));
        assert!(decode_prior(Piece::Int(1)).is_err() && decode_prior(Piece::Bytes(b"\xff")).is_err());
    }
}
