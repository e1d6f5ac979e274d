//! The embedded store: sessions in this process's memory.
//!
//! Users are spread over shards, each with its own lock; a heartbeat takes one lock, finds one entry and writes it. Deadlines
//! are exact and sorted, so that finding users who are due costs one check per shard. Nothing here waits, except for the disk
//! when a choice must survive the process ([`ChoiceStore`]).
//!
//! Deliberately absent: eviction (the sweep evicts sessions), a log of touches (a killed process loses its devices, and the next
//! beats restore them), and topics (the publish hook does the fan-out: [`LocalTopics`]).

mod entry;
mod id;
mod index_table;
mod past_deadline;
mod prefetch;
mod shard;
mod topics;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rollcall_core::{DEFAULT_SHARDS, shard_of};
use rollcall_core::{Error, Ids, Moment, Next, OutageGrace, Published, Session, Span, Time, UserId};
use rollcall_functions::capabilities::{
    Commit, Eviction, Loaded, MAX_BATCH, Records, Shards, Touched, Touches, bounded,
};

use crate::clock::Clock;
use crate::persistence::{ChoiceStore, SavedSessions};
use crate::{Outcomes, SessionStore, StoreFuture};

use entry::TouchTime;
use shard::{Key, Observers, Outcome, Queue, Shard};

pub use topics::LocalTopics;

/// Receives what is published, for each user in the order of versions. It is called while the user's shard is locked: it must
/// be fast, and it must not call the store.
pub type PublishHook = Arc<dyn Fn(&UserId, &Published) + Send + Sync>;

/// How many users' memory is prefetched at once: three cache lines each and one of the table are 16 KB, half of the L1 cache.
const PREFETCH: usize = 64;

/// Options of the embedded store.
#[derive(Clone)]
pub struct Options {
    /// The number of shards, at least one. Default: 256.
    pub shards: u32,
    /// The source of time. Default: the system clock.
    pub clock: Clock,
    /// Receives what is published. Default: none.
    pub on_publish: Option<PublishHook>,
    /// Stores choices. Default: none, so that choices end with the process.
    pub choice_store: Option<Arc<dyn ChoiceStore>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: DEFAULT_SHARDS, clock: Clock::system(), on_publish: None, choice_store: None }
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
    /// Randomly seeded: clients choose ids, and must not be able to make them collide.
    hasher: RandomState,
    clock: Clock,
    outage_grace: Option<OutageGrace>,
    observers: Observers,
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
        let Options { shards, clock, on_publish, choice_store } = options;
        Self {
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
            hasher: RandomState::default(),
            clock,
            outage_grace: None,
            observers: Observers { on_publish, choice_store },
        }
    }

    /// A store that continues where an earlier run ended. Devices that were alive then stay alive for `outage_grace`, one full
    /// `d + ε`, so that they can beat again.
    pub fn restored(options: Options, saved: SavedSessions, outage_grace: Span) -> Self {
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

    /// Users past their deadline, the earliest deadline first: [`SessionStore::due`] without waiting. This is the embedded store's
    /// expiry notification.
    pub fn expired(&self, shards: Shards, limit: u32) -> Vec<UserId> {
        self.past_deadline(Queue::Settle, shards, limit)
    }

    /// The earliest deadline of all users; `None` if no session has one.
    pub fn next_deadline(&self) -> Option<Time> {
        self.shards.iter().filter_map(|shard| shard.earliest(Queue::Settle)).min()
    }

    /// The number of sessions.
    pub fn sessions(&self) -> usize {
        self.shards.iter().map(|shard| shard.count().0).sum()
    }

    /// The online count: users whose published state is not offline.
    pub fn online_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.count().1).sum()
    }

    /// All sessions, to be saved. Each session is consistent; for all of them to be of one instant, stop writing first.
    pub fn export(&self) -> Vec<(UserId, Session)> {
        let mut sessions = Vec::with_capacity(self.sessions());
        let moment = self.moment();
        self.shards.iter().for_each(|shard| shard.export(&moment, &mut sessions));
        sessions
    }

    /// Touches sessions: [`SessionStore::touch_many`] without waiting.
    pub fn touch(&self, touches: &Touches) -> Result<Touched, Error> {
        bounded(touches.events.len(), MAX_BATCH)?;
        let moment = self.moment();
        let when = TouchTime { now: moment.now, expired_by: moment.expired_for_certain_by() };
        let mut prior = Vec::with_capacity(touches.events.len());
        let touches = touches.iter().map(|(user, device, event)| (user, (device, event)));
        self.visit(touches, |shard, key, (device, event)| prior.push(Ok(shard.touch(key, device, event, when))));
        Ok(Touched { now: moment.now, prior })
    }

    /// Reads published records: [`SessionStore::read_many`] without waiting.
    pub fn read(&self, users: &Ids<UserId>) -> Result<Records, Error> {
        bounded(users.len(), MAX_BATCH)?;
        // The time is read first: a record must not count as valid at an instant after which it could have changed.
        let now = self.clock.now();
        let mut records = Vec::with_capacity(users.len());
        self.visit(users.iter().map(|user| (user, ())), |shard, key, ()| records.push(Ok(shard.read(key, now))));
        Ok(Records { now, records })
    }

    /// Reads sessions: [`SessionStore::load_many`] without waiting.
    pub fn load(&self, users: &[UserId]) -> Result<Loaded, Error> {
        bounded(users.len(), MAX_BATCH)?;
        // The time is read first: a session must not be derived at an instant after which a newer beat could be missing.
        let moment = self.moment();
        let mut sessions = Vec::with_capacity(users.len());
        let users = users.iter().map(|user| (user.as_str(), ()));
        self.visit(users, |shard, key, ()| sessions.push(Ok(shard.load(key))));
        Ok(Loaded { moment, sessions })
    }

    /// Does work for every item, in order. A batch at a time, memory is prefetched first: where the lookup begins, then the
    /// session.
    fn visit<'a, T>(
        &'a self,
        mut items: impl ExactSizeIterator<Item = (&'a str, T)>,
        mut work: impl FnMut(&Shard, Key<'a>, T),
    ) {
        let mut batch = Vec::with_capacity(items.len().min(PREFETCH));
        while items.len() > 0 {
            for (user, item) in items.by_ref().take(PREFETCH) {
                let (shard, key) = (self.shard(user), self.key(user));
                shard.prefetch_lookup(key);
                batch.push((shard, key, item));
            }
            batch.iter().for_each(|(shard, key, _)| shard.prefetch_session(*key));
            batch.drain(..).for_each(|(shard, key, item)| work(shard, key, item));
        }
    }

    fn commit(&self, commits: Vec<Commit>) -> Result<Vec<Outcome>, Error> {
        bounded(commits.len(), MAX_BATCH)?;
        let now = self.clock.now();
        let commit = |commit: Commit| {
            let user = commit.user.clone();
            self.shard(user.as_str()).commit(self.key(user.as_str()), commit, now, &self.observers)
        };
        Ok(commits.into_iter().map(commit).collect())
    }

    fn evict(&self, evictions: Vec<Eviction>) -> Result<Vec<Outcome>, Error> {
        bounded(evictions.len(), MAX_BATCH)?;
        let now = self.clock.now();
        let evict = |eviction: Eviction| {
            let user = eviction.user.clone();
            self.shard(user.as_str()).evict(self.key(user.as_str()), eviction, now, &self.observers)
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

impl SessionStore for Memory {
    fn touch_many(&self, touches: Touches) -> StoreFuture<'_, Touched> {
        Box::pin(async move { self.touch(&touches) })
    }
    fn read_many(&self, users: Ids<UserId>) -> StoreFuture<'_, Records> {
        Box::pin(async move { self.read(&users) })
    }
    fn load_many(&self, users: Vec<UserId>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move { self.load(&users) })
    }
    fn commit_many(&self, commits: Vec<Commit>) -> StoreFuture<'_, Outcomes> {
        Box::pin(async move { Ok(once_stored(self.commit(commits)?).await) })
    }
    fn due(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(async move { Ok(self.expired(shards, limit)) })
    }
    fn evictable(&self, shards: Shards, limit: u32) -> StoreFuture<'_, Vec<UserId>> {
        Box::pin(async move { Ok(self.past_deadline(Queue::Evict, shards, limit)) })
    }
    fn evict_many(&self, evictions: Vec<Eviction>) -> StoreFuture<'_, Outcomes> {
        Box::pin(async move {
            let ended = self.evict(evictions)?;
            // An expired choice that could not be deleted from disk does not undo the eviction: it is skipped at the next
            // start.
            let committed = ended.iter().map(|(committed, _)| Ok(*committed)).collect();
            once_stored(ended).await;
            Ok(committed)
        })
    }
    fn shards(&self) -> u32 {
        self.shards.len() as u32
    }
}

/// The outcomes, once all choices are stored. A choice that could not be stored is in force and published, but not confirmed: the
/// client retries, and the same choice changes nothing and is stored then.
async fn once_stored(ended: Vec<Outcome>) -> Outcomes {
    let mut outcomes = Vec::with_capacity(ended.len());
    for (committed, stored) in ended {
        outcomes.push(match stored {
            Some(stored) => stored.await.map(|()| committed),
            None => Ok(committed),
        });
    }
    outcomes
}

/// Limits the times of a saved session to what a running store could have written. The wall clock may have been set back between
/// two runs: without this, a device would stay alive, and a deadline pending, for as long as that.
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
    // Settling too early is harmless. A session without a deadline is settled at once: a kill may have left only its choice,
    // or a touch that was never published.
    session.next = match session.next {
        Next::Nothing => Next::Settle(now),
        Next::Settle(at) => Next::Settle(at.min(now + outage_grace)),
        Next::Evict(at) => Next::Evict(at.min(now + outage_grace)),
    };
    session
}
