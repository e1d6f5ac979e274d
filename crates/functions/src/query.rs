//! Who is here?

use rollcall_core::derive::derive;
pub use rollcall_core::visibility::View;
use rollcall_core::{Choice, Error, Moment, Published, Rules, Session, State, UserId, visibility};

use crate::capabilities::{Archive, RestrictionCheck, Sessions, Visibility, bounded};
use crate::heartbeat::Answers;

/// What a viewer may know of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// Whom this is about.
    pub user: UserId,
    /// What is visible; none: hidden, and nothing more is said.
    pub view: Option<View>,
}

/// What the viewer may know of each person, in the order asked. Everybody is loaded, the hidden too, so that what is
/// hidden takes the same road and the same time as what is shown.
pub async fn look_up(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<UserId>,
    users: Vec<Result<UserId, Error>>,
) -> Answers<Presence> {
    let read = read(platform, rules, viewer.as_ref(), users).await?;
    let presence = |glimpse: Glimpse| Presence { view: glimpse.view(), user: glimpse.user };
    Ok(read.glimpses.into_iter().map(|glimpse| glimpse?.whole().map(presence)).collect())
}

/// Everybody asked about, at one instant.
pub(crate) struct Read {
    /// The instant; none if there was nobody to read.
    pub(crate) moment: Option<Moment>,
    pub(crate) glimpses: Vec<Result<Glimpse, Error>>,
}

/// Everything about one person that an answer may depend on, not yet masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub(crate) user: UserId,
    /// What anybody could see.
    pub(crate) published: Published,
    /// The version of the record, also where `published` no longer tells it.
    pub(crate) version: u64,
    /// Whether `published` is what was last published.
    pub(crate) settled: bool,
    pub(crate) verdict: Visibility,
    /// The person's own setting, if it is the person who looks.
    pub(crate) choice: Option<Choice>,
    /// Why the archive could not be asked, if it should have been: then when they were last seen is not known.
    pub(crate) lacking: Option<Error>,
}

impl Glimpse {
    /// The same, if it lacks nothing.
    pub(crate) fn whole(self) -> Result<Self, Error> {
        match self.lacking {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }

    /// What is left of it for the viewer.
    pub(crate) fn view(&self) -> Option<View> {
        let masked = visibility::mask(self.published.clone(), self.verdict);
        masked.map(|published| View { published, choice: self.choice.clone() })
    }
}

/// Reads people through a viewer's eyes: the one road that everybody takes, shown or hidden.
pub(crate) async fn read(
    (sessions, archive, verdicts): (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: Vec<Result<UserId, Error>>,
) -> Result<Read, Error> {
    bounded(&users)?;
    let known: Vec<UserId> = users.iter().filter_map(|user| user.as_ref().ok()).cloned().collect();
    if known.is_empty() {
        let glimpses = users.into_iter().map(|user| user.and(Err(Error::Denied))).collect();
        return Ok(Read { moment: None, glimpses });
    }
    let rulings = verdicts.check(viewer.cloned(), known.iter().collect()).await?;
    let loaded = sessions.load_many(known.clone()).await?;
    let looks = |session: &Session| visibility::look(session, &loaded.moment, rules);
    let mut strangers = Vec::new();
    for (user, session) in known.into_iter().zip(&loaded.sessions) {
        if session.as_ref().is_ok_and(|session| asks_archive(&looks(session))) {
            strangers.push(user);
        }
    }
    // An archive that is away leaves a gap with those whom only it knows, and with nobody else.
    let remembered = if strangers.is_empty() { Ok(Vec::new()) } else { archive.get_many(strangers).await };
    let mut remembered = remembered.map(Vec::into_iter);
    let mut answers = rulings.into_iter().zip(&loaded.sessions);
    let glimpse = |user: Result<UserId, Error>| {
        let user = user?;
        let (verdict, session) = answers.next().ok_or_else(short_answer)?;
        let session = session.as_ref().map_err(Clone::clone)?;
        let own = viewer == Some(&user);
        let verdict = if own { Visibility { presence: true, last_seen: true } } else { verdict };
        let mut published = looks(session);
        // Also of one whom the sessions know, but only for a choice made after the rest was archived.
        let mut lacking = None;
        if asks_archive(&published) {
            match &mut remembered {
                Ok(remembered) => published = visibility::remembered(published, remembered.next().flatten()),
                // Whoever is not told it lacks nothing: a failure would tell that somebody is long gone.
                Err(error) => lacking = Some(error.clone()).filter(|_| verdict.presence && verdict.last_seen),
            }
        }
        Ok(Glimpse {
            user,
            published,
            version: session.published.as_ref().map_or(0, |published| published.version),
            settled: !derive(session, &loaded.moment, rules).differs_from(session.published.as_ref()),
            verdict,
            choice: session.choice.clone().filter(|choice| own && choice.matters_at(loaded.moment.now)),
            lacking,
        })
    };
    Ok(Read { moment: Some(loaded.moment), glimpses: users.into_iter().map(glimpse).collect() })
}

/// Whether the archive is asked about a person who looks like this: if the sessions do not know when they were last seen,
/// and for everybody who looks gone for good. Of the invisible the sessions do know it, but they take the same road as
/// those who are gone, and the same time.
fn asks_archive(published: &Published) -> bool {
    published.last_seen.is_none() || (published.state == State::Offline && published.version == 0)
}

pub(crate) fn short_answer() -> Error {
    Error::Other("the platform answered with fewer items than it was asked for".to_owned())
}
