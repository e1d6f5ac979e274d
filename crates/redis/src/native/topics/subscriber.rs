//! One master, listened to over a connection of its own.
//!
//! Whoever wants to hear something, or no more, leaves word; one task compares what is wanted with what is subscribed to
//! and sends the difference, all of it in one go, one go at a time. So an interest that comes and goes in between costs
//! nothing. Each command names one channel: then it has one answer, which is what the client library counts, and on a
//! Cluster one slot.
//!
//! Once a second the server is asked whether it is there. Its answer comes after everything that it sent before, so when
//! it comes everything has that was published before the question.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, ProtocolVersion, PushInfo, Value, cmd};
use rollcall_core::{Error, Time};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::super::address::Kind;
use super::super::down_reason::{DownReason, ErrorClass};
use super::super::server::Server;
use super::cluster_subscriber::ClusterSubscriber;
use super::push_handler::PushHandler;
use crate::transport::RETRY_MS;
use rollcall_store::topics::{Topic, dispatcher};

/// How often the server is asked whether it is there.
const PING: Duration = Duration::from_secs(1);

/// Before a lost connection is tried again.
const PAUSE: Duration = Duration::from_millis(150);

/// The most commands in one go: a server answers so many in a few milliseconds, and nobody waits for more than that.
const MAX_COMMANDS: usize = 1024;

/// One master, listened to.
pub(super) struct Subscriber {
    server: Arc<Server>,
    requests: Mutex<Requests>,
    word: Notify,
    /// Everything that the server published before this, in milliseconds, has arrived.
    received_until_ms: AtomicU64,
    /// The state of the servers, as its changes are counted, that this subscriber has taken note of; 0: none.
    topology_version: AtomicU64,
}

/// Where word is left.
struct Requests {
    is_open: Open,
    asked: Vec<Asked>,
    released: HashSet<Topic>,
}

/// What word is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    /// None: the server is away, and nothing is subscribed to.
    Closed,
    /// That somebody lost interest, while everything that is watched is subscribed to anew.
    ForNeglect,
    /// All.
    ForAll,
}

impl Requests {
    fn new(is_open: Open) -> Self {
        Self { is_open, asked: Vec::new(), released: HashSet::new() }
    }
}

/// Somebody waits until these are heard.
struct Asked {
    topics: Vec<Topic>,
    confirm: oneshot::Sender<()>,
}

/// One connection, for as long as it lasts.
struct Session {
    subscribers: Arc<ClusterSubscriber>,
    subscriber: Arc<Subscriber>,
    connection: MultiplexedConnection,
    push_handler: Arc<PushHandler>,
    subscribed: HashSet<Topic>,
}

impl Subscriber {
    pub(super) fn new(server: Arc<Server>) -> Self {
        // The first connection is waited for; later ones are not.
        let (requests, word) = (Mutex::new(Requests::new(Open::ForAll)), Notify::new());
        Self { server, requests, word, received_until_ms: AtomicU64::new(0), topology_version: AtomicU64::new(0) }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Up to when everything arrived, if this subscriber has taken note of how the servers are at present.
    pub(super) fn received_until(&self, version: u64) -> Option<Time> {
        (self.topology_version.load(Ordering::SeqCst) == version + 1)
            .then(|| Time(self.received_until_ms.load(Ordering::SeqCst)))
    }

    /// Asks for these to be heard. The answer comes when they are; if it never comes, they are not.
    pub(super) fn ask(&self, topics: Vec<Topic>) -> Result<oneshot::Receiver<()>, Error> {
        let mut requests = self.requests.lock();
        if requests.is_open != Open::ForAll || self.server.down().is_some() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        let (confirm, confirmed) = oneshot::channel();
        requests.asked.push(Asked { topics, confirm });
        drop(requests);
        self.word.notify_one();
        Ok(confirmed)
    }

    /// Somebody lost interest in this.
    pub(super) fn release(&self, topic: Topic) {
        let mut requests = self.requests.lock();
        if requests.is_open != Open::Closed {
            requests.released.insert(topic);
            drop(requests);
            self.word.notify_one();
        }
    }

    /// Listens for ever, through any number of connections.
    pub(super) async fn listen(self: Arc<Self>, subscribers: Weak<ClusterSubscriber>) {
        let mut complaint = None;
        loop {
            let Some(subscribers) = subscribers.upgrade() else { return };
            let Err(reason) = Arc::clone(&self).listen_once(subscribers, &mut complaint).await else { return };
            self.topology_version.store(0, Ordering::SeqCst);
            *self.requests.lock() = Requests::new(Open::Closed);
            if complaint.as_ref() != Some(&reason) {
                tracing::warn!(server = %self.server.endpoint, "nothing is heard from Redis: {reason}");
                complaint = Some(reason);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Listens until the connection is lost, and says why. Ends without an error when the store is closed.
    async fn listen_once(
        self: Arc<Self>,
        subscribers: Arc<ClusterSubscriber>,
        complaint: &mut Option<DownReason>,
    ) -> Result<(), DownReason> {
        let mut changes = subscribers.inner().servers.changes();
        let mut session = Session::open(subscribers, self).await?;
        session.begin(&mut changes).await?;
        if complaint.take().is_some() {
            tracing::info!(server = %session.subscriber.server.endpoint, "Redis is heard again");
        }
        session.go_on(changes).await
    }
}

impl Session {
    async fn open(subscribers: Arc<ClusterSubscriber>, subscriber: Arc<Subscriber>) -> Result<Self, DownReason> {
        let push_handler =
            Arc::new(PushHandler::new(Arc::clone(subscribers.inner()), Arc::clone(subscribers.dispatcher())));
        let take = {
            let push_handler = Arc::clone(&push_handler);
            move |push: PushInfo| {
                push_handler.take(&push);
                Ok::<(), redis::aio::SendError>(())
            }
        };
        let limit = subscribers.inner().shared.connect_timeout;
        let client = subscriber
            .server
            .endpoint
            .client_speaking(ProtocolVersion::RESP3)
            .map_err(|error| DownReason::of(&error))?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
        let config = config.set_push_sender(take);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| DownReason::Silent)?;
        let connection = connection.map_err(|error| DownReason::of(&error))?;
        Ok(Self { subscribers, subscriber, connection, push_handler, subscribed: HashSet::new() })
    }

    /// Subscribes to everything that is watched.
    async fn begin(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), DownReason> {
        let asked = {
            let mut requests = self.subscriber.requests.lock();
            requests.released.clear();
            if requests.is_open == Open::Closed {
                requests.is_open = Open::ForNeglect;
            }
            std::mem::take(&mut requests.asked)
        };
        self.resubscribe(changes).await?;
        self.subscriber.requests.lock().is_open = Open::ForAll;
        self.confirm(asked);
        Ok(())
    }

    /// Does what is asked until the connection is lost.
    async fn go_on(&mut self, mut changes: watch::Receiver<u64>) -> Result<(), DownReason> {
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let subscriber = Arc::clone(&self.subscriber);
        let push_handler = Arc::clone(&self.push_handler);
        loop {
            tokio::select! {
                () = push_handler.broken() => return Err(DownReason::Unreachable("the connection broke".to_owned())),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    self.resubscribe(&mut changes).await?;
                }
                () = subscriber.word.notified() => self.serve_requests().await?,
                _ = ping.tick() => self.send(ping_command()).await?,
            }
        }
    }

    /// Does what was asked since the last time.
    async fn serve_requests(&mut self) -> Result<(), DownReason> {
        let (asked, released) = {
            let mut requests = self.subscriber.requests.lock();
            (std::mem::take(&mut requests.asked), std::mem::take(&mut requests.released))
        };
        let concerned: HashSet<&Topic> = asked.iter().flat_map(|asked| &asked.topics).chain(&released).collect();
        let concerned: Vec<Topic> = concerned.into_iter().cloned().collect();
        self.adjust(concerned).await?;
        self.confirm(asked);
        Ok(())
    }

    /// Takes note of how the servers are at present: subscribes to everything watched that is here now, and gives up what
    /// is not.
    async fn resubscribe(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), DownReason> {
        let version = *changes.borrow_and_update();
        let watched = self.subscribers.dispatcher().topics().filter(|topic| self.is_here(topic));
        let concerned: HashSet<Topic> = watched.chain(self.subscribed.iter().cloned()).collect();
        self.adjust(concerned.into_iter().collect()).await?;
        self.subscriber.topology_version.store(version + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Makes what is subscribed to of these what is wanted. Whoever heard one before that is new here is told.
    async fn adjust(&mut self, mut concerned: Vec<Topic>) -> Result<(), DownReason> {
        while !concerned.is_empty() {
            let part = concerned.split_off(concerned.len().saturating_sub(MAX_COMMANDS));
            let is_wanted = |topic: &Topic| self.subscribers.dispatcher().is_watched(topic) && self.is_here(topic);
            let (wanted, unwanted): (Vec<Topic>, Vec<Topic>) = part.into_iter().partition(is_wanted);
            let (stay, come): (Vec<Topic>, Vec<Topic>) =
                wanted.into_iter().partition(|topic| self.subscribed.contains(topic));
            let go: Vec<Topic> = unwanted.into_iter().filter(|topic| self.subscribed.contains(topic)).collect();
            if !(come.is_empty() && go.is_empty()) {
                self.push_handler.give_up(go.iter().map(|topic| self.subscribers.channel_of(topic)));
                self.send(self.commands(&come, &go)).await?;
            }
            for topic in &go {
                self.subscribed.remove(topic);
            }
            let dispatcher = self.subscribers.dispatcher();
            stay.iter().for_each(|topic| dispatcher.hear(topic, dispatcher::Feed::Kept));
            come.iter().for_each(|topic| dispatcher.hear(topic, dispatcher::Feed::Restarted));
            self.subscribed.extend(come);
        }
        Ok(())
    }

    /// Answers those whose topics are all heard. The others asked for one that moved meanwhile: they ask again.
    fn confirm(&self, asked: Vec<Asked>) {
        let is_heard =
            |topic: &Topic| self.subscribed.contains(topic) || !self.subscribers.dispatcher().is_watched(topic);
        for Asked { topics, confirm } in asked {
            if topics.iter().all(is_heard) {
                // Whoever no longer waits has taken back what they asked for.
                let _ = confirm.send(());
            }
        }
    }

    fn commands(&self, come: &[Topic], go: &[Topic]) -> Pipeline {
        let (subscribe, unsubscribe) = match self.subscribers.inner().servers.kind() {
            Kind::Single => ("SUBSCRIBE", "UNSUBSCRIBE"),
            Kind::Cluster => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
        };
        let mut pipeline = Pipeline::with_capacity(come.len() + go.len());
        for (name, topics) in [(unsubscribe, go), (subscribe, come)] {
            for topic in topics {
                pipeline.add_command(cmd(name).arg(self.subscribers.channel_of(topic)).to_owned());
            }
        }
        pipeline
    }

    fn is_here(&self, topic: &Topic) -> bool {
        self.subscribers.server_of(topic).is_some_and(|server| Arc::ptr_eq(&server, &self.subscriber.server))
    }

    /// Sends commands and waits for an answer to each: then everything has arrived that came before.
    async fn send(&mut self, commands: Pipeline) -> Result<(), DownReason> {
        let shared = &self.subscribers.inner().shared;
        let sent_at = shared.time.now();
        let answer = self.connection.send_packed_commands(&commands, 0, commands.len());
        let answers = tokio::time::timeout(shared.response_timeout, answer).await.map_err(|_| DownReason::Silent)?;
        let answers = answers.map_err(|error| DownReason::of(&error))?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(self.refused(error).await);
            }
        }
        // What was said before the answers may have been that they belong to no question of ours.
        if self.push_handler.is_broken() {
            return Err(DownReason::Unreachable("a slot moved".to_owned()));
        }
        self.subscriber.received_until_ms.fetch_max(sent_at.0, Ordering::SeqCst);
        self.subscribers.heard();
        Ok(())
    }

    /// What a refusal means. A slot that moved is learned of before the next try.
    async fn refused(&self, error: &redis::ServerError) -> DownReason {
        let inner = self.subscribers.inner();
        match ErrorClass::of(error) {
            ErrorClass::Moved | ErrorClass::Ask(_) | ErrorClass::TryAgain => {
                let _ = tokio::time::timeout(inner.shared.connect_timeout, inner.learn_anew()).await;
                DownReason::Unwilling("a slot moved".to_owned())
            }
            ErrorClass::Server(reason) => reason,
            ErrorClass::Denied(why) => DownReason::Refused(why),
            ErrorClass::LoadScripts => DownReason::Unwilling(error.to_string()),
            ErrorClass::Other(why) => DownReason::Unwilling(why),
        }
    }
}

fn ping_command() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(cmd("PING"));
    pipeline
}
