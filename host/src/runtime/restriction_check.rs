//! `restriction-check`, which holds policy in memory: its calls, and how a worker asks an instance on any thread.

use rollcall_contract::host::convert::{answers, each};
use rollcall_contract::host::functions::restriction_check::{RestrictionCheckFunction, RestrictionCheckFunctionPre};
use rollcall_contract::host::wit::policy_types;
use rollcall_core::policy::{PolicyChange, Verdict};
use rollcall_core::{Error, Ids, UserId};
use rollcall_functions::capabilities::OwnSettings;
use rollcall_functions::restrictions::Freshness;
use wasmtime::component::Accessor;
use wasmtime::{Engine, Result, Store};

use super::catalog::Catalog;
use super::functions::Answers;
use super::instance_queue::{Function, InstanceQueue, Queue, Reply, function};
use super::limits::MEMORY_LIMIT_BYTES;
use super::platform::{Platform, StoreData};

/// A call of `restriction-check`.
pub(crate) enum CheckCall {
    /// What the viewer may see of these subjects.
    Check(Option<UserId>, Ids<UserId>, Reply<Vec<Verdict>>),
    /// Apply these changes.
    Apply(Vec<PolicyChange>, Reply<Answers<()>>),
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
    pub async fn apply(&self, changes: Vec<PolicyChange>) -> Result<Answers<()>, Error> {
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
    function!("restriction-check", CheckCall, RestrictionCheckFunctionPre);

    /// The policy memory, a quarter of it for the allocator's overhead, and the limit of every function.
    fn memory_limit(platform: &Platform) -> usize {
        let policy = usize::try_from(platform.policy_memory).unwrap_or(usize::MAX);
        policy.saturating_add(policy / 4).saturating_add(MEMORY_LIMIT_BYTES)
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: CheckCall) -> Result<()> {
        let function = self.rollcall_presence_restrictions();
        match call {
            CheckCall::Check(viewer, subjects, reply) => {
                let (viewer, subjects) = (viewer.map(UserId::into_string), subjects.into());
                let check = self.rollcall_presence_restriction_check();
                let verdicts = check.call_check(accessor, viewer, subjects).await?;
                let _ = reply.send(verdicts.map(each).map_err(Error::from));
            }
            CheckCall::Apply(changes, reply) => {
                let changes: Vec<policy_types::PolicyChange> = each(changes);
                let _ = reply.send(answers(function.call_apply(accessor, changes).await?));
            }
            CheckCall::Refresh(limit, memory_bytes, reply) => {
                let freshness = function.call_refresh(accessor, limit, memory_bytes).await?;
                let _ = reply.send(freshness.map_err(Error::from).and_then(|freshness| Ok(freshness.try_into()?)));
            }
            CheckCall::SettingsOf(user, reply) => {
                let own = function.call_settings_of(accessor, user.into_string()).await?;
                let _ = reply.send(own.map_err(Error::from).and_then(|own| Ok(own.try_into()?)));
            }
        }
        Ok(())
    }
}
