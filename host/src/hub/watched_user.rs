//! A watched watched: what is newest about them, and who on this worker watches.

use std::rc::Rc;
use std::time::Instant;

use rollcall_core::{Published, State, UserId};
use slab::Slab;

use super::payload_cache::{CachedPayload, looks_same};

/// Where a watcher keeps what it was told of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatcherSlot {
    pub(super) watcher_id: usize,
    pub(super) index: usize,
}

/// A watched watched.
#[derive(Debug)]
pub(super) struct WatchedUser {
    pub(super) user: UserId,
    pub(super) newest: Option<Rc<CachedPayload>>,
    /// Rises with everything that the topic tells, so that an answer can be told from one that news overtook.
    pub(super) received: u64,
    /// Whether the topic is known to be listened to.
    pub(super) subscribed: bool,
    pub(super) watchers: Slab<WatcherSlot>,
    /// Watchers on all workers of all hosts, as last counted.
    pub(super) total: u64,
    /// Not to be told of before this: too many watch.
    pub(super) held_until: Option<Instant>,
    /// Changed while held.
    pub(super) is_held: bool,
}

impl WatchedUser {
    pub(super) fn new(user: UserId) -> Self {
        Self {
            user,
            newest: None,
            received: 0,
            subscribed: false,
            watchers: Slab::new(),
            total: 0,
            held_until: None,
            is_held: false,
        }
    }

    /// Takes what the topic tells. False: it is not newer than what is known.
    pub(super) fn receive(&mut self, published: &Published) -> bool {
        self.received += 1;
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
        self.newest = Some(CachedPayload::new(published));
        true
    }

    /// Takes what was read, asked for when so much had been heard. False: nothing changed by it.
    ///
    /// If the topic was silent since, what was read is the truth, whatever its version: it is derived at a later time, the
    /// version of somebody long offline is told as 0, and a store that failed over may have lost what it had published. If
    /// not, only a newer version counts.
    pub(super) fn apply_read(&mut self, published: Published, received: u64) -> bool {
        if let Some(newest) = &self.newest {
            let version = newest.published.version;
            let is_overtaken = received != self.received && published.version <= version;
            let is_known = looks_same(&newest.published, &published) && published.version <= version;
            if is_overtaken || is_known {
                return false;
            }
        }
        self.received += 1;
        self.newest = Some(CachedPayload::new(published));
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

    fn watched() -> WatchedUser {
        WatchedUser::new(UserId::parse("bob").unwrap())
    }

    fn state(watched: &WatchedUser) -> State {
        watched.newest.as_ref().unwrap().published.state
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let mut watched = watched();
        assert!(watched.receive(&published(State::Online, 5)));
        assert!(!watched.receive(&published(State::Offline, 4)));
        assert!(!watched.receive(&published(State::Offline, 5)));
        assert!(
            !watched.apply_read(published(State::Offline, 4), watched.received - 1),
            "received came since it was asked"
        );
        assert_eq!(state(&watched), State::Online);
    }

    #[test]
    fn what_the_store_lost_is_taken_back() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        watched.receive(&published(State::Busy, 6));
        assert!(
            watched.apply_read(published(State::Online, 5), watched.received),
            "a replica that never had it was promoted"
        );
        assert_eq!(state(&watched), State::Online);
        assert!(watched.receive(&published(State::Away, 7)));
    }

    #[test]
    fn what_was_read_at_the_same_version_is_newer_than_what_was_heard() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        let derived = Published { state: State::Away, ..published(State::Online, 5) };
        assert!(watched.apply_read(derived.clone(), watched.received));
        assert!(!watched.apply_read(derived, watched.received), "once is enough");
        assert_eq!(state(&watched), State::Away);
    }

    #[test]
    fn somebody_long_gone_is_believed_only_if_the_topic_was_silent() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        let asked = watched.received;
        watched.receive(&published(State::Busy, 6));
        let gone = Published { since: Some(Time(7)), ..published(State::Offline, 0) };
        assert!(!watched.apply_read(gone.clone(), asked));
        assert!(watched.apply_read(gone, watched.received));
        assert_eq!(state(&watched), State::Offline);
        assert!(watched.receive(&published(State::Online, 8)));
    }

    #[test]
    fn a_last_seen_that_the_sessions_forgot_is_kept() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        watched.receive(&Published { since: None, last_seen: None, ..published(State::Offline, 6) });
        let newest = &watched.newest.as_ref().unwrap().published;
        assert_eq!((newest.last_seen, newest.since), (Some(Time(7)), Some(Time(7))));
    }
}
