//! The embedded store: sessions in this process's memory.
//!
//! People are spread over shards, each with a lock of its own; a heartbeat takes one lock, finds one place and writes
//! it. Deadlines are exact and kept in order, so that asking who is due costs a look at each shard and no more.
//! Nothing here waits, except for the disk when a person's choice must survive the process ([`Keeper`]).
//!
//! Deliberately absent: eviction (the sweep evicts who is cold), a log of traces (a process that is killed forgets
//! its devices, and the next beats bring them back), and any topic (whoever fans out is the listener: [`LocalTopics`]).

mod entry;
mod id;
mod overdue;
mod places;
mod prefetch;
mod shard;
mod topics;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rollcall_core::{DEFAULT_SHARDS, shard_of};
use rollcall_core::{Error, Moment, Next, OutageGrace, Published, Session, Span, Time, UserId};
use rollcall_functions::capabilities::{Commit, Eviction, Loaded, MAX_BATCH, Shards, Touched, Touches};

use crate::clock::Clock;
use crate::keep::{Keeper, Saved};
use crate::{Answer, Outcomes, Store};

use entry::When;
use shard::{Agenda, Ended, Key, Shard, Told};

pub use topics::LocalTopics;

/// Is told what is published, about each person in the order of versions. It is called while the person's shard is
/// locked: it must be quick, and it must not call the store.
pub type Listener = Arc<dyn Fn(&UserId, &Published) + Send + Sync>;

/// How many people's memory is fetched at once: three cache lines each and one of the table are 16 KB, half of what the
/// nearest cache holds.
const ABREAST: usize = 64;

/// How the embedded store is set up.
#[derive(Clone)]
pub struct Options {
    /// How many shards there are; at least one. Default: 256.
    pub shards: u32,
    /// Where the time comes from. Default: the system.
    pub clock: Clock,
    /// Who is told what is published. Default: nobody.
    pub listener: Option<Listener>,
    /// Who keeps people's choices. Default: nobody, so that they end with the process.
    pub keeper: Option<Arc<dyn Keeper>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: DEFAULT_SHARDS, clock: Clock::system(), listener: None, keeper: None }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("shards", &self.shards).field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// The embedded store.
pub struct Memory {
    shards: Box<[Shard]>,
    /// Keyed at random, because ids come from outside: nobody can choose ids that fall together.
    hasher: RandomState,
    clock: Clock,
    outage_grace: Option<OutageGrace>,
    told: Told,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shards, clock, outage_grace, .. } = self;
        let mut debug = f.debug_struct("Memory");
        debug
            .field("shards", &shards.len())
            .field("clock", clock)
            .field("outage_grace", outage_grace)
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty store.
    pub fn new(options: Options) -> Self {
        let Options { shards, clock, listener, keeper } = options;
        Self {
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            clock,
            outage_grace: None,
            told: Told { listener, keeper },
        }
    }

    /// A store that goes on where an earlier run ended. Devices that were alive then are pardoned for `outage_grace`, which
    /// is one full `d + ε` to beat again: it was we who were away, not they.
    pub fn restored(options: Options, saved: Saved, outage_grace: Span) -> Self {
        let mut store = Self::new(options);
        let now = store.clock.now();
        store.outage_grace = saved.at.map(|at| OutageGrace { since: at.min(now), until: now + outage_grace });
        for (user, session) in saved.sessions {
            if !session.is_empty() {
                store.shard(user.as_str()).restore(store.key(user.as_str()), no_later(session, now, outage_grace));
            }
        }
        store
    }

    /// The store's time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// People whose settle instant has passed, longest overdue first: [`Store::due`] without waiting. This is the
    /// embedded store's expiry notification.
    pub fn expired(&self, shards: Shards, limit: u32) -> Vec<UserId> {
        self.overdue(Agenda::Settle, shards, limit)
    }

    /// The earliest settle instant of all: until then nobody is due. None: nobody waits to be settled.
    pub fn next_deadline(&self) -> Option<Time> {
        self.shards.iter().filter_map(|shard| shard.earliest(Agenda::Settle)).min()
    }

    /// How many sessions are kept.
    pub fn sessions(&self) -> usize {
        self.shards.iter().map(|shard| shard.count().0).sum()
    }

    /// How many people are visibly here: whose published state is not offline.
    pub fn here(&self) -> usize {
        self.shards.iter().map(|shard| shard.count().1).sum()
    }

    /// Everybody, to be saved. Each session is whole; for all of them to be of one instant, stop writing first.
    pub fn export(&self) -> Vec<(UserId, Session)> {
        let mut sessions = Vec::with_capacity(self.sessions());
        let moment = self.moment();
        self.shards.iter().for_each(|shard| shard.export(&moment, &mut sessions));
        sessions
    }

    /// Leaves traces: [`Store::touch_many`] without waiting.
    pub fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(&touches.events)?;
        let moment = self.moment();
        let when = When { now: moment.now, dead_by: moment.surely_dead_by() };
        let mut found = Vec::with_capacity(touches.events.len());
        let touches = touches.iter().map(|(user, device, event)| (user, (device, event)));
        self.visit(touches, |shard, key, (device, event)| found.push(Ok(shard.touch(key, device, event, when))));
        Ok(Touched { now: moment.now, found })
    }

    /// Reads sessions: [`Store::load_many`] without waiting.
    pub fn load(&self, users: &[UserId]) -> Result<Loaded, Error> {
        bounded(users)?;
        // The time is taken first, so that nobody is judged by a time at which their newest beat was not yet read.
        let moment = self.moment();
        let mut sessions = Vec::with_capacity(users.len());
        let users = users.iter().map(|user| (user.as_str(), ()));
        self.visit(users, |shard, key, ()| sessions.push(Ok(shard.load(key))));
        Ok(Loaded { moment, sessions })
    }

    /// Does something for every item, in order, with the person that it is about. Many at a time, their memory is asked
    /// for first: where the search begins, then where the session is. When the work is done it is there.
    fn visit<'a, T>(
        &'a self,
        mut items: impl ExactSizeIterator<Item = (&'a str, T)>,
        mut work: impl FnMut(&Shard, Key<'a>, T),
    ) {
        let mut abreast = Vec::with_capacity(items.len().min(ABREAST));
        while items.len() > 0 {
            for (user, item) in items.by_ref().take(ABREAST) {
                let (shard, key) = (self.shard(user), self.key(user));
                shard.expect_search(key);
                abreast.push((shard, key, item));
            }
            abreast.iter().for_each(|(shard, key, _)| shard.expect_session(*key));
            abreast.drain(..).for_each(|(shard, key, item)| work(shard, key, item));
        }
    }

    fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Ended>, Error> {
        bounded(&commits)?;
        let now = self.clock.now();
        let commit = |commit: Commit| {
            let user = commit.user.clone();
            self.shard(user.as_str()).commit(self.key(user.as_str()), commit, now, &self.told)
        };
        Ok(commits.into_iter().map(commit).collect())
    }

    fn evict(&self, evictions: Vec<Eviction>) -> Result<Vec<Ended>, Error> {
        bounded(&evictions)?;
        let now = self.clock.now();
        let evict = |eviction: Eviction| {
            let user = eviction.user.clone();
            self.shard(user.as_str()).evict(self.key(user.as_str()), eviction, now, &self.told)
        };
        Ok(evictions.into_iter().map(evict).collect())
    }

    fn moment(&self) -> Moment {
        let now = self.clock.now();
        Moment { now, outage_grace: self.outage_grace.filter(|outage_grace| now < outage_grace.until) }
    }

    fn key<'a>(&self, name: &'a str) -> Key<'a> {
        Key { name, tag: self.hasher.hash_one(name.as_bytes()) as u32 }
    }

    #[expect(clippy::indexing_slicing, reason = "a shard is always below the number of shards it was asked for")]
    fn shard(&self, user: &str) -> &Shard {
        &self.shards[shard_of(user, self.shards.len() as u32) as usize]
    }
}

impl Store for Memory {
    fn touch_many(&self, touches: Touches) -> Answer<'_, Touched> {
        Box::pin(async move { self.touch(&touches) })
    }
    fn load_many(&self, users: Vec<UserId>) -> Answer<'_, Loaded> {
        Box::pin(async move { self.load(&users) })
    }
    fn commit_many(&self, commits: Vec<Commit>) -> Answer<'_, Outcomes> {
        Box::pin(async move { Ok(once_kept(self.commit(commits)?).await) })
    }
    fn due(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(async move { Ok(self.expired(shards, limit)) })
    }
    fn evictable(&self, shards: Shards, limit: u32) -> Answer<'_, Vec<UserId>> {
        Box::pin(async move { Ok(self.overdue(Agenda::Evict, shards, limit)) })
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> Answer<'_, Outcomes> {
        Box::pin(async move {
            let ended = self.evict(evictions)?;
            // That a choice which no longer means anything could not be forgotten is no reason to call the session
            // kept: it is dropped, and what is left on disk is skipped at the next start.
            let committed = ended.iter().map(|(committed, _)| Ok(*committed)).collect();
            once_kept(ended).await;
            Ok(committed)
        })
    }
    fn shards(&self) -> u32 {
        self.shards.len() as u32
    }
}

/// The outcomes, once everything that must survive the process is kept. One that could not be kept is in force and
/// published all the same, but it is not confirmed: the person is told to try again, and the same choice made again
/// changes nothing and is kept.
async fn once_kept(ended: Vec<Ended>) -> Outcomes {
    let mut outcomes = Vec::with_capacity(ended.len());
    for (committed, kept) in ended {
        outcomes.push(match kept {
            Some(kept) => kept.await.map(|()| committed),
            None => Ok(committed),
        });
    }
    outcomes
}

fn bounded<T>(items: &[T]) -> Result<(), Error> {
    if items.len() > MAX_BATCH { Err(Error::TooMany(MAX_BATCH as u32)) } else { Ok(()) }
}

/// A saved session with no time in the future that a running store could not have left there. The wall clock may have
/// been set back between two runs: without this a device would be alive, and a deadline away, for as long as that.
fn no_later(mut session: Session, now: Time, outage_grace: Span) -> Session {
    for device in &mut session.devices {
        device.beat_at = device.beat_at.min(now);
        device.active_at = device.active_at.map(|at| at.min(now));
        device.expires_at = device.expires_at.min(now + outage_grace);
    }
    if let Some(choice) = &mut session.choice {
        choice.at = choice.at.min(now);
    }
    if let Some(published) = &mut session.published {
        published.since = published.since.map(|at| at.min(now));
        published.last_seen = published.last_seen.map(|at| at.min(now));
    }
    // Looking too early is harmless. Somebody who waits for nothing is looked at at once: they may be all that a kill
    // left of a choice, or a trace that was never published, and what to make of that is for the rules to say.
    session.next = match session.next {
        Next::Nothing => Next::Settle(now),
        Next::Settle(at) => Next::Settle(at.min(now + outage_grace)),
        Next::Evict(at) => Next::Evict(at.min(now + outage_grace)),
    };
    session
}
