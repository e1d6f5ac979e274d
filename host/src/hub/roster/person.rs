//! A watched person: what is newest about them, and who on this worker watches.

use std::rc::Rc;
use std::time::Instant;

use rollcall_core::{Published, State, UserId};
use slab::Slab;

use super::super::known::{Known, alike};

/// Where a watcher keeps what it was told of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Place {
    pub(super) watcher: usize,
    pub(super) index: usize,
}

/// A watched person.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) user: UserId,
    pub(super) newest: Option<Rc<Known>>,
    /// Rises with everything that the topic tells, so that an answer can be told from one that news overtook.
    pub(super) news: u64,
    /// Whether the topic is known to be listened to.
    pub(super) listened: bool,
    pub(super) watchers: Slab<Place>,
    /// Watchers on all workers of all hosts, as last counted.
    pub(super) everywhere: u64,
    /// Not to be told of before this: too many watch.
    pub(super) held_until: Option<Instant>,
    /// Changed while held.
    pub(super) is_held: bool,
}

impl Person {
    pub(super) fn new(user: UserId) -> Self {
        Self {
            user,
            newest: None,
            news: 0,
            listened: false,
            watchers: Slab::new(),
            everywhere: 0,
            held_until: None,
            is_held: false,
        }
    }

    /// Takes what the topic tells. False: it is not newer than what is known.
    pub(super) fn hear(&mut self, published: &Published) -> bool {
        self.news += 1;
        if self.newest.as_ref().is_some_and(|newest| newest.published.version >= published.version) {
            return false;
        }
        let mut published = published.clone();
        // A last seen of none about somebody offline means that the sessions do not know it: whoever holds one keeps it.
        if let Some(newest) = &self.newest
            && published.state == State::Offline
            && published.last_seen.is_none()
        {
            published.last_seen = newest.published.last_seen;
            published.since = published.since.or(published.last_seen);
        }
        self.newest = Some(Known::new(published));
        true
    }

    /// Takes what was read, asked for when so much had been heard. False: nothing changed by it.
    ///
    /// If the topic was silent since, what was read is the truth, whatever its version: it is derived at a later time, the
    /// version of somebody long offline is told as 0, and a store that failed over may have lost what it had published. If
    /// not, only a newer version counts.
    pub(super) fn learn(&mut self, published: Published, news: u64) -> bool {
        if let Some(newest) = &self.newest {
            let version = newest.published.version;
            let is_overtaken = news != self.news && published.version <= version;
            let is_known = alike(&newest.published, &published) && published.version <= version;
            if is_overtaken || is_known {
                return false;
            }
        }
        self.news += 1;
        self.newest = Some(Known::new(published));
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use rollcall_core::Time;

    fn published(state: State, version: u64) -> Published {
        Published { state, note: None, since: Some(Time(version)), last_seen: Some(Time(7)), version }
    }

    fn person() -> Person {
        Person::new(UserId::parse("bob").unwrap())
    }

    fn state(person: &Person) -> State {
        person.newest.as_ref().unwrap().published.state
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let mut person = person();
        assert!(person.hear(&published(State::Online, 5)));
        assert!(!person.hear(&published(State::Offline, 4)));
        assert!(!person.hear(&published(State::Offline, 5)));
        assert!(!person.learn(published(State::Offline, 4), person.news - 1), "news came since it was asked");
        assert_eq!(state(&person), State::Online);
    }

    #[test]
    fn what_the_store_lost_is_taken_back() {
        let mut person = person();
        person.hear(&published(State::Online, 5));
        person.hear(&published(State::Busy, 6));
        assert!(person.learn(published(State::Online, 5), person.news), "a replica that never had it was promoted");
        assert_eq!(state(&person), State::Online);
        assert!(person.hear(&published(State::Away, 7)));
    }

    #[test]
    fn what_was_read_at_the_same_version_is_newer_than_what_was_heard() {
        let mut person = person();
        person.hear(&published(State::Online, 5));
        let derived = Published { state: State::Away, ..published(State::Online, 5) };
        assert!(person.learn(derived.clone(), person.news));
        assert!(!person.learn(derived, person.news), "once is enough");
        assert_eq!(state(&person), State::Away);
    }

    #[test]
    fn somebody_long_gone_is_believed_only_if_the_topic_was_silent() {
        let mut person = person();
        person.hear(&published(State::Online, 5));
        let asked = person.news;
        person.hear(&published(State::Busy, 6));
        let gone = Published { since: Some(Time(7)), ..published(State::Offline, 0) };
        assert!(!person.learn(gone.clone(), asked));
        assert!(person.learn(gone, person.news));
        assert_eq!(state(&person), State::Offline);
        assert!(person.hear(&published(State::Online, 8)));
    }

    #[test]
    fn a_last_seen_that_the_sessions_forgot_is_kept() {
        let mut person = person();
        person.hear(&published(State::Online, 5));
        person.hear(&Published { since: None, last_seen: None, ..published(State::Offline, 6) });
        let newest = &person.newest.as_ref().unwrap().published;
        assert_eq!((newest.last_seen, newest.since), (Some(Time(7)), Some(Time(7))));
    }
}
