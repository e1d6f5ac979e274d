//! Who is here?

use rollcall_core::{Choice, Error, Published, Rules, Session, State, UserId, sight};

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
    let looks = |session: &Session| sight::look(session, &loaded.moment, rules);
    let mut strangers = Vec::new();
    for (user, session) in known.into_iter().zip(&loaded.sessions) {
        if session.as_ref().is_ok_and(|session| asks_archive(&looks(session))) {
            strangers.push(user);
        }
    }
    // An archive that is away fails those whom only it knows, and nobody else.
    let remembered = if strangers.is_empty() { Ok(Vec::new()) } else { archive.get_many(strangers).await };
    let mut remembered = remembered.map(Vec::into_iter);
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
            if asks_archive(&published) {
                let last_seen = remembered.as_mut().map_err(|error| error.clone())?.next().flatten();
                published = sight::remembered(published, last_seen);
            }
            let own = viewer.as_ref() == Some(&user);
            let verdict = if own { Verdict { presence: true, last_seen: true } } else { verdict };
            let view = sight::mask(published, verdict).map(|published| View {
                published,
                choice: session.choice.clone().filter(|choice| own && choice.matters_at(loaded.moment.now)),
            });
            Ok(Presence { user, view })
        })
        .collect())
}

/// Whether the archive is asked about a person who looks like this: if the sessions do not know when they were last seen,
/// and for everybody who looks gone for good. Of the invisible the sessions do know it, but they take the same road as
/// those who are gone, and the same time.
fn asks_archive(published: &Published) -> bool {
    published.last_seen.is_none() || (published.state == State::Offline && published.version == 0)
}
