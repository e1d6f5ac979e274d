//! Requests to watch and to type. Only participants of a conversation may type in it or see who is typing.

use std::borrow::Cow;

use rollcall_core::{ConversationId, DeviceId, DeviceKind};
use serde::Deserialize;

use super::{USER, acting_for, deduplicated};
use crate::Limits;
use crate::call::{Call, Connect, EventId, Subscribe, TypingUpdate};
use crate::caller::Caller;
use crate::json::{self, Field, StringEnum};
use crate::problem::Problem;
use crate::query::{Query, conversation_id, echo};

/// The rule that `users` breaks if neither users nor conversations are named.
pub(crate) const NOTHING_WATCHED: &str = "is empty, and so is `conversations`; name at least one user or conversation";

pub(super) fn subscribe(
    caller: &Caller,
    query: &Query<'_>,
    last_event_id: Option<&str>,
    limits: &Limits,
) -> Result<Subscribe, Problem> {
    let connect = connect(caller, query)?;
    let users = query.users_if_any("users", limits.query_ids)?.unwrap_or_default();
    let conversations = query.conversations_if_any("conversations", limits.query_ids)?.unwrap_or_default();
    if users.is_empty() && conversations.is_empty() {
        return Err(Problem::invalid("users", NOTHING_WATCHED));
    }
    require_conversations(caller, &conversations)?;
    let (users, conversations) = (deduplicated(users), deduplicated(conversations));
    let since = since(last_event_id, query)?;
    // A client that resumes on its own is no sign that the user is active.
    let active = flag(query, "active")?.unwrap_or(since.is_none());
    Ok(Subscribe { connect: Connect { active, ..connect }, users, conversations, since })
}

pub(super) fn connect(caller: &Caller, query: &Query<'_>) -> Result<Connect, Problem> {
    let viewer = caller.viewer().cloned();
    let device = query.text("device")?.map(DeviceId::parse).transpose()?;
    let kind = kind(query)?;
    let beats = !flag(query, "watch_only")?.unwrap_or(false) && viewer.is_some();
    let active = flag(query, "active")?.unwrap_or(true);
    Ok(Connect { caller: caller.clone(), viewer, device, kind, beats, active })
}

/// Refuses a list with a conversation the caller does not take part in, and names its index.
pub(crate) fn require_conversations(caller: &Caller, conversations: &[ConversationId]) -> Result<(), Problem> {
    let mut listed = conversations.iter().enumerate();
    listed.try_for_each(|(place, conversation)| {
        caller.require_conversation(&format!("conversations[{place}]"), conversation)
    })
}

/// Streams and sockets default to `web`: browsers open most of them.
fn kind(query: &Query<'_>) -> Result<DeviceKind, Problem> {
    let Some(name) = query.text("kind")? else { return Ok(DeviceKind::Web) };
    DeviceKind::from_name(&name).ok_or_else(|| {
        Problem::invalid("kind", format!("must be one of web, mobile, desktop, other, found `{}`", echo(&name)))
    })
}

fn flag(query: &Query<'_>, name: &'static str) -> Result<Option<bool>, Problem> {
    match query.text(name)?.as_deref() {
        None => Ok(None),
        Some("false") => Ok(Some(false)),
        Some("true") => Ok(Some(true)),
        Some(other) => Err(Problem::invalid(name, format!("must be true or false, found `{}`", echo(other)))),
    }
}

fn since(last_event_id: Option<&str>, query: &Query<'_>) -> Result<Option<EventId>, Problem> {
    let (field, text) = match (last_event_id.filter(|id| !id.is_empty()), query.text("since")?) {
        (Some(id), _) => ("Last-Event-ID", Cow::Borrowed(id)),
        (None, Some(text)) => ("since", text),
        (None, None) => return Ok(None),
    };
    text.parse().map(Some).map_err(|rule| Problem::invalid(field, rule))
}

pub(super) fn typists(caller: &Caller, conversation: &str) -> Result<Call, Problem> {
    let conversation = joined_conversation(caller, conversation)?;
    Ok(Call::Typists { viewer: caller.viewer().cloned(), conversation })
}

pub(super) fn put_typing(caller: &Caller, conversation: &str, body: &[u8]) -> Result<TypingUpdate, Problem> {
    let conversation = joined_conversation(caller, conversation)?;
    let named = if body.trim_ascii().is_empty() { None } else { json::read::<TypingJson>(body, TYPING)?.user };
    Ok(TypingUpdate { user: acting_for(caller, named)?, conversation, typing: true })
}

pub(super) fn delete_typing(caller: &Caller, conversation: &str, query: &Query<'_>) -> Result<TypingUpdate, Problem> {
    let conversation = joined_conversation(caller, conversation)?;
    let named = query.text("user")?.map(Cow::into_owned);
    Ok(TypingUpdate { user: acting_for(caller, named)?, conversation, typing: false })
}

/// The conversation named in the path; the caller must take part in it.
fn joined_conversation(caller: &Caller, conversation: &str) -> Result<ConversationId, Problem> {
    let conversation = conversation_id("conversation", conversation)?;
    caller.require_conversation("conversation", &conversation)?;
    Ok(conversation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypingJson {
    user: Option<String>,
}

const TYPING: &[Field] = &[USER];

#[cfg(test)]
mod tests;
