//! The payload on a user's channel: JSON that names the user, because a client subscribed by pattern does not learn
//! which channel a message came on.

use rollcall_core::{Note, Published, Time, UserId};
use serde::{Deserialize, Serialize};

use crate::keyspace::fields::{NoteJson, state_name, state_named};
use crate::keyspace::reply::BadReply;

#[derive(Debug, Serialize, Deserialize)]
struct PayloadJson {
    user: String,
    state: String,
    since: Option<u64>,
    last_seen: Option<u64>,
    version: u64,
    note: Option<NoteJson>,
}

/// The payload for a published record.
pub fn encode_payload(user: &str, published: &Published) -> Vec<u8> {
    let payload = PayloadJson {
        user: user.to_owned(),
        state: state_name(published.state).to_owned(),
        since: published.since.map(|time| time.0),
        last_seen: published.last_seen.map(|time| time.0),
        version: published.version,
        note: published.note.as_ref().map(NoteJson::from),
    };
    // A struct of text and numbers always serialises.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// The user and the published record in a payload.
pub fn decode_payload(payload: &[u8]) -> Result<(UserId, Published), BadReply> {
    let read = || {
        let payload: PayloadJson = serde_json::from_slice(payload).ok()?;
        let published = Published {
            state: state_named(&payload.state)?,
            note: payload.note.map(Note::from),
            since: payload.since.map(Time),
            last_seen: payload.last_seen.map(Time),
            version: payload.version,
        };
        Some((UserId::parse(payload.user).ok()?, published))
    };
    read().ok_or(BadReply("a published payload"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::State;

    #[test]
    fn payload_round_trips() {
        let note = Note { text: "\"out\"".to_owned(), emoji: "☕".to_owned(), until: None };
        let published = Published {
            state: State::Away,
            note: Some(note),
            since: Some(Time(1)),
            last_seen: None,
            version: 1_700_000_000_000_000,
        };
        let payload = encode_payload("名 \"bob\"", &published);
        assert_eq!(decode_payload(&payload), Ok((UserId::parse("名 \"bob\"").unwrap(), published)));
        let text = String::from_utf8(payload).unwrap();
        assert!(
            text.starts_with(r#"{"user":"名 \"bob\"","state":"away","since":1,"last_seen":null,"version":17"#),
            "{text}"
        );
    }

    #[test]
    fn invalid_payloads_are_refused() {
        for bad in [&b""[..], b"{}", b"[1]", b"\xff", br#"{"user":"","state":"away","version":1}"#] {
            assert!(decode_payload(bad).is_err());
        }
    }
}
