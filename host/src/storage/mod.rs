//! The stores of this host: opened at start, handed to the functions, closed at the end.

mod embedded;
mod redis;

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rollcall_store::{ArchiveStore, LocalCopy, PolicyStore, PostgresArchive, SessionStore, SqliteArchive, TopicStore};

use crate::config::{ArchiveUrl, Config, StoreUrl, Url};
use crate::jobs::{SessionJobs, Supervisor};
use crate::metrics::Metrics;
use crate::runtime::{Checker, Platform};
use crate::stats::OnlineCounter;

use embedded::Embedded;
use redis::RedisStorage;

/// Hosts on one Redis begin to load the policy at a random time within this, so that hosts that start together do not load
/// together.
const LOAD_SPREAD: Duration = Duration::from_secs(5);

/// The store, the archive, the topics and the policies.
pub(crate) struct Storage {
    /// The hot store.
    pub(crate) store: Arc<dyn SessionStore>,
    /// The archive of last seen.
    pub(crate) archive: Arc<dyn ArchiveStore>,
    /// Topics of changes, and typing signals.
    pub(crate) topics: Arc<dyn TopicStore>,
    /// Restrictions, blocks, contacts and privacy.
    pub(crate) policies: Arc<dyn PolicyStore>,
    hot: HotStore,
    /// The lock on the data directory.
    _lock: Option<File>,
}

enum HotStore {
    Embedded(Embedded),
    Redis(RedisStorage),
}

impl Storage {
    /// Opens the stores. Connections are maintained on the current runtime.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let lock = if needs_disk(config) { config.data.as_deref().map(lock).transpose()? } else { None };
        match &config.store {
            StoreUrl::Memory => {
                let file = Arc::new(sqlite(config)?);
                let embedded = Embedded::open(config, Arc::clone(&file)).await?;
                let policies = Arc::new(file.policies());
                let archive: Arc<dyn ArchiveStore> = match &config.archive {
                    ArchiveUrl::WithStore | ArchiveUrl::Sqlite => file,
                    ArchiveUrl::Postgres(url) => Arc::new(PostgresArchive::open(url.reveal()).await?),
                };
                let store = Arc::clone(&embedded.memory) as Arc<dyn SessionStore>;
                let topics = Arc::new(embedded.topics.clone());
                Ok(Self { store, archive, topics, policies, hot: HotStore::Embedded(embedded), _lock: lock })
            }
            StoreUrl::Redis(url) => {
                let redis_storage = RedisStorage::open(config, url).await?;
                let archive: Arc<dyn ArchiveStore> = match &config.archive {
                    ArchiveUrl::WithStore => Arc::clone(&redis_storage.store) as Arc<dyn ArchiveStore>,
                    ArchiveUrl::Sqlite => Arc::new(sqlite(config)?),
                    ArchiveUrl::Postgres(url) => Arc::new(PostgresArchive::open(url.reveal()).await?),
                };
                let store = Arc::clone(&redis_storage.store) as Arc<dyn SessionStore>;
                let topics = Arc::clone(&redis_storage.store) as Arc<dyn TopicStore>;
                let policies = Arc::clone(&redis_storage.store) as Arc<dyn PolicyStore>;
                let (lock, policies) = copied(config, url, lock, policies);
                Ok(Self { store, archive, topics, policies, hot: HotStore::Redis(redis_storage), _lock: lock })
            }
        }
    }

    /// The capabilities of the functions over these stores.
    pub(crate) fn platform(&self, config: &Config, checker: Checker) -> Platform {
        let metrics = match &self.hot {
            HotStore::Embedded(_) => Metrics::default(),
            HotStore::Redis(redis_storage) => Metrics::with_redis(Arc::clone(&redis_storage.store)),
        };
        Platform {
            store: Arc::clone(&self.store),
            archive: Arc::clone(&self.archive),
            topics: Arc::clone(&self.topics),
            policies: Arc::clone(&self.policies),
            checker,
            policy_memory: config.policy_memory,
            rules: config.rules(),
            metrics: Arc::new(metrics),
        }
    }

    /// Starts the jobs that a host has once, on the current runtime. Returns the jobs of each worker.
    pub(crate) fn start_jobs(&self, supervisor: &Supervisor, workers: u32) -> Vec<SessionJobs> {
        match &self.hot {
            HotStore::Embedded(embedded) => embedded.jobs(workers),
            HotStore::Redis(redis_storage) => redis_storage.start_jobs(supervisor, workers),
        }
    }

    /// Within which time hosts that start together begin to load the policy.
    pub(crate) fn load_spread(&self) -> Duration {
        match &self.hot {
            HotStore::Embedded(_) => Duration::ZERO,
            HotStore::Redis(_) => LOAD_SPREAD,
        }
    }

    /// Counts the users who are online.
    pub(crate) fn online_counter(&self) -> OnlineCounter {
        match &self.hot {
            HotStore::Embedded(embedded) => OnlineCounter::Embedded(Arc::clone(&embedded.memory)),
            HotStore::Redis(redis_storage) => OnlineCounter::Redis(Arc::clone(&redis_storage.store)),
        }
    }

    /// To be called when the host serves requests.
    pub(crate) async fn opened(&self) -> Result<()> {
        match &self.hot {
            HotStore::Embedded(embedded) => embedded.opened().await,
            HotStore::Redis(_) => Ok(()),
        }
    }

    /// To be called when the workers have ended.
    pub(crate) async fn close(&self) -> Result<()> {
        match &self.hot {
            HotStore::Embedded(embedded) => embedded.save().await,
            HotStore::Redis(redis_storage) => {
                redis_storage.leave().await;
                Ok(())
            }
        }
    }
}

/// Opens only the policies, for a command that is no host. Also returns the lock on the data directory, if it took one.
pub(crate) async fn policies(config: &Config) -> Result<(Arc<dyn PolicyStore>, Option<File>)> {
    match (&config.store, &config.data) {
        (StoreUrl::Memory, None) => anyhow::bail!("with data = none the embedded store keeps nothing on disk"),
        (StoreUrl::Memory, Some(directory)) => {
            let lock = lock(directory).context("only one process can use the embedded store: stop the host first")?;
            Ok((Arc::new(sqlite(config)?.policies()), Some(lock)))
        }
        (StoreUrl::Redis(url), _) => Ok((redis::open(config, url).await?, None)),
    }
}

/// Describes where data is kept, for the first lines of output.
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

/// The name of the hot store.
pub(crate) fn store_name(config: &Config) -> &'static str {
    match &config.store {
        StoreUrl::Memory => "memory",
        StoreUrl::Redis(url) if url.reveal().split("://").next().is_some_and(|scheme| scheme.ends_with("+cluster")) => {
            "redis cluster"
        }
        StoreUrl::Redis(_) => "redis",
    }
}

/// The name of the archive.
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

/// The same policies with a copy on disk, if there is a data directory. The copy only saves reading, so a host that cannot
/// have one runs without.
fn copied(
    config: &Config,
    url: &Url,
    lock: Option<File>,
    policies: Arc<dyn PolicyStore>,
) -> (Option<File>, Arc<dyn PolicyStore>) {
    let Some(directory) = &config.data else { return (lock, policies) };
    match lock.map_or_else(|| self::lock(directory), Ok) {
        Ok(lock) => {
            let identity = format!("{url} in {} shards", config.shards);
            let copied = LocalCopy::open(policies, directory.join("policy.copy"), &identity);
            (Some(lock), Arc::new(copied))
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::info!(error, "Cannot keep a copy of the policy on disk; loading it from Redis at every start");
            (None, policies)
        }
    }
}

/// Creates the data directory if it is missing, and locks it: two processes would overwrite each other's data.
fn lock(directory: &Path) -> Result<File> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the data directory {}", directory.display()))?;
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
