//! Sessions in this process, and the file with what must outlive it.

use std::sync::Arc;

use anyhow::{Context, Result};
use rollcall_functions::capabilities::Shards;
use rollcall_store::memory::{LocalTopics, Options};
use rollcall_store::{Clock, Memory, SessionStore, SqliteArchive};

use crate::config::Config;
use crate::jobs::{Partition, SessionJobs};

/// The embedded store and what it keeps on disk.
pub(super) struct Embedded {
    pub(super) memory: Arc<Memory>,
    pub(super) topics: LocalTopics,
    file: Arc<SqliteArchive>,
}

impl Embedded {
    pub(super) async fn open(config: &Config, file: Arc<SqliteArchive>) -> Result<Self> {
        let clock = Clock::system();
        let saved = file.load_saved(clock.now()).await.context("cannot read what the last run saved")?;
        if !saved.sessions.is_empty() {
            tracing::info!(sessions = saved.sessions.len(), "Sessions of the last run restored");
        }
        let topics = LocalTopics::new(clock.clone());
        let options = Options {
            shards: config.shards,
            clock,
            on_publish: Some(topics.publish_hook()),
            choice_store: Some(file.clone()),
        };
        let memory = Arc::new(Memory::restored(options, saved, config.rules().alive_for()));
        Ok(Self { memory, topics, file })
    }

    /// The jobs of each worker.
    pub(super) fn jobs(&self, workers: u32) -> Vec<SessionJobs> {
        let all = Shards { first: 0, end: self.memory.shards() };
        let jobs = |index| {
            let shards = Partition { index, count: workers }.of(all);
            SessionJobs::Embedded { memory: Arc::clone(&self.memory), shards }
        };
        (0..workers).map(jobs).collect()
    }

    /// Deletes the sessions that the last run saved: from now on this run's are current.
    pub(super) async fn opened(&self) -> Result<()> {
        self.file.forget_saved().await.context("cannot delete the last run's sessions")
    }

    /// Saves every session, so that a graceful restart causes no presence events.
    pub(super) async fn save(&self) -> Result<()> {
        let sessions = self.memory.export();
        let count = sessions.len();
        self.file.save(self.memory.now(), sessions).await.context("cannot save the sessions")?;
        tracing::info!(sessions = count, "Sessions saved");
        Ok(())
    }
}
