//! The functions: which calls each takes, and how a call is made.

use rollcall_api::call::{Beat, ChoiceRequest, ChoiceResult, Departure, Standing, TypingUpdate, View};
use rollcall_contract::host::convert::{all, answers, each, views};
use rollcall_contract::host::functions::heartbeat::{HeartbeatFunction, HeartbeatFunctionPre};
use rollcall_contract::host::functions::offline_sweep::{OfflineSweepFunction, OfflineSweepFunctionPre};
use rollcall_contract::host::functions::query::{QueryFunction, QueryFunctionPre};
use rollcall_contract::host::functions::subscribe::{SubscribeFunction, SubscribeFunctionPre};
use rollcall_contract::host::functions::typing::{TypingFunction, TypingFunctionPre};
use rollcall_contract::host::wit::types;
use rollcall_core::{ConversationId, Error, Ids, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards, Typist};
use rollcall_functions::subscribe::InitialPresence;
use rollcall_functions::sweep;
use wasmtime::component::Accessor;
use wasmtime::{Result, Store};

use super::feed::{Feed, open_feed};
use super::instance_queue::{Function, Reply, function};
use super::platform::StoreData;

/// Answers to a batch.
pub(crate) type Answers<T> = Vec<Result<T, Error>>;

/// A call of `heartbeat`.
pub(crate) enum HeartbeatCall {
    /// Single beats, each with its caller; `gather` merges them into batches.
    Gathered(Vec<Beat>, Vec<Reply<Standing>>),
    /// A batch of beats from one caller.
    Beats(Vec<Beat>, Reply<Answers<Standing>>),
    /// Departures.
    Leave(Vec<Departure>, Reply<Answers<Standing>>),
    /// Choices.
    Choose(Vec<ChoiceRequest>, Reply<Answers<ChoiceResult>>),
}

impl Function for HeartbeatFunction {
    function!("heartbeat", HeartbeatCall, HeartbeatFunctionPre);

    /// Single beats become batches. Other calls stay as they are, in order.
    fn gather(calls: Vec<HeartbeatCall>) -> Vec<HeartbeatCall> {
        let mut gathered = Vec::new();
        let (mut beats, mut replies) = (Vec::new(), Vec::new());
        for call in calls {
            match call {
                HeartbeatCall::Gathered(more, their_replies) => {
                    beats.extend(more);
                    replies.extend(their_replies);
                }
                other => {
                    close_batch(&mut gathered, &mut beats, &mut replies);
                    gathered.push(other);
                }
            }
            if beats.len() == MAX_BATCH {
                close_batch(&mut gathered, &mut beats, &mut replies);
            }
        }
        close_batch(&mut gathered, &mut beats, &mut replies);
        gathered
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: HeartbeatCall) -> Result<()> {
        let heartbeat = self.rollcall_presence_heartbeat();
        match call {
            HeartbeatCall::Gathered(beats, replies) => {
                scatter(heartbeat.call_beat_many(accessor, beats.into_iter().collect()).await?, replies);
            }
            HeartbeatCall::Beats(beats, reply) => {
                let batch = heartbeat.call_beat_many(accessor, beats.into_iter().collect()).await?;
                let _ = reply.send(answers(batch));
            }
            HeartbeatCall::Leave(departures, reply) => {
                let _ = reply.send(answers(heartbeat.call_leave_many(accessor, each(departures)).await?));
            }
            HeartbeatCall::Choose(requests, reply) => {
                let _ = reply.send(answers(heartbeat.call_choose_many(accessor, each(requests)).await?));
            }
        }
        Ok(())
    }
}

fn close_batch(calls: &mut Vec<HeartbeatCall>, beats: &mut Vec<Beat>, replies: &mut Vec<Reply<Standing>>) {
    if !beats.is_empty() {
        calls.push(HeartbeatCall::Gathered(std::mem::take(beats), std::mem::take(replies)));
    }
}

/// Each answer to the caller of its beat.
fn scatter(batch: Result<Vec<Result<types::Standing, types::Error>>, types::Error>, replies: Vec<Reply<Standing>>) {
    match batch {
        Ok(items) => {
            for (reply, item) in replies.into_iter().zip(items) {
                let _ = reply.send(item.map(Into::into).map_err(Into::into));
            }
        }
        Err(error) => {
            let error = Error::from(error);
            for reply in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// A call of `query`.
pub(crate) enum QueryCall {
    /// The presence of these users.
    LookUp(Option<UserId>, Vec<UserId>, Reply<Answers<Option<View>>>),
}

impl Function for QueryFunction {
    function!("query", QueryCall, QueryFunctionPre);

    async fn serve(&self, accessor: &Accessor<StoreData>, call: QueryCall) -> Result<()> {
        let QueryCall::LookUp(viewer, users, reply) = call;
        let packed: Ids<UserId> = users.iter().collect();
        let name = viewer.clone().map(UserId::into_string);
        let presences = self.rollcall_presence_query().call_look_up(accessor, name, packed.into()).await?;
        let seen = presences.map_err(Error::from).and_then(|presences| Ok(views(presences, viewer.as_ref(), &users)?));
        let _ = reply.send(seen);
        Ok(())
    }
}

/// A call of `subscribe`.
pub(crate) enum SubscribeCall {
    /// The presence of these users, for a viewer who begins to watch them.
    Open(Option<UserId>, u32, Vec<UserId>, Reply<Answers<InitialPresence>>),
    /// A stream of changes.
    Feed(Option<UserId>, Vec<UserId>, Option<u64>, Reply<Feed>),
}

impl Function for SubscribeFunction {
    function!("subscribe", SubscribeCall, SubscribeFunctionPre);

    async fn serve(&self, accessor: &Accessor<StoreData>, call: SubscribeCall) -> Result<()> {
        let function = self.rollcall_presence_subscribe();
        match call {
            SubscribeCall::Open(viewer, watching, users, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let users: Ids<UserId> = users.iter().collect();
                let batch = function.call_open(accessor, viewer, watching, users.into()).await?;
                let _ = reply.send(answers(batch));
            }
            SubscribeCall::Feed(viewer, users, since, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let users = users.into_iter().map(UserId::into_string).collect();
                let feed = match function.call_feed(accessor, viewer, users, since).await? {
                    Ok((updates, end)) => Ok(open_feed(accessor, updates, end)?),
                    Err(error) => Err(error.into()),
                };
                let _ = reply.send(feed);
            }
        }
        Ok(())
    }
}

/// A call of `typing`.
pub(crate) enum TypingCall {
    /// Users typing, or no longer.
    Type(Vec<TypingUpdate>, Reply<Answers<()>>),
    /// The typists of these conversations.
    Typists(Option<UserId>, Vec<ConversationId>, Reply<Answers<Vec<Typist>>>),
}

impl Function for TypingFunction {
    function!("typing", TypingCall, TypingFunctionPre);

    async fn serve(&self, accessor: &Accessor<StoreData>, call: TypingCall) -> Result<()> {
        let function = self.rollcall_presence_typing();
        match call {
            TypingCall::Type(updates, reply) => {
                let _ = reply.send(answers(function.call_type_many(accessor, each(updates)).await?));
            }
            TypingCall::Typists(viewer, conversations, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let conversations = conversations.into_iter().map(ConversationId::into_string).collect();
                let batch = function.call_typists(accessor, viewer, conversations).await?.map_err(Error::from);
                let _ = reply.send(batch.map(|items| items.into_iter().map(typists_in).collect()));
            }
        }
        Ok(())
    }
}

/// The typists of one conversation. The ids are checked, as everything a component returns.
fn typists_in(typists: Result<Vec<types::Typist>, types::Error>) -> Result<Vec<Typist>, Error> {
    Ok(all(typists?)?)
}

/// A call of `offline-sweep`.
pub(crate) enum SweepCall {
    /// Settle these users.
    Settle(Vec<UserId>, Reply<sweep::Settled>),
    /// Settle due users.
    Sweep(Shards, u32, Reply<sweep::Settled>),
    /// Archive and evict.
    Archive(Shards, u32, Reply<sweep::Archived>),
}

impl Function for OfflineSweepFunction {
    function!("offline-sweep", SweepCall, OfflineSweepFunctionPre);

    async fn serve(&self, accessor: &Accessor<StoreData>, call: SweepCall) -> Result<()> {
        let function = self.rollcall_presence_offline_sweep();
        match call {
            SweepCall::Settle(users, reply) => {
                let users = users.into_iter().map(UserId::into_string).collect();
                let settled = function.call_settle(accessor, users).await?;
                let _ = reply.send(settled.map(Into::into).map_err(Into::into));
            }
            SweepCall::Sweep(shards, limit, reply) => {
                let settled = function.call_sweep(accessor, shards.first, shards.end, limit).await?;
                let _ = reply.send(settled.map(Into::into).map_err(Into::into));
            }
            SweepCall::Archive(shards, limit, reply) => {
                let archived = function.call_archive(accessor, shards.first, shards.end, limit).await?;
                let _ = reply.send(archived.map(Into::into).map_err(Into::into));
            }
        }
        Ok(())
    }
}
