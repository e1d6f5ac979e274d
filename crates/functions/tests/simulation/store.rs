//! The reference store: one map and one clock. Where the contract leaves a choice, it takes the strictest one that real
//! stores must meet; each variant of `Broken` drops one of these guarantees.
//!
//! - Revisions come from one counter and never repeat, not even after an eviction.
//! - A touch makes its session due no later than it takes effect, so that a sweep finds a touch that was recorded and
//!   never published, whatever the session waited for, and a reader does not use the record.
//! - A logout ends the device even during an outage grace. Its last beat is kept, because it may not be published
//!   yet.
//! - An outage grace that begins while another is in force extends it.

use std::collections::HashMap;

use rollcall_core::heartbeat::PriorState;
use rollcall_core::{Device, Moment, Next, OutageGrace, Record, Revision, Session, Stance, State, Time, UserId};
use rollcall_functions::capabilities::{Commit, Committed, DeviceEvent, Eviction, LastSeenEntry, Shards, Touch};

use crate::checker::Checker;

/// How many shards the users are spread over.
pub(crate) const SHARDS: u32 = 8;

/// A defect of the store, to prove that the checks detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The compare-and-swap compares only the commit counter: a heartbeat does not make the sweep's commit stale.
    CommitIgnoresTouches,
    /// Every record is published twice.
    PublishesTwice,
    /// A beat leaves the deadline unchanged, even if there is none.
    BeatSetsNoDeadline,
    /// A logout deletes the device with its last beat.
    LogoutLosesBeat,
    /// The deadline of a commit is not stored.
    LosesDeadlines,
    /// An older last seen entry replaces a newer one.
    ArchiveMovesBackwards,
}

/// The store, its clock and its archive.
pub(crate) struct Store {
    pub(crate) now: Time,
    sessions: Vec<Option<Session>>,
    /// The revisions of evicted sessions, each one unused before.
    evicted: HashMap<UserId, Revision>,
    archive: HashMap<UserId, Time>,
    outage_grace: Option<OutageGrace>,
    last_revision: u64,
    broken: Option<Broken>,
    pub(crate) checker: Checker,
    /// Users that the last step may have changed.
    pub(crate) dirty: Vec<usize>,
}

/// The id of the user with this index.
pub(crate) fn user_id(user: usize) -> UserId {
    UserId::parse(format!("u{user}")).unwrap()
}

/// The index of the user with this id.
pub(crate) fn index(user: &UserId) -> usize {
    user.as_str()[1..].parse().unwrap()
}

impl Store {
    pub(crate) fn new(now: Time, broken: Option<Broken>, checker: Checker) -> Self {
        let sessions = vec![None; checker.watched.len()];
        Self {
            now,
            sessions,
            evicted: HashMap::new(),
            archive: HashMap::new(),
            outage_grace: None,
            last_revision: 0,
            broken,
            checker,
            dirty: Vec::new(),
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { now: self.now, outage_grace: self.outage_grace.filter(|outage_grace| outage_grace.until > self.now) }
    }

    /// The store answers again after an outage that began at `began`.
    pub(crate) fn outage_grace(&mut self, began: Time) {
        let running = self.outage_grace.filter(|outage_grace| outage_grace.until > began);
        let until = self.now + self.checker.rules.alive_for();
        let outage_grace = OutageGrace { since: running.map_or(began, |running| running.since), until };
        self.outage_grace = Some(outage_grace);
        self.checker.grant_outage_grace(outage_grace, began);
    }

    pub(crate) fn touch(&mut self, touch: &Touch) -> PriorState {
        let user = index(&touch.user);
        let prior = self.sessions[user].as_ref().map_or_else(no_prior_state, prior_state);
        let is_beat = matches!(touch.event, DeviceEvent::Beat { .. });
        let has_device = |session: &Session| session.devices.iter().any(|d| d.id == touch.device);
        let is_known = self.sessions[user].as_ref().is_some_and(has_device);
        if !is_beat && !is_known {
            return prior;
        }
        let revision = self.fresh_revision();
        let (now, outage_grace, broken) = (self.now, self.moment().outage_grace, self.broken);
        let session = self.sessions[user].get_or_insert_default();
        session.revision.touches = revision;
        let before = session.devices.iter().position(|d| d.id == touch.device);
        let before = before.map(|position| session.devices.swap_remove(position));
        if self.checker.oracle(user).is_used_and_expired(now, &touch.device) {
            // `heartbeat::needs_settling` leaves this one change to the deadline.
            self.checker.tolerate(now, user);
        }
        let oracle = self.checker.oracle(user);
        match (touch.event, before) {
            (DeviceEvent::Beat { kind, active, alive_for }, before) => {
                let active_at = if active { Some(now) } else { before.and_then(|device| device.active_at) };
                let id = touch.device.clone();
                session.devices.push(Device { id, kind, beat_at: now, active_at, expires_at: now + alive_for });
                if broken != Some(Broken::BeatSetsNoDeadline) {
                    session.next = due_by(session.next, now + alive_for);
                }
                oracle.beat(now, &touch.device, active, alive_for);
            }
            (DeviceEvent::Dropped(grace), Some(device)) => {
                let expires_at = device.expires_at.min(now + grace);
                session.devices.push(Device { expires_at, ..device });
                session.next = due_by(session.next, now + grace);
                oracle.dropped(now, &touch.device, grace, outage_grace);
            }
            (DeviceEvent::Logout, Some(device)) => {
                if broken != Some(Broken::LogoutLosesBeat) {
                    session.devices.push(Device { expires_at: Time(0), active_at: None, ..device });
                }
                session.next = due_by(session.next, now);
                oracle.logout(&touch.device);
            }
            (DeviceEvent::Dropped(_) | DeviceEvent::Logout, None) => {}
        }
        self.dirty.push(user);
        prior
    }

    pub(crate) fn read(&self, user: &str) -> Record {
        Record::of(&self.load(&UserId::parse(user).unwrap()), self.now)
    }

    pub(crate) fn load(&self, user: &UserId) -> Session {
        let absent = || Session { revision: self.evicted.get(user).copied().unwrap_or_default(), ..Session::default() };
        self.sessions[index(user)].clone().unwrap_or_else(absent)
    }

    /// Applies a commit decided on what was loaded at `decided`.
    pub(crate) fn commit(&mut self, commit: Commit, decided: Time) -> Committed {
        let Commit { user: id, expected, decision } = commit;
        let current = self.load(&id).revision;
        let equal = match self.broken {
            Some(Broken::CommitIgnoresTouches) => current.commits == expected.commits,
            _ => current == expected,
        };
        if !equal {
            return Committed::Stale;
        }
        let user = index(&id);
        let commits = self.fresh_revision();
        let session = self.sessions[user].get_or_insert_default();
        session.revision.commits = commits;
        if self.broken != Some(Broken::LosesDeadlines) {
            session.next = decision.next;
        }
        if let Some(choice) = decision.choice {
            session.choice = Some(choice.clone());
            self.checker.chosen(decided, user, choice);
        }
        if let Some(published) = decision.publish {
            self.checker.published(self.now, decided, user, &published);
            if self.broken == Some(Broken::PublishesTwice) {
                self.checker.published(self.now, decided, user, &published);
            }
            session.published = Some(published);
        }
        if decision.prune_expired_by > Time(0) {
            let (pruned, kept) =
                session.devices.drain(..).partition(|device| device.expires_at <= decision.prune_expired_by);
            session.devices = kept;
            let pruned: Vec<Device> = pruned;
            for device in pruned {
                self.checker.pruned(self.now, user, &device.id);
            }
        }
        self.dirty.push(user);
        Committed::Applied
    }

    pub(crate) fn due(&self, shards: Shards, limit: u32) -> Vec<UserId> {
        self.passed(shards, limit, |next| match next {
            Next::Settle(at) => Some(at),
            Next::Evict(_) | Next::Nothing => None,
        })
    }

    pub(crate) fn evictable(&self, shards: Shards, limit: u32) -> Vec<UserId> {
        self.passed(shards, limit, |next| match next {
            Next::Evict(at) => Some(at),
            Next::Settle(_) | Next::Nothing => None,
        })
    }

    pub(crate) fn evict(&mut self, eviction: &Eviction, decided: Time) -> Committed {
        if self.load(&eviction.user).revision != eviction.expected {
            return Committed::Stale;
        }
        let user = index(&eviction.user);
        if self.sessions[user].take().is_some() {
            let revision = self.fresh_revision();
            self.evicted.insert(eviction.user.clone(), Revision { commits: revision, touches: revision });
            self.checker.evicted(self.now, decided, user, self.archive.get(&eviction.user).copied());
        }
        self.dirty.push(user);
        Committed::Applied
    }

    pub(crate) fn archive(&mut self, entries: Vec<LastSeenEntry>) {
        for entry in entries {
            let kept = self.archive.entry(entry.user).or_default();
            let newer = entry.last_seen.max(*kept);
            let moves_backwards = self.broken == Some(Broken::ArchiveMovesBackwards);
            *kept = if moves_backwards { Time(newer.0.saturating_sub(1)) } else { newer };
        }
    }

    pub(crate) fn archived(&self, user: &UserId) -> Option<Time> {
        self.archive.get(user).copied()
    }

    /// Leaked sessions: nothing in them matters, and no deadline is near.
    pub(crate) fn leaked(&self) -> Vec<(usize, &Session)> {
        let matters = |s: &Session| s.choice.as_ref().is_some_and(|choice| choice.matters_at(self.now));
        let soon = self.now.0.saturating_sub(10_000)..=self.now.0 + 10_000;
        let has_near_deadline = |next: Next| match next {
            Next::Settle(at) | Next::Evict(at) => soon.contains(&at.0),
            Next::Nothing => false,
        };
        self.kept().filter(|(_, s)| !matters(s) && !has_near_deadline(s.next)).collect()
    }

    fn passed(&self, shards: Shards, limit: u32, instant: impl Fn(Next) -> Option<Time>) -> Vec<UserId> {
        let mut passed: Vec<(Time, usize)> = self
            .kept()
            .filter_map(|(user, session)| instant(session.next).map(|at| (at, user)))
            .filter(|(at, user)| *at <= self.now && (shards.first..shards.end).contains(&(*user as u32 % SHARDS)))
            .collect();
        passed.sort_unstable();
        passed.into_iter().take(limit as usize).map(|(_, user)| user_id(user)).collect()
    }

    fn kept(&self) -> impl Iterator<Item = (usize, &Session)> {
        self.sessions.iter().enumerate().filter_map(|(user, session)| Some((user, session.as_ref()?)))
    }

    fn fresh_revision(&mut self) -> u64 {
        self.last_revision += 1;
        self.last_revision
    }
}

/// The next deadline, no later than `end`.
fn due_by(next: Next, end: Time) -> Next {
    match next {
        Next::Settle(at) | Next::Evict(at) => Next::Settle(at.min(end)),
        Next::Nothing => Next::Settle(end),
    }
}

fn no_prior_state() -> PriorState {
    PriorState { state: State::Offline, version: 0, stance: Stance::Auto, stance_until: None }
}

fn prior_state(session: &Session) -> PriorState {
    let nothing = no_prior_state();
    let (state, version) =
        session.published.as_ref().map_or((nothing.state, nothing.version), |p| (p.state, p.version));
    let (stance, stance_until) =
        session.choice.as_ref().map_or((nothing.stance, nothing.stance_until), |choice| (choice.stance, choice.until));
    PriorState { state, version, stance, stance_until }
}
