//! The export side of adapters: the contract's capabilities over whatever an adapter brings.
//!
//! An adapter implements [`Adapter`] and exports [`Exports`] of itself with `export_platform!` and `export_archive!`.
//! One that streams changes implements [`TopicsAdapter`] and exports with `export_topics!`, in addition to the others or
//! instead of them. Decoding, checking and encoding is done here: functions are untrusted, so ids are checked again,
//! and an invalid item fails alone wherever the answer has a place for it.
//!
//! One instance serves many calls at once, and a panic would end them all: nothing here panics.

mod shared;
#[cfg(any(not(feature = "sync"), feature = "wasi-0.2"))]
#[cfg_attr(feature = "sync", path = "stream_sync.rs")]
mod stream;
#[cfg(any(not(feature = "sync"), feature = "wasi-0.2"))]
mod topics;
mod watch;

use std::marker::PhantomData;
use std::rc::Rc;

use rollcall_core::policy::MAX_SUBJECTS;
use rollcall_core::{Error, Rules, UserId};
use rollcall_functions::batch::{fit, touches};
use rollcall_functions::capabilities::{
    Archive, MAX_BATCH, MAX_LAST_SEEN_ENTRIES, Policy, Sessions, Shards, Touched, Typing, bounded,
};

use super::convert::{all, each, replies};
use super::exports::{archive, platform};
use super::wit::{config, policy_types, session_types, types};
use crate::exported;

pub use shared::SharedConnection;
pub use watch::ChangeSource;

/// When to retry after the platform was unreachable: a reconnection takes a few tenths of a second.
pub const RETRY_MS: u32 = 500;

/// How each commit or eviction ended.
type Outcomes = Vec<Result<session_types::Committed, types::Error>>;

/// Implements the capabilities of the contract on what a platform offers.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait Adapter: 'static {
    /// Everything that is answered without a stream.
    type Platform: Sessions + Archive + Policy + Typing;

    /// The capabilities as configured, made once per instance. An error names the setting that is wrong.
    fn configured() -> Result<Rc<Configured<Self::Platform>>, String>;
}

/// An adapter that streams changes.
#[allow(async_fn_in_trait, reason = "an adapter runs on one thread")]
pub trait TopicsAdapter: Adapter {
    /// Users being watched.
    type Source: ChangeSource;

    /// Watches these users, which are distinct.
    async fn watch(users: Vec<UserId>) -> Result<Self::Source, Error>;

    /// Runs a task after the call that started it has returned: `wit_bindgen::spawn_local`, which exists only in a
    /// component built with `async-spawn`.
    #[cfg(not(feature = "sync"))]
    fn spawn(task: impl Future<Output = ()> + 'static);
}

/// The capabilities of an instance and its rules.
#[derive(Debug)]
pub struct Configured<P> {
    /// The rules in force.
    pub rules: Rules,
    /// The capabilities.
    pub platform: Rc<P>,
}

/// The value of a setting; `None` if it is not set.
pub fn setting(name: &str) -> Option<String> {
    config::get(name)
}

/// The capabilities of this adapter. If a setting is invalid, every call fails and names it.
fn configured<A: Adapter>() -> Result<Rc<Configured<A::Platform>>, Error> {
    A::configured().map_err(Error::Other)
}

/// The contract's exports for an adapter.
pub struct Exports<A>(PhantomData<A>);

impl<A: Adapter> platform::settings::Guest for Exports<A> {
    /// If a setting is invalid, these are the defaults, because this call cannot fail. Every other call then fails and
    /// names the setting.
    fn current() -> types::Rules {
        (&A::configured().map_or(Rules::STANDARD, |configured| configured.rules)).into()
    }
}

impl<A: Adapter> platform::sessions::Guest for Exports<A> {
    exported! {
        async fn touch_many(asked: session_types::Touches) -> Result<session_types::Touched, types::Error> {
            let configured = configured::<A>()?;
            let session_types::Touches { users, devices, events } = asked;
            let (users, devices) = ((users.text, users.lengths), (devices.text, devices.lengths));
            let (touches, refused) = touches(users, devices, each(events))?;
            let Touched { now, prior } = configured.platform.touch_many(touches).await?;
            Ok(Touched { now, prior: refused.among(prior) }.into())
        }

        async fn read_many(users: types::Ids) -> Result<session_types::Records, types::Error> {
            let configured = configured::<A>()?;
            bounded(users.lengths.len(), MAX_BATCH)?;
            Ok(configured.platform.read_many(users.try_into()?).await?.into())
        }

        async fn load_many(users: Vec<String>) -> Result<session_types::Loaded, types::Error> {
            let configured = configured::<A>()?;
            bounded(users.len(), MAX_BATCH)?;
            let (users, refused) = fit(users, UserId::parse);
            let mut loaded = configured.platform.load_many(users).await?;
            loaded.sessions = refused.among(loaded.sessions);
            Ok(loaded.into())
        }

        async fn commit_many(commits: Vec<session_types::Commit>) -> Result<Outcomes, types::Error> {
            let configured = configured::<A>()?;
            bounded(commits.len(), MAX_BATCH)?;
            let (commits, refused) = fit(commits, TryInto::try_into);
            Ok(replies(refused.among(configured.platform.commit_many(commits).await?)))
        }

        async fn due(first: u32, end: u32, limit: u32) -> Result<Vec<String>, types::Error> {
            let due = configured::<A>()?.platform.due(Shards { first, end }, limit).await?;
            Ok(due.into_iter().map(UserId::into_string).collect())
        }

        async fn evictable(first: u32, end: u32, limit: u32) -> Result<Vec<String>, types::Error> {
            let evictable = configured::<A>()?.platform.evictable(Shards { first, end }, limit).await?;
            Ok(evictable.into_iter().map(UserId::into_string).collect())
        }

        async fn evict_many(evictions: Vec<session_types::Eviction>) -> Result<Outcomes, types::Error> {
            let configured = configured::<A>()?;
            bounded(evictions.len(), MAX_BATCH)?;
            let (evictions, refused) = fit(evictions, TryInto::try_into);
            Ok(replies(refused.among(configured.platform.evict_many(evictions).await?)))
        }
    }
}

impl<A: Adapter> archive::archive::Guest for Exports<A> {
    exported! {
        async fn put_many(entries: Vec<types::LastSeenEntry>) -> Result<(), types::Error> {
            put_many(&*configured::<A>()?.platform, entries).await
        }

        async fn get_many(users: types::Ids) -> Result<Vec<Option<u64>>, types::Error> {
            get_many(&*configured::<A>()?.platform, users).await
        }
    }
}

/// `archive.put-many`, for an adapter that is only an archive.
pub async fn put_many(archive: &impl Archive, entries: Vec<types::LastSeenEntry>) -> Result<(), types::Error> {
    bounded(entries.len(), MAX_LAST_SEEN_ENTRIES)?;
    Ok(archive.put_many(all(entries)?).await?)
}

/// `archive.get-many`, for an adapter that is only an archive.
pub async fn get_many(archive: &impl Archive, users: types::Ids) -> Result<Vec<Option<u64>>, types::Error> {
    bounded(users.lengths.len(), MAX_LAST_SEEN_ENTRIES)?;
    Ok(archive.get_many(users.try_into()?).await?.into_iter().map(|time| time.map(|time| time.0)).collect())
}

impl<A: Adapter> platform::policy::Guest for Exports<A> {
    exported! {
        async fn relations(
            viewer: Option<String>,
            subjects: types::Ids,
        ) -> Result<Vec<policy_types::Relation>, types::Error> {
            let configured = configured::<A>()?;
            bounded(subjects.lengths.len(), MAX_SUBJECTS)?;
            let viewer = viewer.map(UserId::parse).transpose()?;
            Ok(each(configured.platform.relations(viewer, subjects.try_into()?).await?))
        }

        async fn settings_of(user: String) -> Result<policy_types::OwnSettings, types::Error> {
            let configured = configured::<A>()?;
            Ok(configured.platform.settings_of(UserId::parse(user)?).await?.into())
        }

        async fn snapshot(page: u32) -> Result<policy_types::PolicyPage, types::Error> {
            Ok(configured::<A>()?.platform.snapshot(page).await?.into())
        }

        async fn since(cursor: Vec<u64>, limit: u32) -> Result<policy_types::ChangesSince, types::Error> {
            Ok(configured::<A>()?.platform.since(cursor, limit).await?.into())
        }

        async fn apply_many(
            changes: Vec<policy_types::PolicyChange>,
        ) -> Result<Vec<Result<(), types::Error>>, types::Error> {
            let configured = configured::<A>()?;
            bounded(changes.len(), MAX_BATCH)?;
            let (changes, refused) = fit(changes, TryInto::try_into);
            Ok(replies(refused.among(configured.platform.apply_many(changes).await?)))
        }
    }
}
