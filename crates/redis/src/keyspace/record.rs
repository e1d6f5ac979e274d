//! Reading published records. While a user is online, the record is the value of their `alive` key, which expires at the
//! deadline: a key that is there holds a record that holds. All other users are read from their hash and the due queue.

use rollcall_core::heartbeat::PriorState;
use rollcall_core::{DeadlineState, Next, Published, Record, Stance, Time};

use crate::keyspace::command::Commands;
use crate::keyspace::fields::{NOTE, PRIOR, REST, note_of, prior_of, rest_of, state_of};
use crate::keyspace::keys::Keyspace;
use crate::keyspace::queues::decode_score;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

const WHAT: &str = "a published record";

impl Keyspace {
    /// Adds the command that reads these users' `alive` keys; see [`decode_alive`].
    pub fn read_alive<'a>(&self, to: &mut Commands, users: impl Iterator<Item = &'a str>) {
        to.begin("MGET");
        users.for_each(|user| {
            to.key(self.alive(user));
        });
    }

    /// Adds the command that reads these users from their hashes; four values for each, see [`decode_record`].
    pub fn read_records<'a>(&self, to: &mut Commands, users: impl Iterator<Item = &'a str> + Clone) {
        self.evalsha(to, Script::Records, 2 * users.clone().count() as u64);
        users.clone().for_each(|user| {
            to.key(self.user(user)).key(self.due(self.shard_of(user)));
        });
        users.for_each(|user| {
            to.text(user);
        });
    }

    /// Adds the command that reads what was last published about a user; see [`decode_published`].
    pub fn read_published(&self, to: &mut Commands, user: &str) {
        to.begin("HMGET").key(self.user(user)).text(PRIOR).text(REST).text(NOTE);
    }
}

/// The record in an `alive` key: `state version since seen`, then the note if there is one. `None` if there is no key, or if
/// it holds no record.
pub fn decode_alive(reply: Piece<'_>) -> Result<Option<Record>, BadReply> {
    let Some(text) = reply.text(WHAT)? else { return Ok(None) };
    let Some((state, rest)) = text.split_once(' ') else { return Ok(None) };
    let read = || {
        let state = state_of(state)?;
        let (version, rest) = rest.split_once(' ')?;
        // `since seen` is two words; a note is a JSON object.
        let end = rest.find(" {").unwrap_or(rest.len());
        let (since_seen, note) = rest.split_at_checked(end)?;
        let (since, last_seen) = rest_of(since_seen).ok()?;
        let note = note.strip_prefix(' ').map(note_of).transpose().ok()?;
        Some(Published { state, note, since, last_seen, version: version.parse().ok()? })
    };
    let published = read().ok_or(BadReply(WHAT))?;
    // An invisible user looks offline, and such a user has no record here.
    Ok(Some(Record { published, deadline: DeadlineState::Ahead, invisible: false }))
}

/// The record from the four values of [`Keyspace::read_records`].
pub fn decode_record(values: [Piece<'_>; 4], now: Time) -> Result<Record, BadReply> {
    let [prior, rest, note, due] = values;
    let stance = prior_state(prior)?;
    let next = decode_score(due)?.map_or(Next::Nothing, Next::Settle);
    Ok(Record {
        published: decode_published([prior, rest, note].into_iter())?.unwrap_or(Published::NOTHING),
        deadline: DeadlineState::of(next, now),
        invisible: stance.stance == Stance::Invisible && stance.stance_until.is_none_or(|until| until > now),
    })
}

/// What was last published about a user; `None` if nothing was, or there is no session.
pub fn decode_published<'a>(mut reply: impl Iterator<Item = Piece<'a>>) -> Result<Option<Published>, BadReply> {
    let mut next = || reply.next().unwrap_or(Piece::Nil);
    let (prior, rest, note) = (next(), next(), next());
    let Some(rest) = rest.text(WHAT)? else { return Ok(None) };
    let PriorState { state, version, .. } = prior_state(prior)?;
    let (since, last_seen) = rest_of(rest)?;
    let note = note.text(WHAT)?.map(note_of).transpose()?;
    Ok(Some(Published { state, note, since, last_seen, version }))
}

fn prior_state(field: Piece<'_>) -> Result<PriorState, BadReply> {
    Ok(field.text(WHAT)?.map(prior_of).transpose()?.map_or(PriorState::NOTHING, |reply| reply.prior))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::State;

    const NOTE_JSON: &str = r#"{"text":"out { in }","emoji":"","until":null}"#;

    fn bytes(text: &str) -> Piece<'_> {
        Piece::Bytes(text.as_bytes())
    }

    #[test]
    fn published_record_reads_alone() {
        let read = decode_published([bytes("busy 12 invisible 900"), bytes("- 100"), bytes(NOTE_JSON)].into_iter());
        let read = read.unwrap().unwrap();
        assert_eq!((read.state, read.version, read.last_seen), (State::Busy, 12, Some(Time(100))));
        assert_eq!(read.note.map(|note| note.text), Some("out { in }".to_owned()));
        assert_eq!(decode_published([Piece::Nil; 3].into_iter()), Ok(None));
        assert_eq!(decode_published([bytes("off 0"), Piece::Nil, Piece::Nil].into_iter()), Ok(None));
    }

    #[test]
    fn alive_key_holds_a_record_or_nothing() {
        assert_eq!((decode_alive(Piece::Nil), decode_alive(bytes("1"))), (Ok(None), Ok(None)));
        let record = decode_alive(bytes(&format!("busy 12 100 5 {NOTE_JSON}"))).unwrap().unwrap();
        assert!(record.holds(Time(100)));
        let published = record.published;
        assert_eq!((published.state, published.version), (State::Busy, 12));
        assert_eq!((published.since, published.last_seen), (Some(Time(100)), Some(Time(105))));
        assert_eq!(published.note.unwrap().text, "out { in }");
        let bare = decode_alive(bytes("on 7 - -")).unwrap().unwrap().published;
        assert_eq!((bare.note, bare.since, bare.last_seen), (None, None, None));
        for bad in ["on 7", "on x 1 0", "here 7 1 0", "on 7 1", "on 7 1 0 x", "on 7 1 0 {"] {
            assert!(decode_alive(bytes(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn hash_and_deadline_make_a_record() {
        let read =
            |values: [Option<&str>; 4]| decode_record(values.map(|v| v.map_or(Piece::Nil, bytes)), Time(100)).unwrap();
        assert_eq!(read([None; 4]), Record::NOTHING);
        assert!(read([Some("off 7"), Some("50 0"), None, None]).holds(Time(100)));
        let unsettled = read([Some("off 7"), Some("50 0"), None, Some("145")]);
        assert_eq!((unsettled.deadline, unsettled.holds(Time(100))), (DeadlineState::Ahead, false));
        let ghost = read([Some("off 7 145 invisible -"), Some("50 0"), None, Some("145")]);
        assert!(ghost.invisible && ghost.holds(Time(100)));
        assert!(
            !read([Some("off 7 99 invisible 99"), Some("50 0"), None, Some("99")]).holds(Time(100)),
            "the stance has ended"
        );
        assert!(read([Some("on 7 145"), Some("50 0"), None, Some("145")]).holds(Time(100)));
        assert!(!read([Some("on 7 99"), Some("50 0"), None, Some("99")]).holds(Time(100)));
    }
}
