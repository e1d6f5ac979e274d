//! What `heartbeat` and `query` import, in memory, by the rules that `wit/sessions.wit` sets.
//!
//! Left out is what only `offline-sweep` asks for, and the bounds of batches, which the functions check themselves.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::{Accessor, HasSelf};

use crate::functions::query::rollcall::presence::{archive, restriction_check, sessions, settings, types};
use restriction_check::{Ruling, Verdict};
use sessions::{Commit, Committed, Device, Ending, Loaded, Look, Next, Revision, Session, Touched, Touches, Trace};
use types::{Error, Ids, Invalid, Stance, State};

/// Everything that is kept.
#[derive(Default)]
pub(crate) struct Memory {
    people: HashMap<String, Session>,
    archive: HashMap<String, u64>,
    /// The newest time that was told: the store's clock is the only one, and never goes back.
    now: u64,
    /// Every write leaves the next number as the revision of its session, so that no revision comes back.
    writes: u64,
}

impl Memory {
    fn now(&mut self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        self.now = self.now.max(wall);
        self.now
    }

    fn load(&self, user: &str) -> Session {
        self.people.get(user).cloned().unwrap_or_else(nothing_kept)
    }

    /// A person's session, about to be changed, with the revision of that change.
    fn write(&mut self, user: &str) -> &mut Session {
        self.writes += 1;
        let session = self.people.entry(user.to_owned()).or_insert_with(nothing_kept);
        session.revision = Revision { commits: self.writes, touches: self.writes };
        session
    }

    /// Leaves traces, and tells what each person looked like just before.
    fn touch(&mut self, touches: Touches) -> Result<Touched, Error> {
        let (users, devices) = (unpacked(&touches.users)?, unpacked(&touches.devices)?);
        if users.len() != touches.traces.len() || devices.len() != touches.traces.len() {
            return Err(invalid("touches", "has columns of different lengths"));
        }
        let now = self.now();
        let mut touched = Touched { now, versions: vec![], looks: vec![], endings: vec![], failures: vec![] };
        for ((place, trace), (user, device)) in (0..).zip(touches.traces).zip(users.into_iter().zip(devices)) {
            let session = self.write(user);
            let (state, version) = session.published.as_ref().map_or((State::Offline, 0), |it| (it.state, it.version));
            let (stance, until) = session.choice.as_ref().map_or((Stance::Auto, None), |it| (it.stance, it.until));
            touched.looks.push(Look { state, stance });
            touched.versions.push(version);
            touched.endings.extend(until.map(|at| Ending { place, at }));
            leave_trace(session, device, trace, now);
        }
        Ok(touched)
    }

    /// Compare and swap: what was decided on a session that has moved since changes nothing.
    fn commit(&mut self, commit: Commit) -> Committed {
        if self.load(&commit.user).revision != commit.expected {
            return Committed::Stale;
        }
        let session = self.write(&commit.user);
        if let Some(published) = commit.publish {
            // There are no topics here: what would go out on the person's is printed.
            println!("published: {} is {}", commit.user, word(published.state));
            session.published = Some(published);
        }
        session.choice = commit.choice.or(session.choice.take());
        session.devices.retain(|device| commit.prune_expired_by == 0 || device.expires_at > commit.prune_expired_by);
        session.next = commit.next;
        Committed::Applied
    }
}

/// What happens to a device, and with it to its session, which is due no later than when that takes effect.
fn leave_trace(session: &mut Session, id: &str, trace: Trace, now: u64) {
    let place = session.devices.iter().position(|device| device.id == id);
    let known = place.map(|place| session.devices.swap_remove(place));
    let (device, due) = match (trace, known) {
        (Trace::Beat(beat), known) => {
            let expires_at = now + u64::from(beat.alive_for_ms);
            let active_at = if beat.active { Some(now) } else { known.and_then(|known| known.active_at) };
            (Device { id: id.to_owned(), kind: beat.kind, beat_at: now, active_at, expires_at }, expires_at)
        }
        (Trace::Dropped(grace_ms), Some(known)) => {
            let expires_at = known.expires_at.min(now + u64::from(grace_ms));
            (Device { expires_at, ..known }, expires_at)
        }
        // Dead at once; its last beat stays until a commit has accounted for it.
        (Trace::Logout, Some(known)) => (Device { expires_at: 0, active_at: None, ..known }, now),
        (Trace::Dropped(_) | Trace::Logout, None) => return,
    };
    session.devices.push(device);
    // A person has 64 devices at most: beyond that, those with the oldest beats go.
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

fn nothing_kept() -> Session {
    let revision = Revision { commits: 0, touches: 0 };
    Session { devices: vec![], choice: None, published: None, next: Next::Nothing, revision }
}

/// The ids that one text carries, end to end.
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
impl sessions::Host for Memory {}
impl archive::Host for Memory {}
impl restriction_check::Host for Memory {}

impl settings::Host for Memory {
    fn current(&mut self) -> settings::Rules {
        settings::Rules {
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

    async fn evict_many(_: &Access<T>, _: Vec<sessions::Eviction>) -> Result<Outcomes, Error> {
        Err(Error::Denied)
    }
}

impl<T> archive::HostWithStore<T> for HasSelf<Memory> {
    async fn put_many(access: &Access<T>, last_seen_entries: Vec<archive::LastSeenEntry>) -> Result<(), Error> {
        access.with(|mut access| {
            for last_seen_entry in last_seen_entries {
                let kept = access.get().archive.entry(last_seen_entry.user).or_default();
                *kept = last_seen_entry.last_seen.max(*kept);
            }
        });
        Ok(())
    }

    async fn get_many(access: &Access<T>, users: Vec<String>) -> Result<Vec<Option<u64>>, Error> {
        access.with(|mut access| Ok(users.iter().map(|user| access.get().archive.get(user).copied()).collect()))
    }
}

impl<T> restriction_check::HostWithStore<T> for HasSelf<Memory> {
    /// Everybody may see everything.
    async fn check(_: &Access<T>, _viewer: Option<String>, subjects: Ids) -> Result<Vec<Verdict>, Error> {
        Ok(vec![Verdict { presence: Ruling::Allowed, last_seen: true }; subjects.lengths.len()])
    }
}
