//! The functions in this process: the built components in the host's engine, on a store that the test can inspect.

use std::path::PathBuf;
use std::sync::Arc;

use rollcall_core::{Rules, Time};
use rollcall_host::metrics::Metrics;
use rollcall_host::runtime::{Catalog, Checker, Functions, Platform, Source, engine, tick};
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{Clock, Memory, SessionStore, SqliteArchive, TopicStore};

/// Policy memory of an instance.
const POLICY_MEMORY: u64 = 1 << 30;

/// Warm functions and their stores.
pub struct InProcess {
    /// The functions.
    pub functions: Functions,
    /// Their store.
    pub memory: Arc<Memory>,
    /// Their archive.
    pub archive: Arc<SqliteArchive>,
    /// The store's clock; a test moves it.
    pub clock: Clock,
}

/// Runs `test` on a thread of its own with warm functions. `replace` names components to be taken from a file
/// instead of the ordinary ones.
pub fn on_a_worker<F>(rules: Rules, replace: &[(&str, &str)], test: impl FnOnce(InProcess) -> F)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let file = |name: &str| replace.iter().find(|(n, _)| *n == name).map_or(name, |(_, file)| *file).to_owned();
        let clock = Clock::manual(Time(1_700_000_000_000));
        let topics = LocalTopics::new(clock.clone());
        let options = Options { clock: clock.clone(), on_publish: Some(topics.publish_hook()), ..Options::default() };
        let memory = Arc::new(Memory::new(options));
        let archive = Arc::new(SqliteArchive::in_memory().expect("an archive"));
        let component = |name: &str| crate::component(&file(name));
        let functions = functions(memory.clone(), &archive, Arc::new(topics), rules, component);
        test(InProcess { functions, memory, archive, clock }).await;
    });
}

/// Warm functions over these, on the current thread's local task set. Policy is stored with the archive.
pub fn functions(
    store: Arc<dyn SessionStore>,
    archive: &Arc<SqliteArchive>,
    topics: Arc<dyn TopicStore>,
    rules: Rules,
    component: impl Fn(&str) -> PathBuf,
) -> Functions {
    let engine = engine().expect("an engine");
    tick(&engine).expect("a ticking engine");
    let catalog = Catalog::load(&engine, |name| Source::File(component(name))).expect("components that fit");
    let (checker, instance) = Checker::open();
    let platform = Platform {
        store,
        archive: archive.clone(),
        topics,
        policies: Arc::new(archive.policies()),
        checker,
        policy_memory: POLICY_MEMORY,
        rules,
        metrics: Arc::new(Metrics::default()),
    };
    instance.start(&engine, &catalog, &platform);
    Functions::start(&engine, &catalog, &platform)
}

/// Loads the policy, until there is nothing more to load.
pub async fn warm_up(functions: &Functions) {
    while functions.platform.checker.refresh(1024, POLICY_MEMORY).await.expect("a policy that can be loaded").more {}
}
