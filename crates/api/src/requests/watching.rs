//! Requests to watch and to type. Only who takes part in a conversation may type in it or see who does.

use std::borrow::Cow;

use rollcall_core::{ConversationId, DeviceId, DeviceKind};
use serde::Deserialize;

use super::{USER, acting_for, once_each};
use crate::Limits;
use crate::body::{self, Field, Word};
use crate::call::{Call, Connect, Since, Subscribe, TypingUpdate};
use crate::caller::Caller;
use crate::problem::Problem;
use crate::query::{Query, conversation_id};

/// The rule that `users` breaks where neither people nor conversations are named.
pub(crate) const NOTHING_WATCHED: &str = "names nobody, and `conversations` names none: one of both is needed";

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
    take_part(caller, &conversations)?;
    let (users, conversations) = (once_each(users), once_each(conversations));
    let since = since(last_event_id, query)?;
    // A program that resumes by itself says nothing about its person.
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

/// Refuses a list with a conversation in which the caller takes no part, and names its place.
pub(crate) fn take_part(caller: &Caller, conversations: &[ConversationId]) -> Result<(), Problem> {
    let mut listed = conversations.iter().enumerate();
    listed.try_for_each(|(place, conversation)| caller.takes_part(&format!("conversations[{place}]"), conversation))
}

/// What opens a connection that stays is a page, unless it says so.
fn kind(query: &Query<'_>) -> Result<DeviceKind, Problem> {
    let Some(word) = query.text("kind")? else { return Ok(DeviceKind::Web) };
    DeviceKind::meaning(&word).ok_or_else(|| Problem::invalid("kind", "is not one of web, mobile, desktop, other"))
}

fn flag(query: &Query<'_>, name: &'static str) -> Result<Option<bool>, Problem> {
    match query.text(name)?.as_deref() {
        None => Ok(None),
        Some("false") => Ok(Some(false)),
        Some("true") => Ok(Some(true)),
        Some(_) => Err(Problem::invalid(name, "is neither true nor false")),
    }
}

fn since(last_event_id: Option<&str>, query: &Query<'_>) -> Result<Option<Since>, Problem> {
    let (field, text) = match (last_event_id.filter(|id| !id.is_empty()), query.text("since")?) {
        (Some(id), _) => ("Last-Event-ID", Cow::Borrowed(id)),
        (None, Some(text)) => ("since", text),
        (None, None) => return Ok(None),
    };
    text.parse().map(Some).map_err(|rule| Problem::invalid(field, rule))
}

pub(super) fn typists(caller: &Caller, conversation: &str) -> Result<Call, Problem> {
    let conversation = taken_part(caller, conversation)?;
    Ok(Call::Typists { viewer: caller.viewer().cloned(), conversation })
}

pub(super) fn put_typing(caller: &Caller, conversation: &str, body: &[u8]) -> Result<TypingUpdate, Problem> {
    let conversation = taken_part(caller, conversation)?;
    let named = if body.trim_ascii().is_empty() { None } else { body::read::<WireTyping>(body, TYPING)?.user };
    Ok(TypingUpdate { user: acting_for(caller, named)?, conversation, typing: true })
}

pub(super) fn delete_typing(caller: &Caller, conversation: &str, query: &Query<'_>) -> Result<TypingUpdate, Problem> {
    let conversation = taken_part(caller, conversation)?;
    let named = query.text("user")?.map(Cow::into_owned);
    Ok(TypingUpdate { user: acting_for(caller, named)?, conversation, typing: false })
}

/// The conversation of the path, if the caller takes part in it.
fn taken_part(caller: &Caller, conversation: &str) -> Result<ConversationId, Problem> {
    let conversation = conversation_id("conversation", conversation)?;
    caller.takes_part("conversation", &conversation)?;
    Ok(conversation)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTyping {
    user: Option<String>,
}

const TYPING: &[Field] = &[USER];

#[cfg(test)]
mod tests;
