//! A watched user: their newest record, and their watchers on this worker.

use std::rc::Rc;
use std::time::Instant;

use rollcall_core::{Published, State, UserId};
use slab::Slab;

use super::payload_cache::{CachedPayload, looks_same};

/// A watcher of a user or a conversation, and which of the watcher's targets it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatcherSlot {
    pub(super) watcher_id: usize,
    pub(super) index: usize,
}

/// A watched user.
#[derive(Debug)]
pub(super) struct WatchedUser {
    pub(super) user: UserId,
    pub(super) newest: Option<Rc<CachedPayload>>,
    /// How many messages were received. It shows whether one arrived while a read was under way.
    pub(super) received: u64,
    /// Whether this worker is subscribed to the topic.
    pub(super) subscribed: bool,
    pub(super) watchers: Slab<WatcherSlot>,
    /// Watchers on all workers of all hosts, as last counted.
    pub(super) total: u64,
    /// Not announced before this: the user has a crowd.
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

    /// Applies a published record. Returns false if it is not newer.
    pub(super) fn receive(&mut self, published: &Published) -> bool {
        self.received += 1;
        if self.newest.as_ref().is_some_and(|newest| newest.published.version >= published.version) {
            return false;
        }
        let mut published = published.clone();
        // No last seen on an offline record means that the session lacks it: the known one stays.
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

    /// Applies a read record; `received` is the count when the read began. Returns false if it changes nothing.
    ///
    /// If no message arrived since, the read wins whatever its version: it was derived later, the version of a long offline
    /// user reads as 0, and a store that failed over may have lost what it published. Otherwise only a newer version wins.
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
    fn older_record_never_replaces_newer() {
        let mut watched = watched();
        assert!(watched.receive(&published(State::Online, 5)));
        assert!(!watched.receive(&published(State::Offline, 4)));
        assert!(!watched.receive(&published(State::Offline, 5)));
        assert!(
            !watched.apply_read(published(State::Offline, 4), watched.received - 1),
            "a message arrived since the read began"
        );
        assert_eq!(state(&watched), State::Online);
    }

    #[test]
    fn record_lost_by_failover_is_withdrawn() {
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
    fn read_wins_over_message_of_same_version() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        let derived = Published { state: State::Away, ..published(State::Online, 5) };
        assert!(watched.apply_read(derived.clone(), watched.received));
        assert!(!watched.apply_read(derived, watched.received), "once is enough");
        assert_eq!(state(&watched), State::Away);
    }

    #[test]
    fn version_zero_wins_only_without_messages() {
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
    fn last_seen_missing_from_session_is_kept() {
        let mut watched = watched();
        watched.receive(&published(State::Online, 5));
        watched.receive(&Published { since: None, last_seen: None, ..published(State::Offline, 6) });
        let newest = &watched.newest.as_ref().unwrap().published;
        assert_eq!((newest.last_seen, newest.since), (Some(Time(7)), Some(Time(7))));
    }
}
