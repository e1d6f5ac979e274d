//! The functions: which calls each takes, and how a call is made.

use rollcall_api::call::{Beat, ChoiceRequest, ChoiceResult, Departure, Standing, TypingUpdate, View};
use rollcall_core::{ConversationId, Error, Invalid, UserId};
use rollcall_functions::capabilities::{MAX_BATCH, Shards, Typist};
use rollcall_functions::subscribe::InitialPresence;
use rollcall_functions::sweep;
use wasmtime::component::Accessor;
use wasmtime::{Result, Store};

use super::bindings::heartbeat::{HeartbeatFunction, HeartbeatFunctionPre};
use super::bindings::offline_sweep::{OfflineSweepFunction, OfflineSweepFunctionPre};
use super::bindings::platform::rollcall::presence::types;
use super::bindings::query::{QueryFunction, QueryFunctionPre};
use super::bindings::subscribe::{SubscribeFunction, SubscribeFunctionPre};
use super::bindings::typing::{TypingFunction, TypingFunctionPre};
use super::codec;
use super::feed::{Feed, fed};
use super::instance_queue::{Function, Reply};
use super::platform::StoreData;

/// Answers to a batch.
pub(crate) type Answers<T> = Vec<Result<T, Error>>;

/// A call of `heartbeat`.
pub(crate) enum HeartbeatCall {
    /// One beat, to be batched with others.
    Beat(Beat, Reply<Standing>),
    /// Single beats, batched.
    Gathered(Vec<Beat>, Vec<Reply<Standing>>),
    /// A batch of beats from one caller.
    Beats(Vec<Beat>, Reply<Answers<Standing>>),
    /// Departures.
    Leave(Vec<Departure>, Reply<Answers<Standing>>),
    /// Choices.
    Choose(Vec<ChoiceRequest>, Reply<Answers<ChoiceResult>>),
}

impl Function for HeartbeatFunction {
    const NAME: &'static str = "heartbeat";
    const JOB: &'static str = "instance-heartbeat";
    type Call = HeartbeatCall;
    type Pre = HeartbeatFunctionPre<StoreData>;

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    /// Single beats become batches. Other calls stay as they are, in order.
    fn gather(calls: Vec<HeartbeatCall>) -> Vec<HeartbeatCall> {
        let mut gathered = Vec::new();
        let (mut beats, mut replies) = (Vec::new(), Vec::new());
        for call in calls {
            match call {
                HeartbeatCall::Beat(beat, reply) => {
                    beats.push(beat);
                    replies.push(reply);
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
            HeartbeatCall::Beat(beat, reply) => {
                let answer = heartbeat.call_beat_many(accessor, codec::beats_out([beat])).await?;
                scatter(answer, vec![reply]);
            }
            HeartbeatCall::Gathered(beats, replies) => {
                scatter(heartbeat.call_beat_many(accessor, codec::beats_out(beats)).await?, replies);
            }
            HeartbeatCall::Beats(beats, reply) => {
                let batch = heartbeat.call_beat_many(accessor, codec::beats_out(beats)).await?;
                answer(reply, batch, codec::standing_in);
            }
            HeartbeatCall::Leave(departures, reply) => {
                let departures = departures.into_iter().map(codec::departure_out).collect();
                answer(reply, heartbeat.call_leave_many(accessor, departures).await?, codec::standing_in);
            }
            HeartbeatCall::Choose(choices, reply) => {
                let choices = choices.into_iter().map(codec::choice_request_out).collect();
                answer(reply, heartbeat.call_choose_many(accessor, choices).await?, codec::chosen_in);
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

pub(super) type Batch<W> = Result<Vec<Result<W, types::Error>>, types::Error>;

/// One answer for the whole batch. The caller may have given up.
pub(super) fn answer<W, T>(reply: Reply<Answers<T>>, batch: Batch<W>, decode: impl Fn(W) -> T) {
    let batch = batch.map_err(codec::error_in);
    let answers = batch.map(|items| items.into_iter().map(|i| i.map(&decode).map_err(codec::error_in)).collect());
    let _ = reply.send(answers);
}

/// Each answer to the caller of its beat.
fn scatter(
    batch: Batch<super::bindings::heartbeat::exports::rollcall::presence::heartbeat::Standing>,
    replies: Vec<Reply<Standing>>,
) {
    match batch {
        Ok(items) => {
            for (reply, item) in replies.into_iter().zip(items) {
                let _ = reply.send(item.map(codec::standing_in).map_err(codec::error_in));
            }
        }
        Err(error) => {
            let error = codec::error_in(error);
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
    const NAME: &'static str = "query";
    const JOB: &'static str = "instance-query";
    type Call = QueryCall;
    type Pre = QueryFunctionPre<StoreData>;

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: QueryCall) -> Result<()> {
        let QueryCall::LookUp(viewer, users, reply) = call;
        let viewer = viewer.map(UserId::into_string);
        let users = users.into_iter().map(UserId::into_string).collect();
        let batch = self.rollcall_presence_query().call_look_up(accessor, viewer, users).await?;
        answer(reply, batch, codec::view_in);
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
    const NAME: &'static str = "subscribe";
    const JOB: &'static str = "instance-subscribe";
    type Call = SubscribeCall;
    type Pre = SubscribeFunctionPre<StoreData>;

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: SubscribeCall) -> Result<()> {
        let function = self.rollcall_presence_subscribe();
        match call {
            SubscribeCall::Open(viewer, watching, users, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let users = users.into_iter().map(UserId::into_string).collect();
                let batch = function.call_open(accessor, viewer, watching, users).await?;
                answer(reply, batch, codec::place_in);
            }
            SubscribeCall::Feed(viewer, users, since, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let users = users.into_iter().map(UserId::into_string).collect();
                let feed = match function.call_feed(accessor, viewer, users, since).await? {
                    Ok((updates, end)) => Ok(fed(accessor, updates, end)?),
                    Err(error) => Err(codec::error_in(error)),
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
    const NAME: &'static str = "typing";
    const JOB: &'static str = "instance-typing";
    type Call = TypingCall;
    type Pre = TypingFunctionPre<StoreData>;

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: TypingCall) -> Result<()> {
        let function = self.rollcall_presence_typing();
        match call {
            TypingCall::Type(updates, reply) => {
                let updates = updates.into_iter().map(codec::typing_update_out).collect();
                answer(reply, function.call_type_many(accessor, updates).await?, |()| ());
            }
            TypingCall::Typists(viewer, conversations, reply) => {
                let viewer = viewer.map(UserId::into_string);
                let conversations = conversations.into_iter().map(ConversationId::into_string).collect();
                let batch = function.call_typists(accessor, viewer, conversations).await?.map_err(codec::error_in);
                let _ = reply.send(batch.map(|items| items.into_iter().map(typists_in).collect()));
            }
        }
        Ok(())
    }
}

/// The typists of one conversation. The ids are checked, as everything a component returns.
fn typists_in(typists: Result<Vec<types::Typist>, types::Error>) -> Result<Vec<Typist>, Error> {
    let typists = typists.map_err(codec::error_in)?;
    Ok(typists.into_iter().map(codec::typist_in).collect::<Result<_, Invalid>>()?)
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
    const NAME: &'static str = "offline-sweep";
    const JOB: &'static str = "instance-offline-sweep";
    type Call = SweepCall;
    type Pre = OfflineSweepFunctionPre<StoreData>;

    async fn instantiate(pre: &Self::Pre, store: &mut Store<StoreData>) -> Result<Self> {
        pre.instantiate_async(store).await
    }

    async fn serve(&self, accessor: &Accessor<StoreData>, call: SweepCall) -> Result<()> {
        let function = self.rollcall_presence_offline_sweep();
        match call {
            SweepCall::Settle(users, reply) => {
                let users = users.into_iter().map(UserId::into_string).collect();
                let settled = function.call_settle(accessor, users).await?;
                let _ = reply.send(settled.map(codec::settled_in).map_err(codec::error_in));
            }
            SweepCall::Sweep(shards, limit, reply) => {
                let settled = function.call_sweep(accessor, shards.first, shards.end, limit).await?;
                let _ = reply.send(settled.map(codec::settled_in).map_err(codec::error_in));
            }
            SweepCall::Archive(shards, limit, reply) => {
                let archived = function.call_archive(accessor, shards.first, shards.end, limit).await?;
                let archived = archived.map(|a| sweep::Archived { kept: a.kept, dropped: a.dropped });
                let _ = reply.send(archived.map_err(codec::error_in));
            }
        }
        Ok(())
    }
}
