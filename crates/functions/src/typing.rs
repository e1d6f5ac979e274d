//! Who is writing to me right now?
//!
//! Typing is not a heartbeat: nothing here touches a session, and one is read only because the invisible are not to be seen
//! typing. How often a sign is told is the platform's business.

use std::collections::{BTreeSet, HashMap};

use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::{ConversationId, Error, Rules, Span, Stance, UserId};

use crate::capabilities::{Sessions, Typing, TypingSign, Typist, Verdicts, bounded};
use crate::heartbeat::Answers;
use crate::query::short_answer;

/// A person starts, goes on, or stops typing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stroke {
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
    strokes: Vec<Result<Stroke, Error>>,
) -> Answers<()> {
    bounded(&strokes)?;
    let strokes = only_of_the_visible(sessions, strokes).await?;
    let lasts = |typing: bool| if typing { rules.typing_ttl } else { Span(0) };
    let sign = |stroke: &Stroke| TypingSign {
        conversation: stroke.conversation.clone(),
        user: stroke.user.clone(),
        lasts: lasts(stroke.typing),
    };
    let signs: Vec<_> = strokes.iter().filter_map(|stroke| stroke.as_ref().ok().map(sign)).collect();
    let marked = if signs.is_empty() { Vec::new() } else { typing.mark_many(signs).await? };
    let mut marked = marked.into_iter();
    Ok(strokes.into_iter().map(|stroke| stroke.and_then(|_| marked.next().ok_or_else(short_answer)?)).collect())
}

/// The same strokes, where the invisible do not type: a start of theirs is a stop, so that one who began while visible is
/// taken back, and fails or succeeds like anybody's.
async fn only_of_the_visible(
    sessions: &impl Sessions,
    mut strokes: Vec<Result<Stroke, Error>>,
) -> Result<Vec<Result<Stroke, Error>>, Error> {
    let starts = |stroke: &&mut Result<Stroke, Error>| stroke.as_ref().is_ok_and(|stroke| stroke.typing);
    let users: Vec<UserId> = strokes.iter_mut().filter(starts).flatten().map(|stroke| stroke.user.clone()).collect();
    if users.is_empty() {
        return Ok(strokes);
    }
    let loaded = sessions.load_many(users).await?;
    let mut found = loaded.sessions.into_iter();
    for place in strokes.iter_mut().filter(starts) {
        match found.next().unwrap_or_else(|| Err(short_answer())) {
            Ok(session) => {
                let choice = session.choice.as_ref();
                let stance = choice.map_or(Stance::Auto, |choice| choice.stance_at(loaded.moment.now));
                place.iter_mut().for_each(|stroke| stroke.typing = stance != Stance::Invisible);
            }
            Err(error) => *place = Err(error),
        }
    }
    Ok(strokes)
}

/// Whom the viewer may see typing in each conversation, in the order asked; never the viewer.
pub async fn typists(
    (typing, verdicts): (&impl Typing, &impl Verdicts),
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
    verdicts: &impl Verdicts,
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
