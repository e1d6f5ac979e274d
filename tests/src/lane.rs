//! The functions in this very process: the built components in the host's own engine, on a store that a test can see.

use std::sync::Arc;

use rollcall_core::{Rules, Time};
use rollcall_host::engine::{Catalog, Crew, Platform, Source, engine, tick};
use rollcall_host::metrics::Metrics;
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{Clock, Memory, SqliteArchive};

/// A crew of functions and what they rest on.
pub struct Bench {
    /// The functions.
    pub crew: Crew,
    /// The store beneath them.
    pub memory: Arc<Memory>,
    /// The archive beneath them.
    pub archive: Arc<SqliteArchive>,
    /// The store's clock, which moves only when told to.
    pub clock: Clock,
}

/// Runs `test` on a thread of its own with a crew of warm functions. `replace` names components to be taken from a file
/// instead of the ordinary ones.
pub fn on_a_worker<F>(rules: Rules, replace: &[(&str, &str)], test: impl FnOnce(Bench) -> F)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = engine().expect("an engine");
        tick(&engine).expect("a ticking engine");
        let file = |name: &str| replace.iter().find(|(n, _)| *n == name).map_or(name, |(_, file)| *file).to_owned();
        let source = |name: &str| Source::File(crate::component(&file(name)));
        let catalog = Catalog::load(&engine, source).expect("components that fit");
        let clock = Clock::manual(Time(1_700_000_000_000));
        let topics = LocalTopics::new(clock.clone());
        let options = Options { clock: clock.clone(), listener: Some(topics.listener()), ..Options::default() };
        let memory = Arc::new(Memory::new(options));
        let archive = Arc::new(SqliteArchive::in_memory().expect("an archive"));
        let metrics = Arc::new(Metrics::default());
        let topics = Arc::new(topics);
        let platform = Platform { store: memory.clone(), archive: archive.clone(), topics, rules, metrics };
        let crew = Crew::start(&engine, &catalog, &platform);
        test(Bench { crew, memory, archive, clock }).await;
    });
}
