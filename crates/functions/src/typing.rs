//! Who is writing to me right now?
//!
//! Typing is not a heartbeat: nothing here touches a session, and one is read only because the invisible are not to be seen
//! typing. How often a sign is told is the platform's business.

use std::collections::{BTreeSet, HashMap};

use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::{ConversationId, Error, Rules, Span, Stance, UserId};

use crate::capabilities::{RestrictionCheck, Sessions, Typing, TypingSignal, Typist, bounded};
use crate::heartbeat::Answers;
use crate::query::short_answer;

/// A person starts, goes on, or stops typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypingUpdate {
    /// Who.
    pub user: UserId,
    /// Where.
    pub conversation: ConversationId,
    /// Started or goes on, or stopped.
    pub typing: bool,
}

/// Takes signs of typing. One that is not repeated ends by itself; one of somebody invisible is none.
pub async fn type_many(
    (sessions, typing): (&impl Sessions, &impl Typing),
    rules: &Rules,
    typing_updates: Vec<Result<TypingUpdate, Error>>,
) -> Answers<()> {
    bounded(&typing_updates)?;
    let typing_updates = only_of_the_visible(sessions, typing_updates).await?;
    let lasts = |typing: bool| if typing { rules.typing_ttl } else { Span(0) };
    let sign = |typing_update: &TypingUpdate| TypingSignal {
        conversation: typing_update.conversation.clone(),
        user: typing_update.user.clone(),
        lasts: lasts(typing_update.typing),
    };
    let signs: Vec<_> =
        typing_updates.iter().filter_map(|typing_update| typing_update.as_ref().ok().map(sign)).collect();
    let marked = if signs.is_empty() { Vec::new() } else { typing.set_typing(signs).await? };
    let mut marked = marked.into_iter();
    Ok(typing_updates
        .into_iter()
        .map(|typing_update| typing_update.and_then(|_| marked.next().ok_or_else(short_answer)?))
        .collect())
}

/// The same typing updates, where the invisible do not type: a start of theirs is a stop, so that one who began while visible is
/// taken back, and fails or succeeds like anybody's.
async fn only_of_the_visible(
    sessions: &impl Sessions,
    mut typing_updates: Vec<Result<TypingUpdate, Error>>,
) -> Result<Vec<Result<TypingUpdate, Error>>, Error> {
    let starts = |typing_update: &&mut Result<TypingUpdate, Error>| {
        typing_update.as_ref().is_ok_and(|typing_update| typing_update.typing)
    };
    let users: Vec<UserId> =
        typing_updates.iter_mut().filter(starts).flatten().map(|typing_update| typing_update.user.clone()).collect();
    if users.is_empty() {
        return Ok(typing_updates);
    }
    let loaded = sessions.load_many(users).await?;
    let mut found = loaded.sessions.into_iter();
    for place in typing_updates.iter_mut().filter(starts) {
        match found.next().unwrap_or_else(|| Err(short_answer())) {
            Ok(session) => {
                let choice = session.choice.as_ref();
                let stance = choice.map_or(Stance::Auto, |choice| choice.stance_at(loaded.moment.now));
                place.iter_mut().for_each(|typing_update| typing_update.typing = stance != Stance::Invisible);
            }
            Err(error) => *place = Err(error),
        }
    }
    Ok(typing_updates)
}

/// Whom the viewer may see typing in each conversation, in the order asked; never the viewer.
pub async fn typists(
    (typing, verdicts): (&impl Typing, &impl RestrictionCheck),
    viewer: Option<UserId>,
    conversations: Vec<Result<ConversationId, Error>>,
) -> Answers<Vec<Typist>> {
    bounded(&conversations)?;
    let known: Vec<_> = conversations.iter().filter_map(|conversation| conversation.as_ref().ok()).cloned().collect();
    let found = if known.is_empty() { Vec::new() } else { typing.typists(known).await? };
    let visible = visible(verdicts, viewer.as_ref(), &found).await?;
    let may_see = |typist: &Typist| visible.get(&typist.user).copied().unwrap_or(false);
    let mut found = found.into_iter();
    let seen = |conversation: Result<ConversationId, Error>| {
        conversation?;
        let typists = found.next().ok_or_else(short_answer)??;
        Ok(typists.into_iter().filter(may_see).collect())
    };
    Ok(conversations.into_iter().map(seen).collect())
}

/// Whether the viewer may see each of those who type, asked once however many conversations they type in. The viewer is
/// not among them.
async fn visible(
    verdicts: &impl RestrictionCheck,
    viewer: Option<&UserId>,
    found: &[Result<Vec<Typist>, Error>],
) -> Result<HashMap<UserId, bool>, Error> {
    let typists = found.iter().flatten().flatten().map(|typist| &typist.user).filter(|user| viewer != Some(*user));
    let subjects: Vec<UserId> = typists.collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let mut visible = HashMap::with_capacity(subjects.len());
    for subjects in subjects.chunks(MAX_SUBJECTS) {
        let rulings = verdicts.check(viewer.cloned(), subjects.iter().collect()).await?;
        visible.extend(subjects.iter().cloned().zip(rulings.into_iter().map(|verdict| verdict.presence)));
    }
    Ok(visible)
}

#[cfg(test)]
mod tests;
