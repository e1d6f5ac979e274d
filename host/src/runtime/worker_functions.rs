//! A worker's functions, called like plain async functions.

use rollcall_api::call::{Beat, ChoiceRequest, ChoiceResult, Departure, Standing, TypingUpdate, View};
use rollcall_contract::host::functions::heartbeat::HeartbeatFunction;
use rollcall_contract::host::functions::offline_sweep::OfflineSweepFunction;
use rollcall_contract::host::functions::query::QueryFunction;
use rollcall_contract::host::functions::subscribe::SubscribeFunction;
use rollcall_contract::host::functions::typing::TypingFunction;
use rollcall_core::policy::{PolicyChange, Verdict};
use rollcall_core::{ConversationId, Error, Ids, UserId};
use rollcall_functions::capabilities::{OwnSettings, Shards, Typist, Visibility};
use rollcall_functions::subscribe::InitialPresence;
use rollcall_functions::sweep::{Archived, Settled};
use wasmtime::Engine;

use super::catalog::Catalog;
use super::feed::Feed;
use super::functions::{Answers, HeartbeatCall, QueryCall, SubscribeCall, SweepCall, TypingCall};
use super::instance_queue::InstanceQueue;
use super::platform::Platform;

/// The warm functions of one worker thread.
#[derive(Clone)]
pub struct Functions {
    heartbeat: InstanceQueue<HeartbeatCall>,
    query: InstanceQueue<QueryCall>,
    subscribe: InstanceQueue<SubscribeCall>,
    typing: InstanceQueue<TypingCall>,
    sweep: InstanceQueue<SweepCall>,
    /// The capabilities under the functions.
    pub platform: Platform,
}

impl Functions {
    /// Starts the functions on the current thread's local task set.
    pub fn start(engine: &Engine, catalog: &Catalog, platform: &Platform) -> Self {
        Self {
            heartbeat: InstanceQueue::start::<HeartbeatFunction>(
                engine.clone(),
                catalog.heartbeat.clone(),
                platform.clone(),
            ),
            query: InstanceQueue::start::<QueryFunction>(engine.clone(), catalog.query.clone(), platform.clone()),
            subscribe: InstanceQueue::start::<SubscribeFunction>(
                engine.clone(),
                catalog.subscribe.clone(),
                platform.clone(),
            ),
            typing: InstanceQueue::start::<TypingFunction>(engine.clone(), catalog.typing.clone(), platform.clone()),
            sweep: InstanceQueue::start::<OfflineSweepFunction>(
                engine.clone(),
                catalog.offline_sweep.clone(),
                platform.clone(),
            ),
            platform: platform.clone(),
        }
    }

    /// Records one beat, batched with others that arrive at the same time.
    pub async fn beat(&self, beat: Beat) -> Result<Standing, Error> {
        self.heartbeat.call(|reply| HeartbeatCall::Gathered(vec![beat], vec![reply])).await
    }

    /// Records a batch of beats.
    pub async fn beat_many(&self, beats: Vec<Beat>) -> Result<Answers<Standing>, Error> {
        self.heartbeat.call(|reply| HeartbeatCall::Beats(beats, reply)).await
    }

    /// Records departures.
    pub async fn leave_many(&self, departures: Vec<Departure>) -> Result<Answers<Standing>, Error> {
        self.heartbeat.call(|reply| HeartbeatCall::Leave(departures, reply)).await
    }

    /// Records choices.
    pub async fn choose_many(&self, choices: Vec<ChoiceRequest>) -> Result<Answers<ChoiceResult>, Error> {
        self.heartbeat.call(|reply| HeartbeatCall::Choose(choices, reply)).await
    }

    /// Looks up users as the viewer may see them.
    pub async fn look_up(&self, viewer: Option<UserId>, users: Vec<UserId>) -> Result<Answers<Option<View>>, Error> {
        self.query.call(|reply| QueryCall::LookUp(viewer, users, reply)).await
    }

    /// Opens a subscription for a viewer who already watches `watching` users.
    pub async fn open(
        &self,
        viewer: Option<UserId>,
        watching: u32,
        users: Vec<UserId>,
    ) -> Result<Answers<InitialPresence>, Error> {
        self.subscribe.call(|reply| SubscribeCall::Open(viewer, watching, users, reply)).await
    }

    /// Feeds a viewer with changes, as a host without a hub would. This host has a hub and does not use it.
    pub async fn feed(&self, viewer: Option<UserId>, users: Vec<UserId>, since: Option<u64>) -> Result<Feed, Error> {
        self.subscribe.call(|reply| SubscribeCall::Feed(viewer, users, since, reply)).await
    }

    /// Records typing updates.
    pub async fn type_many(&self, updates: Vec<TypingUpdate>) -> Result<Answers<()>, Error> {
        self.typing.call(|reply| TypingCall::Type(updates, reply)).await
    }

    /// The typists of each conversation that the viewer may see.
    pub async fn typists(
        &self,
        viewer: Option<UserId>,
        conversations: Vec<ConversationId>,
    ) -> Result<Answers<Vec<Typist>>, Error> {
        self.typing.call(|reply| TypingCall::Typists(viewer, conversations, reply)).await
    }

    /// The verdict about each subject.
    pub async fn check(&self, viewer: Option<UserId>, subjects: Ids<UserId>) -> Result<Vec<Verdict>, Error> {
        self.platform.metrics.policy.checked(subjects.len());
        self.platform.checker.check(viewer, subjects).await
    }

    /// Applies policy changes.
    pub async fn apply(&self, changes: Vec<PolicyChange>) -> Result<Answers<()>, Error> {
        self.platform.checker.apply(changes).await
    }

    /// A user's own settings.
    pub async fn settings_of(&self, user: UserId) -> Result<OwnSettings, Error> {
        self.platform.checker.settings_of(user).await
    }

    /// What the viewer may see of each subject.
    pub async fn visibilities(&self, viewer: Option<UserId>, subjects: Vec<UserId>) -> Result<Vec<Visibility>, Error> {
        let verdicts = self.check(viewer, subjects.iter().collect()).await?;
        Ok(verdicts.into_iter().map(Verdict::visibility).collect())
    }

    /// Derives and settles these users.
    pub async fn settle(&self, users: Vec<UserId>) -> Result<Settled, Error> {
        self.sweep.call(|reply| SweepCall::Settle(users, reply)).await
    }

    /// Settles due users of these shards.
    pub async fn sweep(&self, shards: Shards, limit: u32) -> Result<Settled, Error> {
        self.sweep.call(|reply| SweepCall::Sweep(shards, limit, reply)).await
    }

    /// Archives last seen and evicts sessions in these shards.
    pub async fn archive(&self, shards: Shards, limit: u32) -> Result<Archived, Error> {
        self.sweep.call(|reply| SweepCall::Archive(shards, limit, reply)).await
    }
}
