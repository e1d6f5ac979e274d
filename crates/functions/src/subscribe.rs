//! Tell me when it changes.
//!
//! Two ways, for two sorts of host. [`open`] admits a viewer and says where everybody is: the host's own hub does the
//! rest. [`feed`] does the rest too, over a platform that streams what changes.

use std::collections::{HashMap, HashSet};

use rollcall_core::{Choice, Error, Moment, Published, Rules, State, Time, UserId, visibility};

use crate::capabilities::{Archive, Change, Changes, RestrictionCheck, Sessions, Visibility, Watching};
use crate::heartbeat::Answers;
use crate::query::{Glimpse, Presence, View, read, short_answer};
use crate::sweep::settle_users;

/// The verdict of people about themselves.
const OWN: Visibility = Visibility { presence: true, last_seen: true };

/// Where a viewer who begins to watch finds a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialPresence {
    /// What is visible now; none: hidden.
    pub view: Option<View>,
    /// What the viewer may see from now on, until it is asked anew.
    pub visibility: Visibility,
    /// Whether what is shown is what was last published. If not, it was derived just now, and a late beat may take it
    /// back without a word.
    pub settled: bool,
}

/// A change that the viewer may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// What is visible now.
    pub presence: Presence,
    /// From where to resume after this.
    pub version: u64,
}

/// Whoever is fed went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Whoever is fed.
#[allow(async_fn_in_trait, reason = "functions are generic over capabilities and name no future's auto traits")]
pub trait Audience {
    /// Waits until they can take more. Until then nothing is taken from the platform, where the newest change of each
    /// person replaces the one before it.
    async fn wants_more(&mut self) -> Result<(), Gone>;
    /// Tells them.
    async fn tell(&mut self, updates: Vec<Update>) -> Result<(), Gone>;
}

/// Admits a viewer who watches so many already: checks the limit, and reads where everybody is, in the order asked. The
/// hidden take the same road as the shown, which is that of a query. Where the archive is away, those whom only it knows are
/// shown without a last seen, and as not settled: nobody is kept from watching by that.
pub async fn open(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<UserId>,
    watching: u32,
    users: Vec<Result<UserId, Error>>,
) -> Answers<InitialPresence> {
    admit(rules, watching, users.len())?;
    let read = read(platform, rules, viewer.as_ref(), users).await?;
    let place = |glimpse: Glimpse| {
        let settled = glimpse.settled && glimpse.lacking.is_none();
        InitialPresence { view: glimpse.view(), visibility: glimpse.verdict, settled }
    };
    Ok(read.glimpses.into_iter().map(|glimpse| glimpse.map(place)).collect())
}

/// Begins to feed a viewer: watches first and reads then, so that nothing falls between the two. An error is the answer
/// to the call; from then on [`Feed::run`] says how it ended.
pub async fn feed<'p, S: Sessions, A: Archive, V: RestrictionCheck, W: Watching>(
    platform: (&'p S, &'p A, &'p V),
    watching: &W,
    rules: &Rules,
    viewer: Option<UserId>,
    users: Vec<UserId>,
    since: Option<u64>,
) -> Result<Feed<'p, S, A, V, W::Changes>, Error> {
    admit(rules, 0, users.len())?;
    let mut met = HashSet::new();
    let users: Vec<UserId> = users.into_iter().filter(|user| met.insert(user.clone())).collect();
    let changes = watching.watch(users.clone()).await?;
    let (moment, glimpses) = read_settled(platform, rules, viewer.as_ref(), users).await?;
    let begun = moment.map_or(0, |moment| moment.now.0.saturating_mul(1000));
    let mut feed = Feed {
        platform,
        rules: *rules,
        viewer,
        changes,
        people: HashMap::with_capacity(glimpses.len()),
        resume: since.unwrap_or_default().max(begun),
        first: Vec::new(),
    };
    for glimpse in glimpses {
        let may_be_new = |since| moment.is_none_or(|moment| changed_after(&glimpse, since, &moment, rules));
        let tell = since.is_none_or(may_be_new);
        feed.meet(glimpse, tell);
    }
    Ok(feed)
}

/// Refuses a viewer who would watch more than the limit.
fn admit(rules: &Rules, watching: u32, more: usize) -> Result<(), Error> {
    let all = usize::try_from(watching).unwrap_or(usize::MAX).saturating_add(more);
    let limit = usize::try_from(rules.watch_limit).unwrap_or(usize::MAX);
    if all > limit { Err(Error::TooMany(rules.watch_limit)) } else { Ok(()) }
}

/// Reads people, and if the record of any of them is not what it should be, puts it right first: what was only derived
/// could be taken back by a late beat that nobody would hear of.
async fn read_settled(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: Vec<UserId>,
) -> Result<(Option<Moment>, Vec<Glimpse>), Error> {
    let asked = || users.iter().cloned().map(Ok).collect();
    let mut all = read(platform, rules, viewer, asked()).await?;
    let unsettled = all.glimpses.iter().filter_map(|glimpse| glimpse.as_ref().ok()).filter(|glimpse| !glimpse.settled);
    let unsettled: Vec<UserId> = unsettled.map(|glimpse| glimpse.user.clone()).collect();
    if !unsettled.is_empty() {
        settle_users(platform.0, rules, unsettled).await?;
        all = read(platform, rules, viewer, asked()).await?;
    }
    let whole = all.glimpses.into_iter().map(|glimpse| glimpse?.whole());
    Ok((all.moment, whole.collect::<Result<_, _>>()?))
}

/// Whether a viewer who knows everything up to `since` may not know this.
fn changed_after(glimpse: &Glimpse, since: u64, moment: &Moment, rules: &Rules) -> bool {
    let hides_when = !glimpse.verdict.last_seen && glimpse.published.state == State::Offline;
    if !glimpse.verdict.presence || hides_when {
        // Always, or its being told again would tell something that is hidden.
        return true;
    }
    // One decided before that place may have come out after it.
    let since = since.saturating_sub(visibility::SURELY_PUBLISHED.0.saturating_mul(1000));
    !glimpse.settled || visibility::may_be_since(&glimpse.published, since, moment.now, rules)
}

/// A viewer being fed.
pub struct Feed<'p, S, A, V, C> {
    platform: (&'p S, &'p A, &'p V),
    rules: Rules,
    viewer: Option<UserId>,
    changes: C,
    people: HashMap<UserId, Held>,
    /// Everything up to here was told, but for the overlap.
    resume: u64,
    first: Vec<Update>,
}

/// What a feed holds of one person: bounded by what is watched, however much happens.
struct Held {
    /// The newest version read or heard, shown or not.
    version: u64,
    /// The newest last seen, for changes that do not know it.
    last_seen: Option<Time>,
    /// What the viewer knows; none: hidden.
    told: Option<Published>,
}

impl<S: Sessions, A: Archive, V: RestrictionCheck, C: Changes> Feed<'_, S, A, V, C> {
    /// Tells what changed before, then every change, until the changes end or nobody listens any more.
    pub async fn run(mut self, audience: &mut impl Audience) -> Result<(), Error> {
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() && audience.tell(first).await.is_err() {
            return Ok(());
        }
        while audience.wants_more().await.is_ok() {
            let Some(change) = self.changes.next().await else { return self.changes.end().await };
            if let Some(update) = self.hear(change).await?
                && audience.tell(vec![update]).await.is_err()
            {
                break;
            }
        }
        Ok(())
    }

    /// Takes down how a person stands as the feed begins. Whom the viewer is not told of, the viewer knows.
    fn meet(&mut self, glimpse: Glimpse, tell: bool) {
        let view = glimpse.view();
        let told = view.as_ref().map(|view| view.published.clone());
        let held = Held { version: glimpse.version, last_seen: glimpse.published.last_seen, told };
        self.people.insert(glimpse.user.clone(), held);
        if tell {
            let presence = Presence { user: glimpse.user, view };
            self.first.push(Update { presence, version: self.resume });
        }
    }

    /// What the viewer is to be told of a change; none: nothing that would be new.
    async fn hear(&mut self, change: Change) -> Result<Option<Update>, Error> {
        let Change { user, published } = change;
        let Some(held) = self.people.get_mut(&user).filter(|held| held.version < published.version) else {
            return Ok(None);
        };
        let own = self.viewer.as_ref() == Some(&user);
        let verdicts = self.platform.2.check(self.viewer.clone(), [&user].into_iter().collect()).await?;
        let verdict = if own { Some(OWN) } else { verdicts.into_iter().next() };
        let published = visibility::remembered(published, held.last_seen);
        held.version = published.version;
        held.last_seen = published.last_seen;
        let masked = visibility::mask(published, verdict.ok_or_else(short_answer)?);
        if is_no_news(held.told.as_ref(), masked.as_ref()) {
            return Ok(None);
        }
        held.told = masked.clone();
        self.resume = self.resume.max(masked.as_ref().map_or(0, |published| published.version));
        let choice = if own { self.own_choice(&user).await? } else { None };
        let view = masked.map(|published| View { published, choice });
        Ok(Some(Update { presence: Presence { user, view }, version: self.resume }))
    }

    /// The viewer's own setting, which is never published.
    async fn own_choice(&self, user: &UserId) -> Result<Option<Choice>, Error> {
        let read = read(self.platform, &self.rules, Some(user), vec![Ok(user.clone())]).await?;
        let own = read.glimpses.into_iter().next().ok_or_else(short_answer)??;
        Ok(own.choice)
    }
}

/// Whether the viewer would learn nothing but that something happened, which may be just what is hidden.
fn is_no_news(told: Option<&Published>, now: Option<&Published>) -> bool {
    match (told, now) {
        (None, None) => true,
        (Some(told), Some(now)) => *told == Published { version: told.version, ..now.clone() },
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests;
