//! The capabilities that `heartbeat` and `query` import, in memory, by the rules of `wit/sessions.wit`.
//!
//! Left out: what only `offline-sweep` calls, and the bounds of batches, which the functions check too.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::{Accessor, HasSelf};

use crate::functions::query::rollcall::presence::{
    archive, policy_types, restriction_check, session_types, sessions, settings, types,
};
use policy_types::{Ruling, Verdict};
use session_types::{
    Commit, Committed, Condition, DeadlineState, Device, DeviceEvent, Eviction, Loaded, Next, PriorState, Records,
    Revision, Session, StanceEnd, Touched, Touches,
};
use types::{Choice, Error, Ids, Invalid, LastSeenEntry, PublishedNote, PublishedState, Rules, Stance, State};

/// Everything stored.
#[derive(Default)]
pub(crate) struct Memory {
    sessions: HashMap<String, Session>,
    archive: HashMap<String, u64>,
    /// The newest time returned. The store's clock never goes back.
    now: u64,
    /// Counts writes. Each one gives its session a new revision, so that none is reused.
    writes: u64,
}

impl Memory {
    fn now(&mut self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.now = self.now.max(wall);
        self.now
    }

    fn load(&self, user: &str) -> Session {
        self.sessions.get(user).cloned().unwrap_or_else(empty_session)
    }

    /// What readers need of users: their records, and whether a deadline has passed since.
    fn read(&mut self, users: &Ids) -> Result<Records, Error> {
        let now = self.now();
        let mut records = Records { now, states: vec![], conditions: vec![], notes: vec![], failures: vec![] };
        for (index, user) in (0..).zip(unpacked(users)?) {
            let Session { published, choice, next, .. } = self.load(user);
            let deadline = match next {
                Next::Settle(at) if at <= now => DeadlineState::Passed,
                Next::Settle(_) => DeadlineState::Ahead,
                Next::Evict(_) | Next::Nothing => DeadlineState::None,
            };
            let hides = |choice: Choice| choice.stance == Stance::Invisible && choice.until.is_none_or(|at| at > now);
            records.conditions.push(Condition { deadline, invisible: choice.is_some_and(hides) });
            let (state, since, last_seen, version) = published
                .as_ref()
                .map_or((State::Offline, None, None, 0), |last| (last.state, last.since, last.last_seen, last.version));
            records.states.push(PublishedState { state, since, last_seen, version });
            let note = published.and_then(|published| published.note);
            records.notes.extend(note.map(|note| PublishedNote { index, note }));
        }
        Ok(records)
    }

    /// A user's session, for a change, with its new revision.
    fn write(&mut self, user: &str) -> &mut Session {
        self.writes += 1;
        let session = self.sessions.entry(user.to_owned()).or_insert_with(empty_session);
        session.revision = Revision { commits: self.writes, touches: self.writes };
        session
    }

    /// Records device events. Returns the state just before each.
    fn touch(&mut self, touches: Touches) -> Result<Touched, Error> {
        let (users, devices) = (unpacked(&touches.users)?, unpacked(&touches.devices)?);
        if users.len() != touches.events.len() || devices.len() != touches.events.len() {
            return Err(invalid("touches", "has columns of different lengths"));
        }
        let now = self.now();
        let mut touched = Touched { now, versions: vec![], states: vec![], stance_ends: vec![], failures: vec![] };
        for ((index, event), (user, device)) in (0..).zip(touches.events).zip(users.into_iter().zip(devices)) {
            let session = self.write(user);
            let (state, version) = session.published.as_ref().map_or((State::Offline, 0), |it| (it.state, it.version));
            let (stance, until) = session.choice.as_ref().map_or((Stance::Auto, None), |it| (it.stance, it.until));
            touched.states.push(PriorState { state, stance });
            touched.versions.push(version);
            touched.stance_ends.extend(until.map(|at| StanceEnd { index, at }));
            record(session, device, event, now);
        }
        Ok(touched)
    }

    /// Compare-and-swap: nothing changes if the session changed since it was loaded.
    fn commit(&mut self, commit: Commit) -> Committed {
        if self.load(&commit.user).revision != commit.expected {
            return Committed::Stale;
        }
        let session = self.write(&commit.user);
        if let Some(published) = commit.publish {
            // There are no topics here: the change is printed instead.
            println!("published: {} is {}", commit.user, word(published.state));
            session.published = Some(published);
        }
        session.choice = commit.choice.or(session.choice.take());
        session.devices.retain(|device| commit.prune_expired_by == 0 || device.expires_at > commit.prune_expired_by);
        session.next = commit.next;
        Committed::Applied
    }
}

/// Records an event of a device. The session is due no later than the event takes effect.
fn record(session: &mut Session, id: &str, event: DeviceEvent, now: u64) {
    let index = session.devices.iter().position(|device| device.id == id);
    let known = index.map(|index| session.devices.swap_remove(index));
    let (device, due) = match (event, known) {
        (DeviceEvent::Beat(beat), known) => {
            let expires_at = now + u64::from(beat.alive_for_ms);
            let active_at = if beat.active { Some(now) } else { known.and_then(|known| known.active_at) };
            (Device { id: id.to_owned(), kind: beat.kind, beat_at: now, active_at, expires_at }, expires_at)
        }
        (DeviceEvent::Dropped(grace_ms), Some(known)) => {
            let expires_at = known.expires_at.min(now + u64::from(grace_ms));
            (Device { expires_at, ..known }, expires_at)
        }
        // Dead at once; its last beat stays until a commit prunes it.
        (DeviceEvent::Logout, Some(known)) => (Device { expires_at: 0, active_at: None, ..known }, now),
        (DeviceEvent::Dropped(_) | DeviceEvent::Logout, None) => return,
    };
    session.devices.push(device);
    // At most 64 devices: those with the oldest beats are dropped.
    session.devices.sort_by_key(|device| Reverse(device.beat_at));
    session.devices.truncate(64);
    session.next = match session.next {
        Next::Settle(at) | Next::Evict(at) => Next::Settle(at.min(due)),
        Next::Nothing => Next::Settle(due),
    };
}

/// A state as it is printed.
pub(crate) fn word(state: State) -> &'static str {
    match state {
        State::Online => "online",
        State::Away => "away",
        State::Busy => "busy",
        State::Offline => "offline",
    }
}

fn empty_session() -> Session {
    let revision = Revision { commits: 0, touches: 0 };
    Session { devices: vec![], choice: None, published: None, next: Next::Nothing, revision }
}

/// The ids concatenated in one string.
fn unpacked(ids: &Ids) -> Result<Vec<&str>, Error> {
    let (mut rest, mut cut) = (ids.text.as_str(), Vec::new());
    for length in &ids.lengths {
        let parts = rest.split_at_checked(usize::from(*length));
        let (id, more) = parts.ok_or_else(|| invalid("lengths", "do not cut the text into whole ids"))?;
        cut.push(id);
        rest = more;
    }
    if rest.is_empty() { Ok(cut) } else { Err(invalid("lengths", "do not cut the text into whole ids")) }
}

fn invalid(field: &str, rule: &str) -> Error {
    Error::Invalid(Invalid { field: field.to_owned(), rule: rule.to_owned() })
}

impl types::Host for Memory {}
impl session_types::Host for Memory {}
impl policy_types::Host for Memory {}
impl sessions::Host for Memory {}
impl archive::Host for Memory {}
impl restriction_check::Host for Memory {}

impl settings::Host for Memory {
    fn current(&mut self) -> Rules {
        Rules {
            interval_ms: 30_000,
            tolerance_ms: 15_000,
            idle_after_ms: 300_000,
            grace_ms: 30_000,
            typing_ttl_ms: 5_000,
            evict_after_ms: 60_000,
            watch_limit: 20,
        }
    }
}

type Access<T> = Accessor<T, HasSelf<Memory>>;
type Outcomes = Vec<Result<Committed, Error>>;

impl<T> sessions::HostWithStore<T> for HasSelf<Memory> {
    async fn touch_many(access: &Access<T>, touches: Touches) -> Result<Touched, Error> {
        access.with(|mut access| access.get().touch(touches))
    }

    async fn read_many(access: &Access<T>, users: Ids) -> Result<Records, Error> {
        access.with(|mut access| access.get().read(&users))
    }

    async fn load_many(access: &Access<T>, users: Vec<String>) -> Result<Loaded, Error> {
        access.with(|mut access| {
            let memory = access.get();
            let sessions = users.iter().map(|user| Ok(memory.load(user))).collect();
            Ok(Loaded { now: memory.now(), outage_grace: None, sessions })
        })
    }

    async fn commit_many(access: &Access<T>, commits: Vec<Commit>) -> Result<Outcomes, Error> {
        access.with(|mut access| Ok(commits.into_iter().map(|commit| Ok(access.get().commit(commit))).collect()))
    }

    async fn due(_: &Access<T>, _: u32, _: u32, _: u32) -> Result<Vec<String>, Error> {
        Err(Error::Denied)
    }

    async fn evictable(_: &Access<T>, _: u32, _: u32, _: u32) -> Result<Vec<String>, Error> {
        Err(Error::Denied)
    }

    async fn evict_many(_: &Access<T>, _: Vec<Eviction>) -> Result<Outcomes, Error> {
        Err(Error::Denied)
    }
}

impl<T> archive::HostWithStore<T> for HasSelf<Memory> {
    async fn put_many(access: &Access<T>, entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        access.with(|mut access| {
            for entry in entries {
                let last_seen = access.get().archive.entry(entry.user).or_default();
                *last_seen = entry.last_seen.max(*last_seen);
            }
        });
        Ok(())
    }

    async fn get_many(access: &Access<T>, users: Ids) -> Result<Vec<Option<u64>>, Error> {
        let users = unpacked(&users)?;
        access.with(|mut access| Ok(users.iter().map(|user| access.get().archive.get(*user).copied()).collect()))
    }
}

impl<T> restriction_check::HostWithStore<T> for HasSelf<Memory> {
    /// Everyone may see everything.
    async fn check(_: &Access<T>, _viewer: Option<String>, subjects: Ids) -> Result<Vec<Verdict>, Error> {
        Ok(vec![Verdict { presence: Ruling::Allowed, last_seen: true }; subjects.lengths.len()])
    }
}
