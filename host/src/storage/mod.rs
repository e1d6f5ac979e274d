//! Where the state of this host is: opened at start, handed to the functions, and closed at the end.

mod embedded;
mod redis;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rollcall_store::{Copied, LastSeen, Policies, PostgresArchive, SqliteArchive, Store, Topics};

use crate::config::{ArchiveUrl, Config, StoreUrl, Url};
use crate::jobs::{Plan, Turn};
use crate::metrics::Metrics;
use crate::stats::OnlineCounter;

use embedded::Embedded;
use redis::Shared;

/// Hosts on one Redis that start together begin to load who may see whom within this, each at its own moment.
const SPREAD: Duration = Duration::from_secs(5);

/// The store, the archive, the topics and the policies.
pub(crate) struct Storage {
    /// Where sessions are.
    pub(crate) store: Arc<dyn Store>,
    /// Where last seen is kept for ever.
    pub(crate) archive: Arc<dyn LastSeen>,
    /// Where what changes can be watched.
    pub(crate) topics: Arc<dyn Topics>,
    /// Where it is kept who restricted, blocked, listed whom.
    pub(crate) policies: Arc<dyn Policies>,
    hot: Hot,
    /// Held for as long as the data directory is ours.
    _lock: Option<File>,
}

enum Hot {
    Embedded(Embedded),
    Redis(Shared),
}

impl Storage {
    /// Opens both, or says what is wrong. Tasks that keep connections alive run on the current runtime.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let lock = if needs_disk(config) { config.data.as_deref().map(take).transpose()? } else { None };
        match &config.store {
            StoreUrl::Memory => {
                let file = Arc::new(sqlite(config)?);
                let embedded = Embedded::open(config, Arc::clone(&file)).await?;
                let policies = Arc::new(file.policies());
                let archive: Arc<dyn LastSeen> = match &config.archive {
                    ArchiveUrl::WithStore | ArchiveUrl::Sqlite => file,
                    ArchiveUrl::Postgres(url) => Arc::new(PostgresArchive::open(url.reveal()).await?),
                };
                let store = Arc::clone(&embedded.memory) as Arc<dyn Store>;
                let topics = Arc::new(embedded.topics.clone());
                Ok(Self { store, archive, topics, policies, hot: Hot::Embedded(embedded), _lock: lock })
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
                let policies = Arc::clone(&shared.store) as Arc<dyn Policies>;
                let (lock, policies) = copied(config, url, lock, policies);
                Ok(Self { store, archive, topics, policies, hot: Hot::Redis(shared), _lock: lock })
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

    /// Within which time hosts that start together begin to load.
    pub(crate) fn spread(&self) -> Duration {
        match &self.hot {
            Hot::Embedded(_) => Duration::ZERO,
            Hot::Redis(_) => SPREAD,
        }
    }

    /// What is counted of the store itself.
    pub(crate) fn metrics(&self) -> Metrics {
        match &self.hot {
            Hot::Embedded(_) => Metrics::default(),
            Hot::Redis(shared) => Metrics::with_redis(Arc::clone(&shared.store)),
        }
    }

    /// Where people are counted.
    pub(crate) fn online_counter(&self) -> OnlineCounter {
        match &self.hot {
            Hot::Embedded(embedded) => OnlineCounter::Embedded(Arc::clone(&embedded.memory)),
            Hot::Redis(shared) => OnlineCounter::Redis(Arc::clone(&shared.store)),
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

/// Opens only what is kept of who may see whom, for a program that is no host; with the lock, if the directory is taken.
pub(crate) async fn policies(config: &Config) -> Result<(Arc<dyn Policies>, Option<File>)> {
    match (&config.store, &config.data) {
        (StoreUrl::Memory, None) => anyhow::bail!("with data = none the embedded store keeps nothing on disk"),
        (StoreUrl::Memory, Some(directory)) => {
            let lock = take(directory).context("the embedded store is used by its host alone: stop that first")?;
            Ok((Arc::new(sqlite(config)?.policies()), Some(lock)))
        }
        (StoreUrl::Redis(url), _) => Ok((redis::open(config, url).await?, None)),
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
            Some(directory) => format!("Last seen, choices and privacy are kept in {}.", directory.display()),
            None => "Nothing is kept on disk.".to_owned(),
        },
        (StoreUrl::Memory, ArchiveUrl::Postgres(url)) => {
            format!("Choices and privacy are kept {}, and last seen in {url}.", disk())
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

/// Where sessions are, in a word.
pub(crate) fn store_name(config: &Config) -> &'static str {
    match &config.store {
        StoreUrl::Memory => "memory",
        StoreUrl::Redis(url) if url.reveal().split("://").next().is_some_and(|scheme| scheme.ends_with("+cluster")) => {
            "redis cluster"
        }
        StoreUrl::Redis(_) => "redis",
    }
}

/// Where last seen is kept for ever, in a word.
pub(crate) fn archive_name(config: &Config) -> &'static str {
    match (&config.store, &config.archive, &config.data) {
        (_, ArchiveUrl::Postgres(_), _) => "postgres",
        (StoreUrl::Redis(_), ArchiveUrl::WithStore, _) => "redis",
        (_, _, None) => "none",
        (_, _, Some(_)) => "sqlite",
    }
}

fn needs_disk(config: &Config) -> bool {
    config.store == StoreUrl::Memory || config.archive == ArchiveUrl::Sqlite
}

/// The same policies with a copy on disk, where there is a directory for one. It only spares reading, so a host that cannot
/// have it goes on without.
fn copied(
    config: &Config,
    url: &Url,
    lock: Option<File>,
    policies: Arc<dyn Policies>,
) -> (Option<File>, Arc<dyn Policies>) {
    let Some(directory) = &config.data else { return (lock, policies) };
    match lock.map_or_else(|| take(directory), Ok) {
        Ok(lock) => {
            let identity = format!("{url} in {} shards", config.shards);
            let copied = Copied::open(policies, directory.join("policy.copy"), &identity);
            (Some(lock), Arc::new(copied))
        }
        Err(error) => {
            tracing::info!("keeps no copy of who may see whom: {error:#}");
            (None, policies)
        }
    }
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
