//! What a viewer is shown of a user.

use crate::derive::derive;
use crate::{Choice, Moment, Published, Rules, Session, Span, State, Time};

/// The record as derived now, with the version of the published one unless it is withheld.
pub fn derive_published(session: &Session, moment: &Moment, rules: &Rules) -> Published {
    let version = session.published.as_ref().map_or(0, |published| published.version);
    let derived = derive(session, moment, rules).into_published(version);
    withhold_version(derived, moment.now, rules)
}

/// The same as readers are shown it. While a user stays online, the last seen is the one of the record, as long as that holds
/// and after it: otherwise it would jump forward at each deadline, and back when the session is settled.
pub fn derive_shown(session: &Session, moment: &Moment, rules: &Rules) -> Published {
    let derived = derive_published(session, moment, rules);
    match &session.published {
        Some(before) if before.state != State::Offline && derived.state != State::Offline => {
            Published { last_seen: before.last_seen, ..derived }
        }
        _ => derived,
    }
}

/// Withholds the version of a user who has been offline for long.
///
/// An offline user's version is shown for as long as the session of a user who left is kept, and is 0 afterwards.
/// Otherwise the version would distinguish invisible users, whose sessions stay, from users who are gone.
pub fn withhold_version(published: Published, now: Time, rules: &Rules) -> Published {
    let shown_until = Time(published.version / 1000) + rules.evict_after;
    let is_shown = published.state != State::Offline || shown_until > now;
    Published { version: if is_shown { published.version } else { 0 }, ..published }
}

/// Adds the archived last seen where the session has none. A user who is not offline keeps their `since`.
pub fn with_archived(published: Published, archived: Option<Time>) -> Published {
    let last_seen = published.last_seen.or(archived);
    let since = if published.state == State::Offline { last_seen } else { published.since };
    Published { since, last_seen, ..published }
}

/// A change is published within this span after its version: a version is the time of the decision, and no call takes
/// longer than this to commit it.
pub const MAX_PUBLISH_DELAY: Span = Span::seconds(10);

/// Whether this record may have changed at or after a version. Equal counts: two users may share a version, and a client
/// that received one of them need not have received the other.
pub fn may_have_changed_since(published: &Published, version: u64, now: Time, rules: &Rules) -> bool {
    if published.state == State::Offline && published.version == 0 {
        // Its version was withheld because it is at least `evict_after` old.
        return Time(version / 1000) + rules.evict_after < now;
    }
    published.version >= version
}

/// What a viewer may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    /// The state and the note.
    pub presence: bool,
    /// The last seen time.
    pub last_seen: bool,
}

/// What a viewer is shown of a user. A hidden user has no view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What is visible.
    pub published: Published,
    /// The user's own choice, shown only to that user.
    pub choice: Option<Choice>,
}

/// Removes what a viewer may not see; `None` if that is everything.
pub fn mask(mut published: Published, visibility: Visibility) -> Option<Published> {
    if !visibility.presence {
        return None;
    }
    if !visibility.last_seen {
        published.last_seen = None;
        // An offline user's `since` is the last seen time, and the version is the same time in microseconds.
        if published.state == State::Offline {
            published.since = None;
            published.version = 0;
        }
    }
    Some(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_last_seen_does_not_show_as_since() {
        let at = Some(Time(5));
        let offline = Published { state: State::Offline, note: None, since: at, last_seen: at, version: 7 };
        let masked = mask(offline.clone(), Visibility { presence: true, last_seen: false });
        assert_eq!(masked, Some(Published { since: None, last_seen: None, version: 0, ..offline.clone() }));
        let online = Published { state: State::Online, ..offline.clone() };
        let masked = mask(online.clone(), Visibility { presence: true, last_seen: false });
        assert_eq!(masked, Some(Published { last_seen: None, ..online }), "the start of online is not the last seen");
        assert_eq!(mask(offline, Visibility { presence: false, last_seen: true }), None);
    }

    #[test]
    fn possible_changes_since_version_are_included() {
        let rules = Rules::default();
        let (then, now) = (Time(1_000_000), Time(1_000_000) + rules.evict_after);
        let online = |version| Published { state: State::Online, note: None, since: None, last_seen: None, version };
        let since = |published: &Published| may_have_changed_since(published, then.0 * 1000, now, &rules);
        assert!(since(&online(then.0 * 1000)), "another user may have the same version");
        assert!(!since(&online(then.0 * 1000 - 1)));
        let gone = Published { state: State::Offline, ..online(0) };
        assert!(!since(&gone), "had it changed since, its version would still be shown");
        assert!(may_have_changed_since(&gone, then.0 * 1000 - 1000, now, &rules));
    }

    #[test]
    fn offline_version_is_hidden_after_eviction_time() {
        let rules = Rules::default();
        let gone = Published { version: 10_000_000, ..Published::NOTHING };
        let version = |now| withhold_version(gone.clone(), Time(now), &rules).version;
        assert_eq!(version(10_000 + rules.evict_after.0 - 1), 10_000_000);
        assert_eq!(version(10_000 + rules.evict_after.0), 0);
    }
}
