//! Queries: what a viewer may see of users now.

use rollcall_core::derive::derive;
pub use rollcall_core::visibility::View;
use rollcall_core::{Choice, Error, Moment, Published, Rules, Session, State, UserId, visibility};

use crate::capabilities::{Archive, MAX_BATCH, RestrictionCheck, Sessions, Visibility, bounded};
use crate::heartbeat::Answers;

/// What a viewer is shown of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The user.
    pub user: UserId,
    /// What is visible; `None` if the user is hidden.
    pub view: Option<View>,
}

/// What the viewer is shown of each user, in the order asked. Hidden users are loaded too, so that they take the same code path
/// and the same time as visible ones.
pub async fn look_up(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<UserId>,
    users: Vec<Result<UserId, Error>>,
) -> Answers<Presence> {
    let read = read(platform, rules, viewer.as_ref(), users).await?;
    let presence = |unmasked: Unmasked| Presence { view: unmasked.view(), user: unmasked.user };
    Ok(read.users.into_iter().map(|unmasked| unmasked?.complete().map(presence)).collect())
}

/// All users asked about, at one instant.
pub(crate) struct Read {
    /// The instant; `None` if there was no valid user id.
    pub(crate) moment: Option<Moment>,
    pub(crate) users: Vec<Result<Unmasked, Error>>,
}

/// Everything about one user that an answer may depend on, not yet masked for the viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmasked {
    pub(crate) user: UserId,
    /// What a viewer without limits would see.
    pub(crate) published: Published,
    /// The version of the record, also where `published` withholds it.
    pub(crate) version: u64,
    /// Whether `published` is what was last published.
    pub(crate) settled: bool,
    pub(crate) visibility: Visibility,
    /// The user's own choice, if the viewer is the user.
    pub(crate) choice: Option<Choice>,
    /// Why the archive could not be read, if the last seen should have come from it.
    pub(crate) archive_error: Option<Error>,
}

impl Unmasked {
    /// The same, or the error of the archive.
    pub(crate) fn complete(self) -> Result<Self, Error> {
        match self.archive_error {
            None => Ok(self),
            Some(error) => Err(error),
        }
    }

    /// What the viewer is shown.
    pub(crate) fn view(&self) -> Option<View> {
        let masked = visibility::mask(self.published.clone(), self.visibility);
        masked.map(|published| View { published, choice: self.choice.clone() })
    }
}

/// Reads users for a viewer: one code path for visible and hidden ones.
pub(crate) async fn read(
    (sessions, archive, restrictions): (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: Vec<Result<UserId, Error>>,
) -> Result<Read, Error> {
    bounded(users.len(), MAX_BATCH)?;
    let valid: Vec<UserId> = users.iter().filter_map(|user| user.as_ref().ok()).cloned().collect();
    if valid.is_empty() {
        let users = users.into_iter().map(|user| user.and(Err(Error::Denied))).collect();
        return Ok(Read { moment: None, users });
    }
    let checked = restrictions.check(viewer.cloned(), valid.iter().collect()).await?;
    let loaded = sessions.load_many(valid.clone()).await?;
    let derive_published = |session: &Session| visibility::derive_published(session, &loaded.moment, rules);
    let mut archived_users = Vec::new();
    for (user, session) in valid.into_iter().zip(&loaded.sessions) {
        if session.as_ref().is_ok_and(|session| needs_archive(&derive_published(session))) {
            archived_users.push(user);
        }
    }
    // If the archive is unavailable, only the users that need it get its error.
    let archived = if archived_users.is_empty() { Ok(Vec::new()) } else { archive.get_many(archived_users).await };
    let mut archived = archived.map(Vec::into_iter);
    let mut answers = checked.into_iter().zip(&loaded.sessions);
    let unmasked = |user: Result<UserId, Error>| {
        let user = user?;
        let (visibility, session) = answers.next().ok_or_else(missing_items)?;
        let session = session.as_ref().map_err(Clone::clone)?;
        let own = viewer == Some(&user);
        let visibility = if own { Visibility { presence: true, last_seen: true } } else { visibility };
        let mut published = derive_published(session);
        // A session may exist only for a choice that was made after the rest was archived.
        let mut archive_error = None;
        if needs_archive(&published) {
            match &mut archived {
                Ok(archived) => published = visibility::with_archived(published, archived.next().flatten()),
                // Not for a viewer who may not see the last seen: the error would reveal that the user is long gone.
                Err(error) => {
                    archive_error = Some(error.clone()).filter(|_| visibility.presence && visibility.last_seen);
                }
            }
        }
        Ok(Unmasked {
            user,
            published,
            version: session.published.as_ref().map_or(0, |published| published.version),
            settled: !derive(session, &loaded.moment, rules).differs_from(session.published.as_ref()),
            visibility,
            choice: session.choice.clone().filter(|choice| own && choice.matters_at(loaded.moment.now)),
            archive_error,
        })
    };
    Ok(Read { moment: Some(loaded.moment), users: users.into_iter().map(unmasked).collect() })
}

/// Whether the archive is read for this record: the session has no last seen, or the user looks long gone. Sessions of
/// invisible users have a last seen, but they take the same code path and the same time as users who are gone.
fn needs_archive(published: &Published) -> bool {
    published.last_seen.is_none() || (published.state == State::Offline && published.version == 0)
}

pub(crate) fn missing_items() -> Error {
    Error::Other("a capability returned fewer items than requested".to_owned())
}
