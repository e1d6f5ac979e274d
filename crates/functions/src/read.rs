//! Reads users: published records where they hold, and otherwise sessions, from which the state is derived.

use std::collections::HashMap;

use rollcall_core::derive::derive;
use rollcall_core::{Choice, Error, Ids, Published, Rules, Session, Stance, Time, UserId, visibility};

use crate::capabilities::Sessions;

/// What is known about one user at the time of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownUser {
    /// What a viewer without limits would see, without what only the archive has.
    pub(crate) published: Published,
    /// The version of the record, also where `published` withholds it.
    pub(crate) version: u64,
    /// Whether `published` is what was last published.
    pub(crate) settled: bool,
    /// Whether the user is invisible.
    pub(crate) invisible: bool,
    /// The user's own choice; only if it was asked for.
    pub(crate) choice: Option<Choice>,
}

/// The users of a read at one instant, in the order asked.
pub(crate) struct KnownUsers {
    /// The store's time.
    pub(crate) now: Time,
    pub(crate) users: Vec<Result<KnownUser, Error>>,
}

/// Reads users. The session is loaded only if the record does not hold, and for `own`, whose choice is not in the record.
pub(crate) async fn read_users(
    sessions: &impl Sessions,
    rules: &Rules,
    users: &Ids<UserId>,
    own: Option<&UserId>,
) -> Result<KnownUsers, Error> {
    let records = sessions.read_many(users.clone()).await?;
    let now = records.now;
    let (mut known, mut unsettled) = (Vec::with_capacity(users.len()), Vec::new());
    for (index, (user, record)) in users.iter().zip(records.records).enumerate() {
        known.push(record.map(|record| {
            if !record.holds(now) || own.is_some_and(|own| own.as_str() == user) {
                unsettled.push((index, user));
            }
            let version = record.published.version;
            let published = visibility::withhold_version(record.published, now, rules);
            KnownUser { published, version, settled: true, invisible: record.invisible, choice: None }
        }));
    }
    if known.len() != users.len() {
        return Err(missing_items());
    }
    if !unsettled.is_empty() {
        let names = unsettled.iter().map(|(_, user)| UserId::parse(*user).map_err(Error::from));
        let loaded = sessions.load_many(names.collect::<Result<_, _>>()?).await?;
        let derive_user = |session: &Session| {
            let derived = derive(session, &loaded.moment, rules);
            let stance = session.choice.as_ref().map_or(Stance::Auto, |choice| choice.stance_at(loaded.moment.now));
            KnownUser {
                published: visibility::derive_shown(session, &loaded.moment, rules),
                version: session.published.as_ref().map_or(0, |published| published.version),
                settled: !derived.differs_from(session.published.as_ref()),
                invisible: stance == Stance::Invisible,
                choice: session.choice.clone().filter(|choice| choice.matters_at(loaded.moment.now)),
            }
        };
        let mut sessions = loaded.sessions.iter();
        for (index, _) in unsettled {
            let session = sessions.next().ok_or_else(missing_items)?;
            if let Some(known) = known.get_mut(index) {
                *known = session.as_ref().map(derive_user).map_err(Clone::clone);
            }
        }
    }
    Ok(KnownUsers { now, users: known })
}

/// The users, each once, and for each user asked about the index among them; `None` if no user was asked about twice.
pub(crate) fn distinct(asked: Ids<UserId>) -> (Ids<UserId>, Option<Vec<usize>>) {
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(asked.len());
    let mut indexes = Vec::with_capacity(asked.len());
    for user in asked.iter() {
        let next = first.len();
        indexes.push(*first.entry(user).or_insert(next));
    }
    if first.len() == asked.len() {
        return (asked, None);
    }
    let mut next = 0;
    let users = asked.filtered(|index, _| {
        let is_first = indexes.get(index) == Some(&next);
        next += usize::from(is_first);
        is_first
    });
    (users, Some(indexes))
}

pub(crate) fn missing_items() -> Error {
    Error::Other("a capability returned fewer items than requested".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn repeated_users_are_read_once() {
        let ids = |names: &[&str]| {
            let users: Vec<UserId> = names.iter().map(|name| UserId::parse(*name).unwrap()).collect();
            users.iter().collect::<Ids<UserId>>()
        };
        assert_eq!(distinct(ids(&["bob", "eve"])), (ids(&["bob", "eve"]), None));
        assert_eq!(distinct(ids(&[])), (ids(&[]), None));
        let (users, indexes) = distinct(ids(&["bob", "eve", "bob", "zoe", "zoe", "eve"]));
        assert_eq!(users, ids(&["bob", "eve", "zoe"]));
        assert_eq!(indexes, Some(vec![0, 1, 0, 2, 2, 1]));
    }
}
