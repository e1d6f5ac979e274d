//! Loading sessions, and the outage grace.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::{Choice, Device, Next, OutageGrace, Published, Session, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::fields::{
    ACTIVE, CHOICE_NOTE, CHOSEN_AT, COMMITS, DEVICE, NOTE, PRIOR, REST, TOUCHES, device_of, note_of, number_of,
    prior_of, rest_of,
};
use crate::keyspace::keys::Keyspace;
use crate::keyspace::queues::decode_score;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// An outage grace to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordGrace {
    /// The outage grace.
    pub outage_grace: OutageGrace,
    /// The store's time.
    pub now: Time,
}

impl Keyspace {
    /// The number of commands of a load.
    pub const LOAD_COMMANDS: usize = 3;

    /// Adds the commands that load one session. The hash comes first: if a change falls in between, the revision is the
    /// older one, and a commit based on it is stale.
    pub fn load(&self, to: &mut Commands, user: &str) {
        let shard = self.shard_of(user);
        to.begin("HGETALL").key(self.user(user));
        to.begin("ZSCORE").key(self.due(shard)).text(user);
        to.begin("ZSCORE").key(self.archive_queue(shard)).text(user);
    }

    /// Adds the command that reads the outage grace.
    pub fn read_outage_grace(&self, to: &mut Commands) {
        to.begin("GET").key(self.outage_grace());
    }

    /// Adds the command that records an outage grace.
    pub fn record_outage_grace(&self, to: &mut Commands, request: RecordGrace) {
        let RecordGrace { outage_grace, now } = request;
        self.evalsha(to, Script::OutageGrace, 1).key(self.outage_grace());
        to.number(outage_grace.since.0).number(outage_grace.until.0).number(now.0);
    }
}

/// The outage grace that was read or recorded: `since until` in one piece or two; `None` if there is none.
pub fn decode_outage_grace<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<Option<OutageGrace>, BadReply> {
    const WHAT: &str = "the key `outage_grace`";
    let Some(first) = reply.next().unwrap_or(Piece::Nil).text(WHAT)? else { return Ok(None) };
    let (since, until) = match reply.next() {
        None => first.split_once(' ').ok_or(BadReply(WHAT))?,
        Some(second) => (first, second.text(WHAT)?.ok_or(BadReply(WHAT))?),
    };
    Ok(Some(OutageGrace { since: Time(number_of(since)?), until: Time(number_of(until)?) }))
}

/// The session from the replies to [`Keyspace::load`].
pub fn decode_session<'a>(
    hash: impl Iterator<Item = Piece<'a>>,
    due: Piece<'_>,
    cold: Piece<'_>,
) -> Result<Session, BadReply> {
    let mut parts = Parts::default();
    let mut pieces = hash;
    while let Some(field) = pieces.next() {
        let value = pieces.next().unwrap_or(Piece::Nil);
        let what = "a session field";
        if let (Some(field), Some(value)) = (field.text(what)?, value.text(what)?) {
            parts.read(field, value)?;
        }
    }
    let next = match (decode_score(due)?, decode_score(cold)?) {
        (None, None) => Next::Nothing,
        (None, Some(evict)) => Next::Evict(evict),
        (Some(settle), None) => Next::Settle(settle),
        // A touch sets a deadline without looking at the archive queue, so both may be set: the earlier counts.
        (Some(settle), Some(evict)) => Next::Settle(settle.min(evict)),
    };
    parts.into_session(next)
}

/// The fields of a hash, in any order.
#[derive(Default)]
struct Parts<'a> {
    session: Session,
    prior: Option<&'a str>,
    rest: Option<&'a str>,
    note: Option<&'a str>,
    chosen_at: Option<&'a str>,
    choice_note: Option<&'a str>,
    used: Vec<(&'a str, &'a str)>,
}

impl<'a> Parts<'a> {
    fn read(&mut self, field: &'a str, value: &'a str) -> Result<(), BadReply> {
        match field {
            PRIOR => self.prior = Some(value),
            REST => self.rest = Some(value),
            NOTE => self.note = Some(value),
            CHOSEN_AT => self.chosen_at = Some(value),
            CHOICE_NOTE => self.choice_note = Some(value),
            COMMITS => self.session.revision.commits = number_of(value)?,
            TOUCHES => self.session.revision.touches = number_of(value)?,
            // An unknown field of a later version is ignored.
            _ => {
                if let Some(id) = field.strip_prefix(DEVICE) {
                    self.session.devices.push(device_of(id, value)?);
                } else if let Some(id) = field.strip_prefix(ACTIVE) {
                    self.used.push((id, value));
                }
            }
        }
        Ok(())
    }

    fn into_session(self, next: Next) -> Result<Session, BadReply> {
        let mut session = self.session;
        session.next = next;
        let prior = self.prior.map(prior_of).transpose()?.map_or(PriorState::NOTHING, |reply| reply.prior);
        if let Some(rest) = self.rest {
            let (since, last_seen) = rest_of(rest)?;
            let note = self.note.map(note_of).transpose()?;
            session.published = Some(Published { state: prior.state, note, since, last_seen, version: prior.version });
        }
        if let Some(chosen_at) = self.chosen_at {
            let note = self.choice_note.map(note_of).transpose()?;
            let (at, stance, until) = (Time(number_of(chosen_at)?), prior.stance, prior.stance_until);
            session.choice = Some(Choice { stance, at, until, note });
        }
        self.used.iter().try_for_each(|(id, value)| merge(&mut session.devices, id, value))?;
        Ok(session)
    }
}

/// Adds one field of a device. The newer of a device's two beats counts; within a millisecond the one that lasts
/// longer, as in the scripts.
fn merge(devices: &mut Vec<Device>, id: &str, value: &str) -> Result<(), BadReply> {
    let known = devices.iter_mut().find(|device| device.id.as_str() == id);
    let Some((use_at, _)) = value.split_once(' ') else {
        let at = Time(number_of(value)?);
        known.into_iter().for_each(|device| device.active_at = Some(at));
        return Ok(());
    };
    let used = Device { active_at: Some(Time(number_of(use_at)?)), ..device_of(id, value)? };
    match known {
        Some(device) if (device.beat_at, device.expires_at) > (used.beat_at, used.expires_at) => {
            device.active_at = used.active_at;
        }
        Some(device) => *device = used,
        None => devices.push(used),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::{DeviceId, DeviceKind, Note, Revision, Stance, State};

    fn pieces<'a>(texts: &[&'a str]) -> Vec<Piece<'a>> {
        texts.iter().map(|text| Piece::Bytes(text.as_bytes())).collect()
    }

    #[test]
    fn session_decodes_from_fields_in_any_order() {
        let note = r#"{"text":"out","emoji":"","until":null}"#;
        let hash = [
            "a:web-1",
            "90",
            "t",
            "7",
            "d:web-1",
            "100 50 w",
            "c",
            "8",
            "f",
            "busy 12 invisible 900",
            "r",
            "- 100",
            "n",
            note,
            "h",
            "60",
            "d:x",
            "5 - o",
            "later",
            "unknown",
        ];
        let session = decode_session(pieces(&hash).into_iter(), Piece::Bytes(b"150"), Piece::Nil).unwrap();
        let device = |id: &str, kind, beat, active: Option<u64>, expires| Device {
            id: DeviceId::parse(id).unwrap(),
            kind,
            beat_at: Time(beat),
            active_at: active.map(Time),
            expires_at: Time(expires),
        };
        let expected = Session {
            devices: vec![
                device("web-1", DeviceKind::Web, 100, Some(90), 150),
                device("x", DeviceKind::Other, 5, None, 0),
            ],
            choice: Some(Choice { stance: Stance::Invisible, at: Time(60), until: Some(Time(900)), note: None }),
            published: Some(Published {
                state: State::Busy,
                note: Some(Note { text: "out".to_owned(), emoji: String::new(), until: None }),
                since: None,
                last_seen: Some(Time(100)),
                version: 12,
            }),
            next: Next::Settle(Time(150)),
            revision: Revision { commits: 8, touches: 7 },
        };
        assert_eq!(session, expected);
    }

    #[test]
    fn missing_hash_is_an_empty_session() {
        assert_eq!(decode_session([].into_iter(), Piece::Nil, Piece::Nil), Ok(Session::default()));
    }

    #[test]
    fn earlier_of_due_and_archive_counts() {
        let next = |due, cold| decode_session([].into_iter(), due, cold).unwrap().next;
        let (one, two) = (Piece::Bytes(b"100"), Piece::Bytes(b"200"));
        assert_eq!(next(Piece::Nil, two), Next::Evict(Time(200)));
        assert_eq!((next(one, two), next(two, one)), (Next::Settle(Time(100)), Next::Settle(Time(100))));
    }

    #[test]
    fn outage_grace_reads_from_one_or_two_pieces() {
        let outage_grace = Some(OutageGrace { since: Time(5), until: Time(9) });
        assert_eq!(decode_outage_grace(pieces(&["5 9"]).into_iter()), Ok(outage_grace));
        assert_eq!(decode_outage_grace(pieces(&["5", "9"]).into_iter()), Ok(outage_grace));
        assert_eq!(decode_outage_grace([Piece::Nil].into_iter()), Ok(None));
        assert!(decode_outage_grace(pieces(&["5"]).into_iter()).is_err());
    }
}
