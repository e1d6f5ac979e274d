//! Subscriptions, for two kinds of host. [`open`] checks the limit and returns a snapshot; the host's own hub does the rest.
//! [`feed`] also streams the updates, over a host that streams changes.

use std::collections::{HashMap, HashSet};

use rollcall_core::{Choice, Error, Ids, Published, Rules, State, Time, UserId, visibility};

use crate::capabilities::{Archive, PresenceChange, PresenceChanges, RestrictionCheck, Sessions, Visibility, Watching};
use crate::heartbeat::Answers;
use crate::query::{Presence, Unmasked, View, read, read_repeated};
use crate::read::missing_items;
use crate::sweep::settle_users;

/// Users see themselves.
const OWN: Visibility = Visibility { presence: true, last_seen: true };

/// A user as a new subscription finds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialPresence {
    /// What is visible now; `None` if hidden.
    pub view: Option<View>,
    /// What the viewer may see from now on, until visibility is checked again.
    pub visibility: Visibility,
    /// Whether what is shown is what was last published. If not, it was derived just now, and a late beat may undo it
    /// without an event.
    pub settled: bool,
}

/// A change that the viewer may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// What is visible now.
    pub presence: Presence,
    /// The version to resume from after this.
    pub version: u64,
}

/// The reader of the feed closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// Receives the updates of a feed.
#[allow(async_fn_in_trait, reason = "functions are generic over capabilities and name no future's auto traits")]
pub trait UpdateSink {
    /// Waits until the reader can take more. Until then no change is taken from the host, which keeps only the newest change
    /// of each user.
    async fn ready(&mut self) -> Result<(), Closed>;
    /// Sends updates.
    async fn send(&mut self, updates: Vec<Update>) -> Result<(), Closed>;
}

/// Adds users to a subscription that has `watching` users: checks the limit and reads the snapshot, in the order asked. Hidden
/// users take the same code path as visible ones, that of a query. If the archive is unavailable, users that need it are
/// shown without a last seen and as not settled, so that the subscription still opens.
pub async fn open(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<UserId>,
    watching: u32,
    users: Ids<UserId>,
) -> Answers<InitialPresence> {
    admit(rules, watching, users.len())?;
    let entry = |unmasked: Unmasked| {
        let (visibility, settled) = (unmasked.visibility, unmasked.settled && unmasked.archive_error.is_none());
        Ok(InitialPresence { view: unmasked.into_view(), visibility, settled })
    };
    read_repeated(platform, rules, viewer.as_ref(), users, entry).await
}

/// Opens a feed: subscribes first and reads afterwards, so that no change is lost in between. An error answers the call;
/// afterwards [`Feed::run`] returns how the feed ended.
pub async fn feed<'p, S: Sessions, A: Archive, V: RestrictionCheck, W: Watching>(
    platform: (&'p S, &'p A, &'p V),
    watching: &W,
    rules: &Rules,
    viewer: Option<UserId>,
    users: Vec<UserId>,
    since: Option<u64>,
) -> Result<Feed<'p, S, A, V, W::Changes>, Error> {
    admit(rules, 0, users.len())?;
    let mut seen = HashSet::new();
    let users: Vec<UserId> = users.into_iter().filter(|user| seen.insert(user.clone())).collect();
    let changes = watching.watch(users.clone()).await?;
    let (now, unmasked) = read_settled(platform, rules, viewer.as_ref(), &users).await?;
    let mut feed = Feed {
        platform,
        rules: *rules,
        viewer,
        changes,
        watched: HashMap::with_capacity(users.len()),
        resume: since.unwrap_or_default().max(now.0.saturating_mul(1000)),
        first: Vec::new(),
    };
    for (user, unmasked) in users.into_iter().zip(unmasked) {
        let send = since.is_none_or(|since| may_have_changed_since(&unmasked, since, now, rules));
        feed.add(user, unmasked, send);
    }
    Ok(feed)
}

/// Refuses a subscription beyond the limit.
fn admit(rules: &Rules, watching: u32, more: usize) -> Result<(), Error> {
    let all = usize::try_from(watching).unwrap_or(usize::MAX).saturating_add(more);
    let limit = usize::try_from(rules.watch_limit).unwrap_or(usize::MAX);
    if all > limit { Err(Error::TooMany(rules.watch_limit)) } else { Ok(()) }
}

/// Reads users, and settles those whose record differs from the derived one. A derived state that is not published could be
/// undone by a late beat without any event.
async fn read_settled(
    platform: (&impl Sessions, &impl Archive, &impl RestrictionCheck),
    rules: &Rules,
    viewer: Option<&UserId>,
    users: &[UserId],
) -> Result<(Time, Vec<Unmasked>), Error> {
    let asked = users.iter().collect();
    let mut all = read(platform, rules, viewer, &asked).await?;
    let is_unsettled = |unmasked: &Result<Unmasked, Error>| unmasked.as_ref().is_ok_and(|unmasked| !unmasked.settled);
    let unsettled = users.iter().zip(&all.users).filter(|(_, unmasked)| is_unsettled(unmasked));
    let unsettled: Vec<UserId> = unsettled.map(|(user, _)| user.clone()).collect();
    if !unsettled.is_empty() {
        settle_users(platform.0, rules, unsettled).await?;
        all = read(platform, rules, viewer, &asked).await?;
    }
    let complete = all.users.into_iter().map(|unmasked| unmasked?.complete());
    Ok((all.now, complete.collect::<Result<_, _>>()?))
}

/// Whether a client that received everything up to `since` may not have this.
fn may_have_changed_since(unmasked: &Unmasked, since: u64, now: Time, rules: &Rules) -> bool {
    let hides_when = !unmasked.visibility.last_seen && unmasked.published.state == State::Offline;
    if !unmasked.visibility.presence || hides_when {
        // Always sent: whether it is sent again would reveal something hidden.
        return true;
    }
    // A record that was decided before `since` may have been published after it.
    let since = since.saturating_sub(visibility::MAX_PUBLISH_DELAY.0.saturating_mul(1000));
    !unmasked.settled || visibility::may_have_changed_since(&unmasked.published, since, now, rules)
}

/// An open feed of one viewer.
pub struct Feed<'p, S, A, V, C> {
    platform: (&'p S, &'p A, &'p V),
    rules: Rules,
    viewer: Option<UserId>,
    changes: C,
    watched: HashMap<UserId, WatchedUser>,
    /// The version to resume from: everything before it was sent, apart from the overlap.
    resume: u64,
    first: Vec<Update>,
}

/// What a feed keeps about one user: one record, however many changes come.
struct WatchedUser {
    /// The newest version read or received, shown or not.
    version: u64,
    /// The newest last seen, for changes that lack it.
    last_seen: Option<Time>,
    /// What the viewer was sent; `None` if hidden.
    sent: Option<Published>,
}

impl<S: Sessions, A: Archive, V: RestrictionCheck, C: PresenceChanges> Feed<'_, S, A, V, C> {
    /// Sends the snapshot, then every change, until the changes end or the reader closes the feed.
    pub async fn run(mut self, sink: &mut impl UpdateSink) -> Result<(), Error> {
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() && sink.send(first).await.is_err() {
            return Ok(());
        }
        while sink.ready().await.is_ok() {
            let Some(change) = self.changes.next().await else { return self.changes.end().await };
            if let Some(update) = self.update_for(change).await?
                && sink.send(vec![update]).await.is_err()
            {
                break;
            }
        }
        Ok(())
    }

    /// Adds a user as the feed opens. Without `send` the client has this record already.
    fn add(&mut self, user: UserId, unmasked: Unmasked, send: bool) {
        let (version, last_seen) = (unmasked.version, unmasked.published.last_seen);
        let view = unmasked.into_view();
        let sent = view.as_ref().map(|view| view.published.clone());
        self.watched.insert(user.clone(), WatchedUser { version, last_seen, sent });
        if send {
            let presence = Presence { user, view };
            self.first.push(Update { presence, version: self.resume });
        }
    }

    /// The update for a change; `None` if it shows the viewer nothing new.
    async fn update_for(&mut self, change: PresenceChange) -> Result<Option<Update>, Error> {
        let PresenceChange { user, published } = change;
        let Some(watched) = self.watched.get_mut(&user).filter(|watched| watched.version < published.version) else {
            return Ok(None);
        };
        let own = self.viewer.as_ref() == Some(&user);
        let checked = self.platform.2.check(self.viewer.clone(), [&user].into_iter().collect()).await?;
        let visibility = if own { Some(OWN) } else { checked.into_iter().next() };
        let published = visibility::with_archived(published, watched.last_seen);
        watched.version = published.version;
        watched.last_seen = published.last_seen;
        let masked = visibility::mask(published, visibility.ok_or_else(missing_items)?);
        if looks_the_same(watched.sent.as_ref(), masked.as_ref()) {
            return Ok(None);
        }
        watched.sent = masked.clone();
        self.resume = self.resume.max(masked.as_ref().map_or(0, |published| published.version));
        let choice = if own { self.own_choice(&user).await? } else { None };
        let view = masked.map(|published| View { published, choice });
        Ok(Some(Update { presence: Presence { user, view }, version: self.resume }))
    }

    /// The viewer's own choice, which is never published.
    async fn own_choice(&self, user: &UserId) -> Result<Option<Choice>, Error> {
        let read = read(self.platform, &self.rules, Some(user), &[user].into_iter().collect()).await?;
        let own = read.users.into_iter().next().ok_or_else(missing_items)??;
        Ok(own.choice)
    }
}

/// Whether only the version differs. Such an update would reveal that something hidden happened.
fn looks_the_same(sent: Option<&Published>, now: Option<&Published>) -> bool {
    match (sent, now) {
        (None, None) => true,
        (Some(sent), Some(now)) => *sent == Published { version: sent.version, ..now.clone() },
        (Some(_), None) | (None, Some(_)) => false,
    }
}

#[cfg(test)]
mod tests;
