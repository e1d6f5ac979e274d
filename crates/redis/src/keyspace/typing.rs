//! Typing signals: writing and reading them.

use rollcall_core::typing::{MAX_TYPISTS, PUBLISH_INTERVAL};
use rollcall_core::{ConversationId, Span, Time, UserId};
use rollcall_functions::capabilities::Typist;
use serde::{Deserialize, Serialize};

use crate::keyspace::command::Commands;
use crate::keyspace::commit::Publishing;
use crate::keyspace::fields::number_of;
use crate::keyspace::keys::Keyspace;
use crate::keyspace::reply::{BadReply, Piece};
use crate::keyspace::script::Script;

/// What to do about a user's typing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypingWrite {
    /// The user types for this long; zero if they stopped.
    Lasts(Span),
    /// Check again a signal that came too fast.
    Recheck,
}

/// The payload on a conversation's channel without its end, which the script knows.
#[derive(Debug, Serialize)]
struct TypingPrefixJson<'a> {
    conversation: &'a str,
    user: &'a str,
}

#[derive(Debug, Deserialize)]
struct TypingJson {
    conversation: String,
    user: String,
    until: Option<u64>,
}

impl Keyspace {
    /// Adds the command of one typing signal; see [`decode_wait`].
    pub fn write_typing(
        &self,
        to: &mut Commands,
        (conversation, user): (&str, &str),
        write: TypingWrite,
        now: Time,
        publishing: Publishing,
    ) {
        self.evalsha(to, Script::Typing, 2).key(self.typing(conversation)).key(self.conversation(conversation));
        to.text(user).number(now.0);
        match write {
            TypingWrite::Lasts(span) => to.number(span.0),
            TypingWrite::Recheck => to.text("-"),
        };
        to.number(PUBLISH_INTERVAL.0).number(MAX_TYPISTS as u64);
        to.text(publishing.command()).text(&payload_prefix(conversation, user));
    }

    /// Adds the command that reads the users who type; see [`decode_typists`].
    pub fn typists(&self, to: &mut Commands, conversation: &str) {
        to.begin("HGETALL").key(self.typing(conversation));
    }
}

/// The payload up to the instant, which the script appends: `{"conversation":…,"user":…,"until":`.
fn payload_prefix(conversation: &str, user: &str) -> String {
    // A struct of text always serialises.
    let mut json = serde_json::to_string(&TypingPrefixJson { conversation, user }).unwrap_or_default();
    json.pop();
    json + r#","until":"#
}

/// After how long a signal has to be checked again; `None` if never.
pub fn decode_wait(reply: Piece<'_>) -> Result<Option<Span>, BadReply> {
    match reply.number("a script's answer")? {
        0 => Ok(None),
        wait => u64::try_from(wait).map(|wait| Some(Span(wait))).map_err(|_| BadReply("a script's answer")),
    }
}

/// The users who type at this time, by name.
pub fn decode_typists<'a>(mut reply: impl Iterator<Item = Piece<'a>>, now: Time) -> Result<Vec<Typist>, BadReply> {
    const WHAT: &str = "a typing signal";
    let mut typists = Vec::new();
    while let Some(user) = reply.next() {
        let user = user.text(WHAT)?.and_then(|user| UserId::parse(user).ok());
        let value = reply.next().unwrap_or(Piece::Nil).text(WHAT)?.ok_or(BadReply(WHAT))?;
        let until = Time(number_of(value.split(' ').next().unwrap_or_default())?);
        if let Some(user) = user.filter(|_| until > now) {
            typists.push(Typist { user, until });
        }
    }
    typists.sort_unstable_by(|one, other| one.user.cmp(&other.user));
    Ok(typists)
}

/// A payload on a conversation's channel: conversation, user, and until when; `None` if the user stopped.
pub fn decode_typing(payload: &[u8]) -> Result<(ConversationId, UserId, Option<Time>), BadReply> {
    let read = || {
        let TypingJson { conversation, user, until } = serde_json::from_slice(payload).ok()?;
        Some((ConversationId::parse(conversation).ok()?, UserId::parse(user).ok()?, until.map(Time)))
    };
    read().ok_or(BadReply("a typing payload"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn typing_payload_round_trips() {
        let conversation = ConversationId::parse("a \"b\"").unwrap();
        let user = UserId::parse("名 \\ bob").unwrap();
        let payload_prefix = payload_prefix(conversation.as_str(), user.as_str());
        for (end, until) in [("1700000000000}", Some(Time(1_700_000_000_000))), ("null}", None)] {
            let payload = format!("{payload_prefix}{end}");
            assert_eq!(decode_typing(payload.as_bytes()), Ok((conversation.clone(), user.clone(), until)), "{payload}");
        }
        for bad in ["", "{}", "null", r#"{"conversation":"","user":"bob","until":1}"#] {
            assert!(decode_typing(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn signal_sends_every_argument_of_its_script() {
        let keys = Keyspace::new("rc", 256).unwrap();
        for write in [TypingWrite::Lasts(Span(5000)), TypingWrite::Recheck] {
            let mut commands = Commands::default();
            keys.write_typing(&mut commands, ("c", "bob"), write, Time(1), Publishing::Sharded);
            // EVALSHA, digest, the number of keys, the keys and the seven arguments.
            assert_eq!(commands.get(0).map(|command| command.args().len()), Some(3 + 2 + 7));
        }
    }

    #[test]
    fn ended_signals_are_not_read() {
        let kept = ["eve", "30 1 30", "bob", "20 1 25", "ann", "21 1 0", "", "99 1 99"];
        let pieces = || kept.iter().map(|text| Piece::Bytes(text.as_bytes()));
        let named = |now| {
            let typists = decode_typists(pieces(), Time(now)).unwrap();
            typists.into_iter().map(|typist| (typist.user.into_string(), typist.until.0)).collect::<Vec<_>>()
        };
        assert_eq!(named(20), [("ann".to_owned(), 21), ("eve".to_owned(), 30)]);
        assert_eq!(named(30), []);
        assert!(decode_typists([Piece::Bytes(b"bob"), Piece::Bytes(b"x 1 2")].into_iter(), Time(0)).is_err());
        assert!(decode_typists([Piece::Bytes(b"bob")].into_iter(), Time(0)).is_err());
    }

    #[test]
    fn wait_is_a_span_or_none() {
        assert_eq!(decode_wait(Piece::Int(0)), Ok(None));
        assert_eq!(decode_wait(Piece::Bytes(b"600")), Ok(Some(Span(600))));
        assert!(decode_wait(Piece::Int(-1)).is_err() && decode_wait(Piece::Nil).is_err());
    }
}
