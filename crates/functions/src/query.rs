//! Queries: what a viewer may see of users now.

pub use rollcall_core::visibility::View;
use rollcall_core::{Choice, Error, Ids, Published, Rules, State, Time, UserId, visibility};

use crate::capabilities::{Archive, MAX_BATCH, RestrictionCheck, Sessions, Visibility, bounded};
use crate::heartbeat::Answers;
use crate::read::{KnownUser, distinct, missing_items, read_users};

/// What a viewer is shown of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The user.
    pub user: UserId,
    /// What is visible; `None` if the user is hidden.
    pub view: Option<View>,
}

/// What the viewer is shown of each user, in the order asked; `None` if the user is hidden. Hidden users are read too, so that
/// they take the same code path and the same time as visible ones. A user asked about twice is read once.
pub async fn look_up(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<UserId>,
    users: Ids<UserId>,
) -> Answers<Option<View>> {
    bounded(users.len(), MAX_BATCH)?;
    let view = |unmasked: Unmasked| Ok(unmasked.complete()?.into_view());
    read_repeated(platform, rules, viewer.as_ref(), users, view).await
}

/// Reads each user once, and answers for each time that they were asked about.
pub(crate) async fn read_repeated<T: Clone>(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: Ids<UserId>,
    answer: impl Fn(Unmasked) -> Result<T, Error>,
) -> Answers<T> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let (users, indexes) = distinct(users);
    let read = read(platform, rules, viewer, &users).await?;
    let answers: Vec<_> = read.users.into_iter().map(|unmasked| answer(unmasked?)).collect();
    let Some(indexes) = indexes else { return Ok(answers) };
    Ok(indexes.into_iter().map(|index| answers.get(index).cloned().unwrap_or_else(|| Err(missing_items()))).collect())
}

/// All users asked about, at one instant.
pub(crate) struct Read {
    /// The instant.
    pub(crate) now: Time,
    pub(crate) users: Vec<Result<Unmasked, Error>>,
}

/// Everything about one user that an answer may depend on, not yet masked for the viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmasked {
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
    pub(crate) fn into_view(self) -> Option<View> {
        let masked = visibility::mask(self.published, self.visibility);
        masked.map(|published| View { published, choice: self.choice })
    }
}

/// Reads users for a viewer: one code path for visible and hidden ones.
pub(crate) async fn read(
    (sessions, archive, restrictions): (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: &Ids<UserId>,
) -> Result<Read, Error> {
    let checked = restrictions.check(viewer.cloned(), users.clone()).await?;
    let known = read_users(sessions, rules, users, viewer).await?;
    let is_archived = |index: usize| {
        known.users.get(index).is_some_and(|known| known.as_ref().is_ok_and(|known| needs_archive(&known.published)))
    };
    let archived_users = users.filtered(|index, _| is_archived(index));
    // If the archive is unavailable, only the users that need it get its error.
    let archived = if archived_users.is_empty() { Ok(Vec::new()) } else { archive.get_many(archived_users).await };
    let mut archived = archived.map(Vec::into_iter);
    let mut visibilities = checked.into_iter();
    let unmasked = |(user, known): (&str, Result<KnownUser, Error>)| {
        let visibility = visibilities.next().ok_or_else(missing_items)?;
        let KnownUser { mut published, version, settled, choice, .. } = known?;
        let own = viewer.is_some_and(|viewer| viewer.as_str() == user);
        let visibility = if own { Visibility { presence: true, last_seen: true } } else { visibility };
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
        Ok(Unmasked { published, version, settled, visibility, choice: choice.filter(|_| own), archive_error })
    };
    Ok(Read { now: known.now, users: users.iter().zip(known.users).map(unmasked).collect() })
}

/// Whether the archive is read for this record: the session has no last seen, or the user looks long gone. Sessions of
/// invisible users have a last seen, but they take the same code path and the same time as users who are gone.
fn needs_archive(published: &Published) -> bool {
    published.last_seen.is_none() || (published.state == State::Offline && published.version == 0)
}
