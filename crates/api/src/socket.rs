//! Messages from WebSocket clients: one JSON object each, with the operation in `op`.
//!
//! ```json
//! {"op":"beat","active":true}
//! {"op":"watch","users":["bob"],"conversations":["c1"],"since":"1700000000000000"}
//! {"op":"unwatch","users":["bob"]}
//! {"op":"typing","conversation":"c1","typing":true}
//! {"op":"token","token":"…"}
//! {"op":"leave"}
//! ```
//!
//! Each may carry `"ref"`, a number that the answer repeats. An unknown field is refused by name, and so is one that
//! belongs to another `op`. Errors call the message "the body". [`events`](crate::events) writes what the server sends.

use std::fmt;

use rollcall_core::{ConversationId, UserId};
use serde::Deserialize;

use crate::call::EventId;
use crate::caller::Caller;
use crate::json::{self, Field, FieldType, Named, Requirement, StringEnum};
use crate::problem::{Kind, Problem};
use crate::requests::{NOTHING_WATCHED, deduplicated, ids, require_conversations};
use crate::{Limits, MAX_MESSAGE_BYTES};

/// A decoded and permitted message. Its `Debug` hides a token.
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// Whether the user used the device since the last beat. The connection itself keeps the device alive.
    Beat {
        /// Default: true.
        active: bool,
    },
    /// Also watch these.
    Watch {
        /// The users, without duplicates. Empty only if `conversations` is not.
        users: Vec<UserId>,
        /// The conversations to watch for typing, without duplicates; the caller takes part in all of them.
        conversations: Vec<ConversationId>,
        /// The last event received about them.
        since: Option<EventId>,
    },
    /// Stop watching these.
    Unwatch {
        /// The users, without duplicates. Empty only if `conversations` is not.
        users: Vec<UserId>,
        /// The conversations, without duplicates; the caller need not take part any more.
        conversations: Vec<ConversationId>,
    },
    /// Start, continue or stop typing.
    Typing {
        /// The conversation; the caller takes part in it.
        conversation: ConversationId,
        /// True if started or continuing, false if stopped.
        typing: bool,
    },
    /// Log out: the device ends at once, without the grace of a broken connection.
    Leave,
    /// A fresh token, before the first expires: see [`renew`](crate::renew).
    Token(String),
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Beat { active } => f.debug_struct("Beat").field("active", active).finish(),
            Message::Watch { users, conversations, since } => {
                let mut watch = f.debug_struct("Watch");
                watch.field("users", users).field("conversations", conversations).field("since", since).finish()
            }
            Message::Unwatch { users, conversations } => {
                f.debug_struct("Unwatch").field("users", users).field("conversations", conversations).finish()
            }
            Message::Typing { conversation, typing } => {
                f.debug_struct("Typing").field("conversation", conversation).field("typing", typing).finish()
            }
            Message::Leave => f.write_str("Leave"),
            Message::Token(_) => f.write_str("Token(…)"),
        }
    }
}

/// Decodes a message and checks that the caller may send it. Both results carry the message's `ref`, which is
/// known even for an invalid message as long as it is JSON.
#[allow(clippy::result_large_err, reason = "it adds only a `ref` to a problem, which is the error everywhere else")]
pub fn decode_message(
    text: &str,
    caller: &Caller,
    limits: &Limits,
) -> Result<(Option<u64>, Message), (Option<u64>, Problem)> {
    if text.len() > MAX_MESSAGE_BYTES {
        let detail = format!("the message has {} bytes; at most {MAX_MESSAGE_BYTES} are allowed", text.len());
        return Err((None, Problem::new(Kind::TooLarge, detail)));
    }
    let message: MessageJson = match json::read(text.as_bytes(), FIELDS) {
        Ok(message) => message,
        Err(problem) => return Err((json::peek_unsigned(text, "ref"), problem)),
    };
    let reference = message.reference;
    match message.checked(caller, limits) {
        Ok(message) => Ok((reference, message)),
        Err(problem) => Err((reference, problem)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Beat,
    Watch,
    Unwatch,
    Typing,
    Leave,
    Token,
}

impl StringEnum for Op {
    const VARIANTS: &'static [(&'static str, Self)] = &[
        ("beat", Op::Beat),
        ("watch", Op::Watch),
        ("unwatch", Op::Unwatch),
        ("typing", Op::Typing),
        ("leave", Op::Leave),
        ("token", Op::Token),
    ];
}

impl Op {
    /// Its fields, besides `op` and `ref`.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Op::Beat => &["active"],
            Op::Watch => &["users", "conversations", "since"],
            Op::Unwatch => &["users", "conversations"],
            Op::Typing => &["conversation", "typing"],
            Op::Leave => &[],
            Op::Token => &["token"],
        }
    }
}

/// The fields of all messages, so that a valid message is parsed once.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageJson {
    op: Named<Op>,
    #[serde(rename = "ref")]
    reference: Option<u64>,
    active: Option<bool>,
    users: Option<Vec<String>>,
    conversations: Option<Vec<String>>,
    since: Option<String>,
    conversation: Option<String>,
    typing: Option<bool>,
    token: Option<String>,
}

const FIELDS: &[Field] = &[
    Field {
        name: "op",
        kind: FieldType::OneOf(&["beat", "watch", "unwatch", "typing", "leave", "token"]),
        requirement: Requirement::Required,
    },
    Field { name: "ref", kind: FieldType::Unsigned, requirement: Requirement::Optional },
    Field { name: "active", kind: FieldType::Bool, requirement: Requirement::Optional },
    Field { name: "users", kind: FieldType::Strings, requirement: Requirement::Optional },
    Field { name: "conversations", kind: FieldType::Strings, requirement: Requirement::Optional },
    Field { name: "since", kind: FieldType::String, requirement: Requirement::Optional },
    Field { name: "conversation", kind: FieldType::String, requirement: Requirement::Optional },
    Field { name: "typing", kind: FieldType::Bool, requirement: Requirement::Optional },
    Field { name: "token", kind: FieldType::String, requirement: Requirement::Optional },
];

impl MessageJson {
    fn checked(mut self, caller: &Caller, limits: &Limits) -> Result<Message, Problem> {
        self.refuse_strays()?;
        match self.op.0 {
            Op::Beat => Ok(Message::Beat { active: self.active.unwrap_or(true) }),
            Op::Watch => {
                let (users, conversations) = self.watched(limits)?;
                require_conversations(caller, &conversations)?;
                let (users, conversations) = (deduplicated(users), deduplicated(conversations));
                Ok(Message::Watch { users, conversations, since: self.since()? })
            }
            Op::Unwatch => {
                let (users, conversations) = self.watched(limits)?;
                Ok(Message::Unwatch { users: deduplicated(users), conversations: deduplicated(conversations) })
            }
            Op::Typing => {
                let conversation = ConversationId::parse(given("conversation", self.conversation)?)?;
                caller.require_conversation("conversation", &conversation)?;
                Ok(Message::Typing { conversation, typing: given("typing", self.typing)? })
            }
            Op::Leave => Ok(Message::Leave),
            Op::Token => Ok(Message::Token(given("token", self.token)?)),
        }
    }

    /// Refuses a field of another `op`, which would silently do nothing.
    fn refuse_strays(&self) -> Result<(), Problem> {
        let fields = [
            ("active", self.active.is_some()),
            ("users", self.users.is_some()),
            ("conversations", self.conversations.is_some()),
            ("since", self.since.is_some()),
            ("conversation", self.conversation.is_some()),
            ("typing", self.typing.is_some()),
            ("token", self.token.is_some()),
        ];
        let own = self.op.0.fields();
        match fields.into_iter().find(|(name, given)| *given && !own.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Problem::invalid(name, "is not a field of this `op`")),
        }
    }

    /// One of the two lists may be empty or missing.
    fn watched(&mut self, limits: &Limits) -> Result<(Vec<UserId>, Vec<ConversationId>), Problem> {
        let (users, conversations) = (self.users.take(), self.conversations.take());
        let users = ids("users", users.unwrap_or_default(), limits.query_ids, UserId::parse)?;
        let conversations =
            ids("conversations", conversations.unwrap_or_default(), limits.query_ids, ConversationId::parse)?;
        if users.is_empty() && conversations.is_empty() {
            return Err(Problem::invalid("users", NOTHING_WATCHED));
        }
        Ok((users, conversations))
    }

    fn since(&self) -> Result<Option<EventId>, Problem> {
        let since = self.since.as_deref().map(str::parse).transpose();
        since.map_err(|rule: &str| Problem::invalid("since", rule))
    }
}

fn given<T>(field: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::invalid(field, "is missing"))
}

#[cfg(test)]
mod tests;
