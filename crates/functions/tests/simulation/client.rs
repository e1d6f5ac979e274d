//! A procedure's connection to the store. Each call is pending once before its effect and once after it, so that a crash
//! or a race can happen between any two steps. A call can fail in every way a network can: without effect, with its
//! effect but without an answer, or for one item only.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rollcall_core::{DeviceId, Error, Ids, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, Commit, Committed, DeviceEvent, Eviction, LastSeenEntry, Loaded, Records, RestrictionCheck, Sessions,
    Shards, Touch, Touched, Touches, Visibility,
};

use crate::random::Random;
use crate::store::{Store, index};

/// How often calls fail, per ten thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Odds {
    /// The whole call fails without effect.
    pub(crate) refused: u64,
    /// The call takes effect and its answer is lost.
    pub(crate) answer_lost: u64,
    /// One item of a batch fails without effect.
    pub(crate) item: u64,
}

/// The state that all procedures share.
pub(crate) struct Shared {
    pub(crate) store: RefCell<Store>,
    pub(crate) random: RefCell<Random>,
    pub(crate) odds: Cell<Odds>,
    pub(crate) store_is_down: Cell<bool>,
}

/// A procedure's connection.
pub(crate) struct Client {
    shared: Rc<Shared>,
    /// The users this procedure acts for. If it fails, their publications may be late.
    users: Vec<usize>,
    loaded_at: Cell<Time>,
    has_failed: Cell<bool>,
    /// Never pending and never failing: for checks between steps.
    is_instant: bool,
}

const UNAVAILABLE: Error = Error::Unavailable(100);

impl Client {
    pub(crate) fn new(shared: &Rc<Shared>, users: Vec<usize>) -> Self {
        let shared = shared.clone();
        Self { shared, users, loaded_at: Cell::new(Time(0)), has_failed: Cell::new(false), is_instant: false }
    }

    pub(crate) fn instant(shared: &Rc<Shared>) -> Self {
        Self { is_instant: true, ..Self::new(shared, Vec::new()) }
    }

    async fn call<T>(&self, effect: impl FnOnce(&mut Store) -> T) -> Result<T, Error> {
        self.pause().await;
        let odds = self.shared.odds.get();
        let result = if self.fails(odds.refused) || (self.shared.store_is_down.get() && !self.is_instant) {
            self.note_failure();
            Err(UNAVAILABLE)
        } else {
            let done = effect(&mut self.shared.store.borrow_mut());
            if self.fails(odds.answer_lost) { Err(UNAVAILABLE) } else { Ok(done) }
        };
        self.pause().await;
        result
    }

    async fn pause(&self) {
        if !self.is_instant {
            Pause { is_over: false }.await;
        }
    }

    fn fails_for_item(&self) -> bool {
        self.fails(self.shared.odds.get().item)
    }

    fn fails(&self, odds: u64) -> bool {
        let fails = odds > 0 && !self.is_instant && self.shared.random.borrow_mut().chance(odds);
        if fails {
            self.note_failure();
        }
        fails
    }

    fn note_failure(&self) {
        self.has_failed.set(true);
        if let Ok(mut store) = self.shared.store.try_borrow_mut() {
            tolerate(&mut store, &self.users);
        }
    }
}

/// A procedure for these users was interrupted: tolerates a late publication.
pub(crate) fn tolerate(store: &mut Store, users: &[usize]) {
    let now = store.now;
    for &user in users {
        store.checker.tolerate(now, user);
    }
}

/// Ready when polled for the second time.
struct Pause {
    is_over: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.is_over = true;
        Poll::Pending
    }
}

impl Sessions for Client {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        let touch = |(user, device, event): (&str, &str, DeviceEvent)| Touch {
            user: UserId::parse(user).unwrap(),
            device: DeviceId::parse(device).unwrap(),
            event,
        };
        let touches: Vec<Touch> = touches.iter().map(touch).collect();
        let failing: Vec<bool> = touches.iter().map(|_| self.fails_for_item()).collect();
        let is_whole = !self.has_failed.get();
        self.call(|store| {
            let mut prior = Vec::with_capacity(touches.len());
            for (touch, fails) in touches.iter().zip(failing) {
                prior.push(if fails { Err(UNAVAILABLE) } else { Ok(store.touch(touch)) });
                if is_whole && matches!(touch.event, DeviceEvent::Beat { active: true, .. }) {
                    let now = store.now;
                    store.checker.end_tolerance(now, index(&touch.user));
                }
            }
            Touched { now: store.now, prior }
        })
        .await
    }

    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        let failing: Vec<bool> = users.iter().map(|_| self.fails_for_item()).collect();
        self.call(|store| {
            let read = |(user, fails)| if fails { Err(UNAVAILABLE) } else { Ok(store.read(user)) };
            Records { now: store.now, records: users.iter().zip(failing).map(read).collect() }
        })
        .await
    }

    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        let failing: Vec<bool> = users.iter().map(|_| self.fails_for_item()).collect();
        self.call(|store| {
            self.loaded_at.set(store.now);
            let load = |(user, fails)| if fails { Err(UNAVAILABLE) } else { Ok(store.load(user)) };
            Loaded { moment: store.moment(), sessions: users.iter().zip(failing).map(load).collect() }
        })
        .await
    }

    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let failing: Vec<bool> = commits.iter().map(|_| self.fails_for_item()).collect();
        let decided = self.loaded_at.get();
        self.call(|store| {
            let commits = commits.into_iter().zip(failing);
            commits
                .map(|(commit, fails)| if fails { Err(UNAVAILABLE) } else { Ok(store.commit(commit, decided)) })
                .collect()
        })
        .await
    }

    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.call(|store| store.due(shards, limit)).await
    }

    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.call(|store| store.evictable(shards, limit)).await
    }

    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        let failing: Vec<bool> = evictions.iter().map(|_| self.fails_for_item()).collect();
        let decided = self.loaded_at.get();
        self.call(|store| {
            let evictions = evictions.iter().zip(failing);
            evictions
                .map(|(eviction, fails)| if fails { Err(UNAVAILABLE) } else { Ok(store.evict(eviction, decided)) })
                .collect()
        })
        .await
    }
}

impl Archive for Client {
    async fn put_many(&self, entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        self.call(|store| store.archive(entries)).await
    }

    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        self.call(|store| users.iter().map(|user| store.archived(&UserId::parse(user).unwrap())).collect()).await
    }
}

impl RestrictionCheck for Client {
    async fn check(&self, _: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        Ok(subjects.iter().map(|_| Visibility { presence: true, last_seen: true }).collect())
    }
}
