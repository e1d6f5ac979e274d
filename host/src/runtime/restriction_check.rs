//! `restriction-check`, which holds policy in memory: its calls, and how a worker asks an instance on any thread.

use rollcall_core::policy::{Change, Invalidation, Ruling, Verdict};
use rollcall_core::{Error, Ids, Invalid, UserId};
use rollcall_functions::capabilities::OwnSettings;
use rollcall_functions::restrictions::{CacheState, Freshness};
use wasmtime::component::Accessor;
use wasmtime::{Engine, Result, Store};

use super::bindings::platform::rollcall::presence::restriction_check as import;
use super::bindings::restriction_check::exports::rollcall::presence::{restriction_check, restrictions};
use super::bindings::restriction_check::{RestrictionCheckFunction, RestrictionCheckFunctionPre};
use super::catalog::Catalog;
use super::codec;
use super::functions::{Answers, answer};
use super::instance_queue::{Function, InstanceQueue, Queue, Reply};
use super::limits::MEMORY_LIMIT_BYTES;
use super::platform::{Platform, StoreData};
use super::policy;

/// A call of `restriction-check`.
pub(crate) enum CheckCall {
    /// What the viewer may see of these subjects.
    Check(Option<UserId>, Ids<UserId>, Reply<Vec<Verdict>>),
    /// Apply these changes.
    Apply(Vec<Change>, Reply<Answers<()>>),
    /// Catch up with the store.
    Refresh(u32, u64, Reply<Freshness>),
    /// A user's own settings.
    SettingsOf(UserId, Reply<OwnSettings>),
}

/// Asks one instance of `restriction-check`, on this thread or on another.
#[derive(Clone)]
pub struct Checker(InstanceQueue<CheckCall>);

/// The other end: an instance that is yet to be started, on the thread it will run on.
pub struct CheckerInstance(Queue<CheckCall>);

impl Checker {
    /// Both ends.
    pub fn open() -> (Self, CheckerInstance) {
        let (calls, queue) = InstanceQueue::open();
        (Self(calls), CheckerInstance(queue))
    }

    /// What the viewer may see of each subject, in the order asked.
    pub async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error> {
        let count = subjects.len();
        let verdicts = self.0.call(|reply| CheckCall::Check(viewer, subjects, reply)).await?;
        // A replacement component may be faulty, and a missing verdict would show a user to a viewer they are hidden from.
        match verdicts.len() == count {
            true => Ok(verdicts),
            false => Err(Error::Other("restriction-check returned the wrong number of verdicts".to_owned())),
        }
    }

    /// Applies changes. They are in force in this instance when this returns.
    pub async fn apply(&self, changes: Vec<Change>) -> Result<Answers<()>, Error> {
        self.0.call(|reply| CheckCall::Apply(changes, reply)).await
    }

    /// Catches up with the store by a page, or by about `limit` changes, within this much memory.
    pub async fn refresh(&self, limit: u32, memory_bytes: u64) -> Result<Freshness, Error> {
        // Without a timeout: each invalidation is reported once, and must not be lost with a late answer.
        self.0.call_untimed(|reply| CheckCall::Refresh(limit, memory_bytes, reply)).await
    }

    /// A user's own settings.
    pub async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        self.0.call(|reply| CheckCall::SettingsOf(user, reply)).await
    }
}

impl CheckerInstance {
    /// Starts the instance on the current thread's local task set.
    pub fn start(self, engine: &Engine, catalog: &Catalog, platform: &Platform) {
        let pre = catalog.restriction_check.clone();
        self.0.serve::<RestrictionCheckFunction>(engine.clone(), pre, platform.clone());
    }
}

impl Function for RestrictionCheckFunction {
    const NAME: &'static str = "restriction-check";
    const JOB: &'static str = "instance-restriction-check";
    type Call = CheckCall;
    type Pre = RestrictionCheckFunctionPre<StoreData>;

    /// The policy memory, a quarter of it for the allocator's overhead, and the limit of every function.
    fn memory_limit(platform: &Platform) -> usize {
        let policy = usize::try_from(platform.policy_memory).unwrap_or(usize::MAX);
        policy.saturating_add(policy / 4).saturating_add(MEMORY_LIMIT_BYTES)
    }

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: CheckCall) -> Result<()> {
        let function = self.rollcall_presence_restrictions();
        match call {
            CheckCall::Check(viewer, subjects, reply) => {
                let (viewer, subjects) = (viewer.map(UserId::into_string), codec::ids_out(subjects));
                let check = self.rollcall_presence_restriction_check();
                let verdicts = check.call_check(accessor, viewer, subjects).await?.map_err(codec::error_in);
                let _ = reply.send(verdicts.map(|verdicts| verdicts.into_iter().map(verdict_in).collect()));
            }
            CheckCall::Apply(changes, reply) => {
                let changes: Vec<_> = changes.into_iter().map(policy::change_out).collect();
                answer(reply, function.call_apply(accessor, changes).await?, |()| ());
            }
            CheckCall::Refresh(limit, memory_bytes, reply) => {
                let freshness = function.call_refresh(accessor, limit, memory_bytes).await?;
                let freshness = freshness.map_err(codec::error_in);
                let _ = reply.send(freshness.and_then(|freshness| Ok(freshness_in(freshness)?)));
            }
            CheckCall::SettingsOf(user, reply) => {
                let own = function.call_settings_of(accessor, user.into_string()).await?.map_err(codec::error_in);
                let _ = reply.send(own.and_then(|own| Ok(policy::own_settings_in(own)?)));
            }
        }
        Ok(())
    }
}

fn verdict_in(verdict: restriction_check::Verdict) -> Verdict {
    let presence = match verdict.presence {
        restriction_check::Ruling::Allowed => Ruling::Allowed,
        restriction_check::Ruling::Restricted => Ruling::Restricted,
        restriction_check::Ruling::Blocked => Ruling::Blocked,
        restriction_check::Ruling::Private => Ruling::Private,
    };
    Verdict { presence, last_seen: verdict.last_seen }
}

/// A verdict, for a function that imports the check.
pub(super) fn verdict_out(verdict: Verdict) -> import::Verdict {
    let presence = match verdict.presence {
        Ruling::Allowed => import::Ruling::Allowed,
        Ruling::Restricted => import::Ruling::Restricted,
        Ruling::Blocked => import::Ruling::Blocked,
        Ruling::Private => import::Ruling::Private,
    };
    import::Verdict { presence, last_seen: verdict.last_seen }
}

fn freshness_in(freshness: restrictions::Freshness) -> Result<Freshness, Invalid> {
    Ok(Freshness {
        state: match freshness.standing {
            restrictions::Standing::Cold => CacheState::Cold,
            restrictions::Standing::Loading => CacheState::Loading,
            restrictions::Standing::Warm => CacheState::Warm,
            restrictions::Standing::TooLarge => CacheState::TooLarge,
        },
        more: freshness.more,
        caught_up: freshness.caught_up,
        applied: freshness.applied,
        bytes: freshness.bytes,
        restricted: freshness.restricted,
        blocks: freshness.blocks,
        invalidated: freshness.invalidated.into_iter().map(invalidation_in).collect::<Result<_, _>>()?,
    })
}

fn invalidation_in(invalidation: restrictions::Invalidation) -> Result<Invalidation, Invalid> {
    Ok(match invalidation {
        restrictions::Invalidation::Subject(user) => Invalidation::Subject(UserId::parse(user)?),
        restrictions::Invalidation::Pair((one, other)) => {
            Invalidation::Pair(UserId::parse(one)?, UserId::parse(other)?)
        }
        restrictions::Invalidation::Numbers(page) => Invalidation::Numbers(page),
        restrictions::Invalidation::Everybody => Invalidation::Everybody,
    })
}
