//! Where the state of this host is: opened at start, handed to the functions, and closed at the end.

mod embedded;
mod redis;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rollcall_store::{LastSeen, PostgresArchive, SqliteArchive, Store, Topics};

use crate::config::{ArchiveUrl, Config, StoreUrl};
use crate::metrics::Metrics;
use crate::rounds::{Plan, Turn};

use embedded::Embedded;
use redis::Shared;

/// The store, the archive and the topics.
pub(crate) struct Backing {
    /// Where sessions are.
    pub(crate) store: Arc<dyn Store>,
    /// Where last seen is kept for ever.
    pub(crate) archive: Arc<dyn LastSeen>,
    /// Where what changes can be watched.
    pub(crate) topics: Arc<dyn Topics>,
    hot: Hot,
    /// Held for as long as the data directory is ours.
    _lock: Option<File>,
}

enum Hot {
    Embedded(Embedded),
    Redis(Shared),
}

impl Backing {
    /// Opens both, or says what is wrong. Tasks that keep connections alive run on the current runtime.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let lock = if needs_disk(config) { config.data.as_deref().map(take).transpose()? } else { None };
        match &config.store {
            StoreUrl::Memory => {
                let file = Arc::new(sqlite(config)?);
                let embedded = Embedded::open(config, Arc::clone(&file)).await?;
                let archive: Arc<dyn LastSeen> = match &config.archive {
                    ArchiveUrl::WithStore | ArchiveUrl::Sqlite => file,
                    ArchiveUrl::Postgres(url) => Arc::new(PostgresArchive::open(url.reveal()).await?),
                };
                let store = Arc::clone(&embedded.memory) as Arc<dyn Store>;
                let topics = Arc::new(embedded.topics.clone());
                Ok(Self { store, archive, topics, hot: Hot::Embedded(embedded), _lock: lock })
            }
            StoreUrl::Redis(url) => {
                let shared = Shared::open(config, url).await?;
                let archive: Arc<dyn LastSeen> = match &config.archive {
                    ArchiveUrl::WithStore => Arc::clone(&shared.store) as Arc<dyn LastSeen>,
                    ArchiveUrl::Sqlite => Arc::new(sqlite(config)?),
                    ArchiveUrl::Postgres(url) => Arc::new(PostgresArchive::open(url.reveal()).await?),
                };
                let store = Arc::clone(&shared.store) as Arc<dyn Store>;
                let topics = Arc::clone(&shared.store) as Arc<dyn Topics>;
                Ok(Self { store, archive, topics, hot: Hot::Redis(shared), _lock: lock })
            }
        }
    }

    /// What each of so many workers does although nobody calls.
    pub(crate) fn plans(&self, workers: u32) -> Vec<Plan> {
        match &self.hot {
            Hot::Embedded(embedded) => (0..workers).map(|index| embedded.plan(Turn { index, of: workers })).collect(),
            Hot::Redis(shared) => shared.plans(workers),
        }
    }

    /// What is counted of the store itself.
    pub(crate) fn metrics(&self) -> Metrics {
        match &self.hot {
            Hot::Embedded(_) => Metrics::default(),
            Hot::Redis(shared) => Metrics::with_redis(Arc::clone(&shared.store)),
        }
    }

    /// Once the service is there for everybody to use.
    pub(crate) async fn opened(&self) -> Result<()> {
        match &self.hot {
            Hot::Embedded(embedded) => embedded.opened().await,
            Hot::Redis(_) => Ok(()),
        }
    }

    /// Once nobody uses it any more.
    pub(crate) async fn close(&self) -> Result<()> {
        match &self.hot {
            Hot::Embedded(embedded) => embedded.save().await,
            Hot::Redis(shared) => {
                shared.leave().await;
                Ok(())
            }
        }
    }
}

/// Says where everything is, to people.
pub(crate) fn described(config: &Config) -> String {
    let disk = || match &config.data {
        Some(directory) => format!("in {}", directory.display()),
        None => "nowhere: nothing is kept on disk".to_owned(),
    };
    match (&config.store, &config.archive) {
        (StoreUrl::Memory, ArchiveUrl::WithStore | ArchiveUrl::Sqlite) => match &config.data {
            Some(directory) => format!("Last seen and choices are kept in {}.", directory.display()),
            None => "Nothing is kept on disk.".to_owned(),
        },
        (StoreUrl::Memory, ArchiveUrl::Postgres(url)) => {
            format!("Choices are kept {}, and last seen in {url}.", disk())
        }
        (StoreUrl::Redis(store), ArchiveUrl::WithStore) => format!("Everything is kept in {store}."),
        (StoreUrl::Redis(store), ArchiveUrl::Sqlite) => {
            format!("Sessions are kept in {store}, and last seen {}, for this host alone.", disk())
        }
        (StoreUrl::Redis(store), ArchiveUrl::Postgres(url)) => {
            format!("Sessions are kept in {store}, and last seen in {url}.")
        }
    }
}

fn needs_disk(config: &Config) -> bool {
    config.store == StoreUrl::Memory || config.archive == ArchiveUrl::Sqlite
}

/// Makes the data directory if need be, and takes it for this process alone: two on one directory would each undo what
/// the other keeps.
fn take(directory: &Path) -> Result<File> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the data directory {}", directory.display()))?;
    let path = directory.join("lock");
    let file =
        File::create(&path).with_context(|| format!("cannot write to the data directory: {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("another rollcall is using the data directory {}", directory.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn sqlite(config: &Config) -> Result<SqliteArchive> {
    Ok(match &config.data {
        None => SqliteArchive::in_memory()?,
        Some(directory) => SqliteArchive::open(directory.join("rollcall.sqlite"))?,
    })
}
