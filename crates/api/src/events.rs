//! What is pushed to a watcher, and how it is framed on a stream of server-sent events and on a socket.
//!
//! An event is a name, an id from which a watcher that lost its connection resumes (a [`EventId`](crate::call::EventId),
//! written), and an object. The same object is written once and framed for each watcher:
//!
//! ```text
//! event: presence                          {"event":"presence","id":"17…","user":"bob","state":"online",…}
//! id: 17…
//! data: {"user":"bob","state":"online",…}
//! ```
//!
//! Nothing that a person wrote can break out of its frame: JSON escapes line breaks, and framing cuts any that remain.

use std::fmt::Write;

use rollcall_core::{ConversationId, Time, UserId};

use crate::call::View;
use crate::problem::Problem;
use crate::responses::presence_json;

/// The event that comes first: what is watched, as it stands. Data: [`snapshot`].
pub const SNAPSHOT: &str = "snapshot";
/// Somebody's presence changed. Data: [`presence`].
pub const PRESENCE: &str = "presence";
/// Somebody began, goes on or stopped typing. Data: [`typing`].
pub const TYPING: &str = "typing";
/// Something cannot be done, or a message made no sense. Data: [`problem`].
pub const ERROR: &str = "error";
/// The server is about to go: connect again, to whichever answers then. Data: [`reconnect`].
pub const RECONNECT: &str = "reconnect";
/// A message was taken. Only on a socket, and only for a message that has a `ref`. Data: [`done`].
pub const DONE: &str = "done";

/// Why a stream ends: what a socket says in its close frame. Data: [`close`].
pub const CLOSE: &str = "close";

/// A presence, exactly as `GET /v1/presence/{user}` answers it. No view: hidden.
pub fn presence(user: &UserId, view: Option<&View>) -> String {
    presence_json(user, view)
}

/// A sign of typing that lasts until then, or its end.
pub fn typing(conversation: &ConversationId, user: &UserId, until: Option<Time>) -> String {
    let (conversation, user) = (quoted(conversation.as_str()), quoted(user.as_str()));
    let (typing, until) = (until.is_some(), until.map_or_else(|| "null".to_owned(), |until| until.0.to_string()));
    format!(r#"{{"conversation":{conversation},"user":{user},"typing":{typing},"until":{until}}}"#)
}

/// What is watched, as it stands: objects made by [`presence`] and [`typing`]. `resumed`: only what changed since the
/// watcher last heard; otherwise all of it, and whoever is not in it does not type.
pub fn snapshot<'a>(
    presences: impl Iterator<Item = &'a str>,
    typing: impl Iterator<Item = &'a str>,
    resumed: bool,
) -> String {
    let mut object = String::from(r#"{"presences":["#);
    join(&mut object, presences);
    object.push_str(r#"],"typing":["#);
    join(&mut object, typing);
    object.push_str(if resumed { r#"],"resumed":true}"# } else { r#"],"resumed":false}"# });
    object
}

/// What went wrong: the object of an `application/problem+json`.
pub fn problem(problem: &Problem) -> String {
    problem.to_json()
}

/// After how many milliseconds to connect again: spread out, so that not everybody comes at once.
pub fn reconnect(after_ms: u64) -> String {
    format!(r#"{{"after_ms":{after_ms}}}"#)
}

/// Why a stream ends, as a socket would say it.
pub fn close(close: Close) -> String {
    format!(r#"{{"code":{},"reason":{}}}"#, close.code(), quoted(close.reason()))
}

/// Nothing more to say.
pub fn done() -> String {
    "{}".to_owned()
}

/// An event on a stream. `data` is one of the objects above.
pub fn sse(event: &str, id: Option<&str>, data: &str) -> String {
    // `event: `, `id: `, `data: ` and their ends are 19 bytes.
    let mut frame = String::with_capacity(event.len() + id.map_or(0, str::len) + data.len() + 24);
    line(&mut frame, "event: ", event);
    if let Some(id) = id {
        line(&mut frame, "id: ", id);
    }
    line(&mut frame, "data: ", data);
    frame.push('\n');
    frame
}

/// Moves up to where the watcher has heard, without an event.
pub fn sse_id(id: &str) -> String {
    let mut frame = String::with_capacity(id.len() + 6);
    line(&mut frame, "id: ", id);
    frame.push('\n');
    frame
}

/// The lines that tell a browser after how long to connect again, once the stream has ended for whatever reason.
pub fn sse_retry(after_ms: u64) -> String {
    format!("retry: {after_ms}\n\n")
}

/// A line that says nothing, by which a server finds out whether anybody reads.
pub const SSE_COMMENT: &str = ":\n\n";

/// An event on a socket: `data`, one of the objects above, with the event's name, its id, and the `ref` of the message
/// that it answers in front.
pub fn socket(event: &str, id: Option<&str>, reference: Option<u64>, data: &str) -> String {
    let mut message = String::with_capacity(event.len() + id.map_or(0, str::len) + data.len() + 64);
    message.push_str(r#"{"event":"#);
    message.push_str(&quoted(event));
    if let Some(id) = id {
        message.push_str(r#","id":"#);
        message.push_str(&quoted(id));
    }
    if let Some(reference) = reference {
        // Writing to a string cannot fail.
        let _ = write!(message, r#","ref":{reference}"#);
    }
    match data.strip_prefix('{') {
        Some("}") | None => message.push('}'),
        Some(members) => {
            message.push(',');
            message.push_str(members);
        }
    }
    message
}

/// Why a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// The client is done.
    Normal,
    /// What came is no WebSocket's.
    Protocol,
    /// A binary message came.
    Unsupported,
    /// A text message is not UTF-8.
    NotText,
    /// Too many messages that made no sense.
    Policy,
    /// A message above [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
    TooBig,
    /// The server goes: connect again.
    Restart,
    /// The token expired and no fresh one came: get one first.
    TokenExpired,
    /// Nothing came for too long, not even the answer to a ping.
    Idle,
    /// More messages than a client may send.
    TooFast,
}

impl Close {
    /// Every one.
    pub const ALL: [Close; 10] = [
        Close::Normal,
        Close::Protocol,
        Close::Unsupported,
        Close::NotText,
        Close::Policy,
        Close::TooBig,
        Close::Restart,
        Close::TokenExpired,
        Close::Idle,
        Close::TooFast,
    ];

    /// The close code: below 4000 as RFC 6455 and its registry have it, above after the HTTP status that says the same.
    pub fn code(self) -> u16 {
        match self {
            Close::Normal => 1000,
            Close::Protocol => 1002,
            Close::Unsupported => 1003,
            Close::NotText => 1007,
            Close::Policy => 1008,
            Close::TooBig => 1009,
            Close::Restart => 1012,
            Close::TokenExpired => 4401,
            Close::Idle => 4408,
            Close::TooFast => 4429,
        }
    }

    /// In a word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Close::Normal => "done",
            Close::Protocol => "protocol",
            Close::Unsupported => "binary",
            Close::NotText => "not_text",
            Close::Policy => "nonsense",
            Close::TooBig => "too_big",
            Close::Restart => "restart",
            Close::TokenExpired => "token_expired",
            Close::Idle => "idle",
            Close::TooFast => "too_fast",
        }
    }

    /// The reason, for whoever reads a log.
    pub fn reason(self) -> &'static str {
        match self {
            Close::Normal => "done",
            Close::Protocol => "the WebSocket protocol was broken",
            Close::NotText => "a text message was not UTF-8",
            Close::Unsupported => "only text messages are understood",
            Close::Policy => "too many messages made no sense",
            Close::TooBig => "a message was too long",
            Close::Restart => "the server is going: connect again",
            Close::TokenExpired => "the token expired: connect again with a fresh one",
            Close::Idle => "nothing came for too long",
            Close::TooFast => "too many messages came at once",
        }
    }
}

/// A text as a JSON string, which always serialises.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn join<'a>(list: &mut String, objects: impl Iterator<Item = &'a str>) {
    for (place, object) in objects.enumerate() {
        if place > 0 {
            list.push(',');
        }
        list.push_str(object);
    }
}

/// One line of a frame. What would end the line is left out, and so is NUL, with which a reader would pass over an id.
fn line(frame: &mut String, field: &str, value: &str) {
    frame.push_str(field);
    value.split(['\n', '\r', '\0']).for_each(|part| frame.push_str(part));
    frame.push('\n');
}

#[cfg(test)]
mod tests;
