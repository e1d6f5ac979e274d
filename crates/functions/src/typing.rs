//! Typing updates, and who is typing.
//!
//! Typing is not a heartbeat: nothing here touches a session. Sessions are read only because invisible users must not be seen
//! typing. The store decides how often a typing signal is published.

use std::collections::{BTreeSet, HashMap};

use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::{ConversationId, Error, Ids, Rules, Span, UserId};

use crate::capabilities::{MAX_BATCH, RestrictionCheck, Sessions, Typing, TypingSignal, Typist, bounded};
use crate::heartbeat::Answers;
use crate::read::{missing_items, read_users};

/// A user starts, continues or stops typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingUpdate {
    /// The user.
    pub user: UserId,
    /// The conversation.
    pub conversation: ConversationId,
    /// Whether the user types; false if they stopped.
    pub typing: bool,
}

/// Records typing updates. A signal that is not repeated ends by itself. Typing of an invisible user counts as a stop.
pub async fn type_many(
    (sessions, typing): (&impl Sessions, &impl Typing),
    rules: &Rules,
    updates: Vec<Result<TypingUpdate, Error>>,
) -> Answers<()> {
    bounded(updates.len(), MAX_BATCH)?;
    let updates = stop_invisible(sessions, rules, updates).await?;
    let lasts = |typing: bool| if typing { rules.typing_ttl } else { Span(0) };
    let signal = |update: &TypingUpdate| TypingSignal {
        conversation: update.conversation.clone(),
        user: update.user.clone(),
        lasts: lasts(update.typing),
    };
    let signals: Vec<_> = updates.iter().filter_map(|update| update.as_ref().ok().map(signal)).collect();
    let stored = if signals.is_empty() { Vec::new() } else { typing.set_typing(signals).await? };
    let mut stored = stored.into_iter();
    Ok(updates.into_iter().map(|update| update.and_then(|_| stored.next().ok_or_else(missing_items)?)).collect())
}

/// Turns starts of invisible users into stops. So typing that began while visible ends, and the update fails or succeeds like
/// that of any user.
async fn stop_invisible(
    sessions: &impl Sessions,
    rules: &Rules,
    mut updates: Vec<Result<TypingUpdate, Error>>,
) -> Result<Vec<Result<TypingUpdate, Error>>, Error> {
    let starts = |update: &&mut Result<TypingUpdate, Error>| update.as_ref().is_ok_and(|update| update.typing);
    let users: Ids<UserId> =
        updates.iter().flatten().filter(|update| update.typing).map(|update| &update.user).collect();
    if users.is_empty() {
        return Ok(updates);
    }
    let mut found = read_users(sessions, rules, &users, None).await?.users.into_iter();
    for start in updates.iter_mut().filter(starts) {
        match found.next().unwrap_or_else(|| Err(missing_items())) {
            Ok(known) => start.iter_mut().for_each(|update| update.typing = !known.invisible),
            Err(error) => *start = Err(error),
        }
    }
    Ok(updates)
}

/// The users whom the viewer may see typing in each conversation, in the order asked; never the viewer.
pub async fn typists(
    (typing, restrictions): (&impl Typing, &impl RestrictionCheck),
    viewer: Option<UserId>,
    conversations: Vec<Result<ConversationId, Error>>,
) -> Answers<Vec<Typist>> {
    bounded(conversations.len(), MAX_BATCH)?;
    let valid: Vec<_> = conversations.iter().filter_map(|conversation| conversation.as_ref().ok()).cloned().collect();
    let found = if valid.is_empty() { Vec::new() } else { typing.typists(valid).await? };
    let visible = visible(restrictions, viewer.as_ref(), &found).await?;
    let may_see = |typist: &Typist| visible.get(&typist.user).copied().unwrap_or(false);
    let mut found = found.into_iter();
    let seen = |conversation: Result<ConversationId, Error>| {
        conversation?;
        let typists = found.next().ok_or_else(missing_items)??;
        Ok(typists.into_iter().filter(may_see).collect())
    };
    Ok(conversations.into_iter().map(seen).collect())
}

/// Whether the viewer may see each typist, checked once per user. The viewer is not among them.
async fn visible(
    restrictions: &impl RestrictionCheck,
    viewer: Option<&UserId>,
    found: &[Result<Vec<Typist>, Error>],
) -> Result<HashMap<UserId, bool>, Error> {
    let typists = found.iter().flatten().flatten().map(|typist| &typist.user).filter(|user| viewer != Some(*user));
    let subjects: Vec<UserId> = typists.collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let mut visible = HashMap::with_capacity(subjects.len());
    for subjects in subjects.chunks(MAX_SUBJECTS) {
        let checked = restrictions.check(viewer.cloned(), subjects.iter().collect()).await?;
        visible.extend(subjects.iter().cloned().zip(checked.into_iter().map(|visibility| visibility.presence)));
    }
    Ok(visible)
}

#[cfg(test)]
mod tests;
