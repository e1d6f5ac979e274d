//! The functions in this process twice, on the same store: as components in the host's engine, and linked natively. The only
//! difference is the sandbox.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rollcall_core::{Error, Ids, Rules, Time, UserId};
use rollcall_functions::capabilities::{
    Archive, Commit, Committed, Eviction, LastSeenEntry, Loaded, MAX_BATCH, Records, RestrictionCheck, Sessions,
    Shards, Touched, Touches, Visibility,
};
use rollcall_functions::heartbeat;
use rollcall_host::runtime::Functions;
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{ArchiveStore, Clock, Memory, SessionStore, SqliteArchive};

use crate::sample::Comparison;
use crate::users;

/// Rounds.
const ROUNDS: usize = 25;

/// Slices of each contender in a round.
const SLICES: usize = 20;

/// Length of a slice. On a shared machine the kernel preempts every few milliseconds: slices are so short that most escape, and
/// the median of a round hides the others.
pub(crate) const SLICE: Duration = Duration::from_millis(2);

/// Both ways of calling the functions.
pub(crate) struct WasmAndNative {
    /// Through the components.
    pub(crate) wasm: Functions,
    /// The native functions on the same store.
    pub(crate) native: Native,
    /// The rules of both.
    pub(crate) rules: Rules,
}

/// Runs a measurement on a worker like the host's, with this many users online and the system clock.
pub(crate) fn on_a_worker<T>(user_count: u64, measure: impl AsyncFnOnce(WasmAndNative) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let clock = Clock::system();
        let topics = LocalTopics::new(clock.clone());
        let options = Options { clock, on_publish: Some(topics.publish_hook()), ..Options::default() };
        let store: Arc<dyn SessionStore> = Arc::new(Memory::new(options));
        let archive = Arc::new(SqliteArchive::in_memory()?);
        let rules = Rules::default();
        let wasm =
            rollcall_tests::functions(store.clone(), &archive, Arc::new(topics), rules, rollcall_tests::component);
        rollcall_tests::warm_up(&wasm).await;
        let native = Native { store, archive };
        populate(&native, &rules, user_count).await?;
        measure(WasmAndNative { wasm, native, rules }).await
    })
}

/// Every user beats once. No sweep runs here, so all stay online.
async fn populate(native: &Native, rules: &Rules, user_count: u64) -> Result<()> {
    let all_users: Vec<u64> = (0..user_count).collect();
    for batch in all_users.chunks(MAX_BATCH) {
        let beats = batch.iter().map(|index| users::beat(*index)).collect::<Result<_, _>>()?;
        for answer in heartbeat::beat_many(native, rules, beats).await? {
            answer?;
        }
    }
    Ok(())
}

/// Measures slices of both contenders in turn. A round counts by its medians; the first round is warm-up.
pub(crate) async fn in_turn(
    mut ours: impl AsyncFnMut() -> Result<f64>,
    mut theirs: impl AsyncFnMut() -> Result<f64>,
) -> Result<Comparison> {
    let mut rounds = Comparison::default();
    for round in 0..=ROUNDS {
        let mut slices = Comparison::default();
        for _ in 0..SLICES {
            slices.push(ours().await?, theirs().await?);
        }
        if round > 0 {
            rounds.push(slices.ours(), slices.theirs());
        }
    }
    Ok(rounds)
}

/// The capabilities of the native functions.
pub(crate) struct Native {
    store: Arc<dyn SessionStore>,
    archive: Arc<dyn ArchiveStore>,
}

impl Sessions for Native {
    async fn touch_many(&self, touches: Touches) -> Result<Touched, Error> {
        self.store.touch_many(touches).await
    }
    async fn read_many(&self, users: Ids<UserId>) -> Result<Records, Error> {
        self.store.read_many(users).await
    }
    async fn load_many(&self, users: Vec<UserId>) -> Result<Loaded, Error> {
        self.store.load_many(users).await
    }
    async fn commit_many(&self, commits: Vec<Commit>) -> Result<Vec<Result<Committed, Error>>, Error> {
        self.store.commit_many(commits).await
    }
    async fn due(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.store.due(shards, limit).await
    }
    async fn evictable(&self, shards: Shards, limit: u32) -> Result<Vec<UserId>, Error> {
        self.store.evictable(shards, limit).await
    }
    async fn evict_many(&self, evictions: Vec<Eviction>) -> Result<Vec<Result<Committed, Error>>, Error> {
        self.store.evict_many(evictions).await
    }
}

impl Archive for Native {
    async fn put_many(&self, last_seen_entries: Vec<LastSeenEntry>) -> Result<(), Error> {
        self.archive.put_many(last_seen_entries).await
    }
    async fn get_many(&self, users: Ids<UserId>) -> Result<Vec<Option<Time>>, Error> {
        self.archive.get_many(users).await
    }
}

/// No policy: every viewer sees every subject.
impl RestrictionCheck for Native {
    async fn check(&self, _viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Visibility>, Error> {
        Ok(vec![Visibility { presence: true, last_seen: true }; subjects.len()])
    }
}
