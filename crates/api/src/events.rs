//! Events for watchers, and their framing as server-sent events and as socket messages.
//!
//! An event has a name, an id from which a watcher resumes (an [`EventId`](crate::EventId)), and a JSON object. The object
//! is serialised once and framed for each watcher:
//!
//! ```text
//! event: presence                          {"event":"presence","id":"17…","user":"bob","state":"online",…}
//! id: 17…
//! data: {"user":"bob","state":"online",…}
//! ```
//!
//! User text cannot break the framing: JSON escapes line breaks, and framing drops any that remain.

use std::fmt::Write;

use rollcall_core::{ConversationId, Time, UserId};

use crate::call::View;
use crate::problem::Problem;
use crate::responses::presence_json;

/// The first event: the current state of everything watched. Data: [`snapshot`].
pub const SNAPSHOT: &str = "snapshot";
/// A user's presence changed. Data: [`presence`].
pub const PRESENCE: &str = "presence";
/// A user started, continues or stopped typing. Data: [`typing`].
pub const TYPING: &str = "typing";
/// A message was refused, or a request failed. Data: [`problem`].
pub const ERROR: &str = "error";
/// The server is shutting down: reconnect. Data: [`reconnect`].
pub const RECONNECT: &str = "reconnect";
/// A message was accepted. Only on a socket, and only for a message with a `ref`. Data: [`done`].
pub const DONE: &str = "done";

/// Why a stream ends; a socket has a close frame instead. Data: [`close`].
pub const CLOSE: &str = "close";

/// A presence, exactly as `GET /v1/presence/{user}` answers it. `None` is hidden.
pub fn presence(user: &UserId, view: Option<&View>) -> String {
    presence_json(user, view)
}

/// A typing signal that lasts until then, or its end.
pub fn typing(conversation: &ConversationId, user: &UserId, until: Option<Time>) -> String {
    let (conversation, user) = (quoted(conversation.as_str()), quoted(user.as_str()));
    let (typing, until) = (until.is_some(), until.map_or_else(|| "null".to_owned(), |until| until.0.to_string()));
    format!(r#"{{"conversation":{conversation},"user":{user},"typing":{typing},"until":{until}}}"#)
}

/// A snapshot of objects made by [`presence`] and [`typing`]. If `resumed`, it holds only what changed since the watcher's
/// event id; otherwise everything, and users without a typing object are not typing.
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

/// The object of an `application/problem+json`.
pub fn problem(problem: &Problem) -> String {
    problem.to_json()
}

/// Milliseconds until the client should reconnect; spread out, so that clients do not all return at once.
pub fn reconnect(after_ms: u64) -> String {
    format!(r#"{{"after_ms":{after_ms}}}"#)
}

/// Why a stream ends, with the code of a socket's close frame.
pub fn close(close: Close) -> String {
    format!(r#"{{"code":{},"reason":{}}}"#, close.code(), quoted(close.reason()))
}

/// Empty data.
pub fn done() -> String {
    "{}".to_owned()
}

/// Frames an event for a stream. `data` is one of the objects above.
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

/// Advances the resume position without an event.
pub fn sse_id(id: &str) -> String {
    let mut frame = String::with_capacity(id.len() + 6);
    line(&mut frame, "id: ", id);
    frame.push('\n');
    frame
}

/// Tells a browser how long to wait before it reconnects after the stream ended.
pub fn sse_retry(after_ms: u64) -> String {
    format!("retry: {after_ms}\n\n")
}

/// An empty comment, by which a server detects a closed connection.
pub const SSE_COMMENT: &str = ":\n\n";

/// Frames an event for a socket: puts the event's name, its id, and the `ref` of the answered message in front of the
/// members of `data`.
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
    /// The client closed the connection.
    Normal,
    /// A frame violates the WebSocket protocol.
    Protocol,
    /// A binary message.
    Unsupported,
    /// A text message is not UTF-8.
    NotText,
    /// Too many invalid messages.
    Policy,
    /// A message above [`MAX_MESSAGE_BYTES`](crate::MAX_MESSAGE_BYTES).
    TooBig,
    /// The server is shutting down: reconnect.
    Restart,
    /// The token expired and was not renewed.
    TokenExpired,
    /// Nothing was received for too long, not even a pong.
    Idle,
    /// More messages than a client may send.
    TooFast,
}

impl Close {
    /// Every variant.
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

    /// The close code: below 4000 from RFC 6455 and its registry, above 4000 derived from the corresponding HTTP status.
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

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Close::Normal => "done",
            Close::Protocol => "protocol",
            Close::Unsupported => "binary",
            Close::NotText => "not_text",
            Close::Policy => "invalid_messages",
            Close::TooBig => "too_big",
            Close::Restart => "restart",
            Close::TokenExpired => "token_expired",
            Close::Idle => "idle",
            Close::TooFast => "too_fast",
        }
    }

    /// The reason in the close frame.
    pub fn reason(self) -> &'static str {
        match self {
            Close::Normal => "done",
            Close::Protocol => "WebSocket protocol error",
            Close::NotText => "a text message was not UTF-8",
            Close::Unsupported => "only text messages are supported",
            Close::Policy => "too many invalid messages",
            Close::TooBig => "a message was too long",
            Close::Restart => "the server is shutting down: reconnect",
            Close::TokenExpired => "the token expired: reconnect with a fresh one",
            Close::Idle => "nothing was received for too long",
            Close::TooFast => "too many messages at once",
        }
    }
}

/// The text as a JSON string. Strings always serialise.
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

/// One line of a frame. Line breaks are dropped, and so is NUL, because a client ignores an id that contains one.
fn line(frame: &mut String, field: &str, value: &str) {
    frame.push_str(field);
    value.split(['\n', '\r', '\0']).for_each(|part| frame.push_str(part));
    frame.push('\n');
}

#[cfg(test)]
mod tests;
