//! What is seen of a person, and by whom.

use crate::derive::derive;
use crate::{Choice, Moment, Published, Rules, Session, Span, State, Time};

/// What anybody could see of this person now, with the version of the record that it rests on.
///
/// The version of somebody offline is told for as long as a session of somebody who really left is kept, and is 0 from
/// then on. Otherwise it would tell the invisible, whose sessions stay, from those who are gone.
pub fn look(session: &Session, moment: &Moment, rules: &Rules) -> Published {
    let shown = derive(session, moment, rules);
    let version = session.published.as_ref().map_or(0, |published| published.version);
    let told_until = Time(version / 1000) + rules.evict_after;
    let version = if shown.state == State::Offline && told_until <= moment.now { 0 } else { version };
    shown.into_published(version)
}

/// The same, with the last seen that the archive knows, where the sessions know none. One who is here keeps the time
/// since when.
pub fn remembered(published: Published, archived: Option<Time>) -> Published {
    let last_seen = published.last_seen.or(archived);
    let since = if published.state == State::Offline { last_seen } else { published.since };
    Published { since, last_seen, ..published }
}

/// Within this after its version a change is surely published: a version is the time of a decision, which comes out a
/// little later, and no call lives for longer.
pub const SURELY_PUBLISHED: Span = Span::seconds(10);

/// Whether somebody who looks like this may have changed at this version or after it. Two people may have the same one, so
/// whoever heard of one of them need not have heard of the other.
pub fn may_be_since(published: &Published, version: u64, now: Time, rules: &Rules) -> bool {
    if published.state == State::Offline && published.version == 0 {
        // Its version is told for so long and no longer: whatever it was, it is at least as old as that.
        return Time(version / 1000) + rules.evict_after < now;
    }
    published.version >= version
}

/// What a viewer may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visibility {
    /// The state and the note.
    pub presence: bool,
    /// When the person was last here.
    pub last_seen: bool,
}

/// The visible part of a person. Where a viewer may know nothing there is no view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// What is visible.
    pub published: Published,
    /// The person's own setting, for the person's own eyes.
    pub choice: Option<Choice>,
}

/// What is left of a presence under a verdict; none: nothing at all.
pub fn mask(mut published: Published, verdict: Visibility) -> Option<Published> {
    if !verdict.presence {
        return None;
    }
    if !verdict.last_seen {
        published.last_seen = None;
        // An offline person's `since` is the last time seen, under another name, and the version is the same to the microsecond.
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
        assert_eq!(masked, Some(Published { last_seen: None, ..online }), "being online is not the last time seen");
        assert_eq!(mask(offline, Visibility { presence: false, last_seen: true }), None);
    }

    #[test]
    fn what_may_have_changed_since_is_never_left_out() {
        let rules = Rules::default();
        let (then, now) = (Time(1_000_000), Time(1_000_000) + rules.evict_after);
        let online = |version| Published { state: State::Online, note: None, since: None, last_seen: None, version };
        let since = |published: &Published| may_be_since(published, then.0 * 1000, now, &rules);
        assert!(since(&online(then.0 * 1000)), "the same version may be another person's");
        assert!(!since(&online(then.0 * 1000 - 1)));
        let gone = Published { state: State::Offline, ..online(0) };
        assert!(!since(&gone), "if it had changed since, its version would still be told");
        assert!(may_be_since(&gone, then.0 * 1000 - 1000, now, &rules));
    }

    #[test]
    fn the_version_of_somebody_offline_is_forgotten_with_their_session() {
        let rules = Rules::default();
        let gone = Published { state: State::Offline, note: None, since: None, last_seen: None, version: 10_000_000 };
        let session = Session { published: Some(gone), ..Session::default() };
        let version = |now| look(&session, &Moment::at(Time(now)), &rules).version;
        assert_eq!(version(10_000 + rules.evict_after.0 - 1), 10_000_000);
        assert_eq!(version(10_000 + rules.evict_after.0), 0);
    }
}
