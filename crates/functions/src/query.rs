//! Who is here?

use rollcall_core::{Choice, Error, Published, Rules, Session, State, UserId, settle};

use crate::capabilities::{Archive, Sessions, Verdict, Verdicts, bounded};
use crate::heartbeat::Answers;

/// What a viewer may know of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Whom this is about.
    pub user: UserId,
    /// What is visible; none: hidden, and nothing more is said.
    pub view: Option<View>,
}

/// The visible part of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What is visible.
    pub published: Published,
    /// The person's own setting, for the person's own eyes.
    pub choice: Option<Choice>,
}

/// What the viewer may know of each person, in the order asked. Everybody is loaded, the hidden too, so that what is
/// hidden takes the same road and the same time as what is shown.
pub async fn look_up(
    (sessions, archive, verdicts): (&impl Sessions, &impl Archive, &impl Verdicts),
    rules: &Rules,
    viewer: Option<UserId>,
    users: Vec<Result<UserId, Error>>,
) -> Answers<Presence> {
    bounded(&users)?;
    let known: Vec<UserId> = users.iter().filter_map(|user| user.as_ref().ok()).cloned().collect();
    if known.is_empty() {
        return Ok(users.into_iter().map(|user| user.and(Err(Error::Denied))).collect());
    }
    let rulings = verdicts.check(viewer.clone(), known.clone()).await?;
    let loaded = sessions.load_many(known.clone()).await?;
    let looks = |session: &Session| settle::look(session, &loaded.moment, rules);
    let mut strangers = Vec::new();
    for (user, session) in known.into_iter().zip(&loaded.sessions) {
        if session.as_ref().is_ok_and(|session| looks(session).last_seen.is_none()) {
            strangers.push(user);
        }
    }
    let remembered = if strangers.is_empty() { Vec::new() } else { archive.get_many(strangers).await? };
    let mut remembered = remembered.into_iter();
    let mut answers = rulings.into_iter().zip(&loaded.sessions);
    Ok(users
        .into_iter()
        .map(|user| {
            let user = user?;
            let Some((verdict, session)) = answers.next() else {
                return Err(Error::Other("the platform answered with fewer items than it was asked for".to_owned()));
            };
            let session = session.as_ref().map_err(Clone::clone)?;
            let mut published = looks(session);
            // Also of one whom the sessions know, but only for a choice made after the rest was archived.
            if published.last_seen.is_none() {
                published = settle::remembered(published, remembered.next().flatten());
            }
            let own = viewer.as_ref() == Some(&user);
            let view = mask(published, verdict, own).map(|published| View {
                published,
                choice: session.choice.clone().filter(|choice| own && choice.matters_at(loaded.moment.now)),
            });
            Ok(Presence { user, view })
        })
        .collect())
}

/// What is left of a presence under a verdict. Everybody may see themselves.
fn mask(mut published: Published, verdict: Verdict, own: bool) -> Option<Published> {
    if own {
        return Some(published);
    }
    if !verdict.presence {
        return None;
    }
    if !verdict.last_seen {
        published.last_seen = None;
        if published.state == State::Offline {
            published.since = None;
        }
    }
    Some(published)
}
