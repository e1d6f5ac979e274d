//! The subscriber: one connection to one master for subscriptions.
//!
//! Subscribe and unsubscribe requests are queued. One task compares what is wanted with what is subscribed and sends
//! the difference as one pipeline, one pipeline at a time. So a request that is taken back in between costs nothing.
//! Each command names one channel: then it has one reply, which is what the client library counts, and on a Cluster one
//! slot.
//!
//! Once a second the server is pinged. Its reply comes after everything it sent before, so with the reply everything
//! has arrived that was published before the ping.

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
use super::super::down_reason::{DownReason, error_line};
use super::super::server::Server;
use super::cluster_subscriber::ClusterSubscriber;
use super::push_handler::PushHandler;
use crate::transport::ErrorClass;
use crate::transport::RETRY_MS;
use rollcall_store::topics::{Topic, dispatcher};

/// How often the server is pinged.
const PING: Duration = Duration::from_secs(1);

/// The pause before a lost connection is retried.
const PAUSE: Duration = Duration::from_millis(150);

/// The most commands in one pipeline: a server answers them in a few milliseconds, so no request waits longer for them.
const MAX_COMMANDS: usize = 1024;

/// The subscriber of one master.
pub(super) struct Subscriber {
    server: Arc<Server>,
    requests: Mutex<Requests>,
    wake: Notify,
    /// Everything that the server published before this, in milliseconds, was received.
    received_until_ms: AtomicU64,
    /// One more than the version of the topology that this subscriber has followed; 0 if none.
    topology_version: AtomicU64,
}

/// Queued requests.
struct Requests {
    accepts: Accepts,
    asked: Vec<SubscribeRequest>,
    released: HashSet<Topic>,
}

/// Which requests are accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accepts {
    /// No requests: the server is down, and nothing is subscribed.
    Nothing,
    /// Only releases, while everything watched is subscribed again.
    Releases,
    /// All.
    All,
}

impl Requests {
    fn new(accepts: Accepts) -> Self {
        Self { accepts, asked: Vec::new(), released: HashSet::new() }
    }
}

/// A request to subscribe, and the sender that confirms it.
struct SubscribeRequest {
    topics: Vec<Topic>,
    confirm: oneshot::Sender<()>,
}

/// One connection while it lasts.
struct Session {
    subscribers: Arc<ClusterSubscriber>,
    subscriber: Arc<Subscriber>,
    connection: MultiplexedConnection,
    push_handler: Arc<PushHandler>,
    subscribed: HashSet<Topic>,
}

impl Subscriber {
    pub(super) fn new(server: Arc<Server>) -> Self {
        // Requests wait for the first connection; later they fail at once while there is none.
        let (requests, wake) = (Mutex::new(Requests::new(Accepts::All)), Notify::new());
        Self { server, requests, wake, received_until_ms: AtomicU64::new(0), topology_version: AtomicU64::new(0) }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Up to when everything was received, if this subscriber has followed the present topology.
    pub(super) fn received_until(&self, version: u64) -> Option<Time> {
        (self.topology_version.load(Ordering::SeqCst) == version + 1)
            .then(|| Time(self.received_until_ms.load(Ordering::SeqCst)))
    }

    /// Requests a subscription. The receiver resolves when all topics are subscribed; if the sender is dropped, they
    /// are not.
    pub(super) fn ask(&self, topics: Vec<Topic>) -> Result<oneshot::Receiver<()>, Error> {
        let mut requests = self.requests.lock();
        if requests.accepts != Accepts::All || self.server.down().is_some() {
            return Err(Error::Unavailable(RETRY_MS));
        }
        let (confirm, confirmed) = oneshot::channel();
        requests.asked.push(SubscribeRequest { topics, confirm });
        drop(requests);
        self.wake.notify_one();
        Ok(confirmed)
    }

    /// Requests to unsubscribe from a topic that is no longer watched.
    pub(super) fn release(&self, topic: Topic) {
        let mut requests = self.requests.lock();
        if requests.accepts != Accepts::Nothing {
            requests.released.insert(topic);
            drop(requests);
            self.wake.notify_one();
        }
    }

    /// Receives for ever, through any number of connections.
    pub(super) async fn run(self: Arc<Self>, subscribers: Weak<ClusterSubscriber>) {
        let mut logged = None;
        loop {
            let Some(subscribers) = subscribers.upgrade() else { return };
            let Err(reason) = Arc::clone(&self).listen_once(subscribers, &mut logged).await else { return };
            self.topology_version.store(0, Ordering::SeqCst);
            *self.requests.lock() = Requests::new(Accepts::Nothing);
            if logged.as_ref() != Some(&reason) {
                tracing::warn!(server = %self.server.endpoint, %reason, "Redis subscription lost; retrying");
                logged = Some(reason);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Receives until the connection is lost, and returns why. Returns `Ok` when the store is closed.
    async fn listen_once(
        self: Arc<Self>,
        subscribers: Arc<ClusterSubscriber>,
        logged: &mut Option<DownReason>,
    ) -> Result<(), DownReason> {
        let mut changes = subscribers.inner().servers.changes();
        let mut session = Session::open(subscribers, self).await?;
        session.begin(&mut changes).await?;
        if logged.take().is_some() {
            tracing::info!(server = %session.subscriber.server.endpoint, "Redis subscription restored");
        }
        session.serve(changes).await
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
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| DownReason::TimedOut)?;
        let connection = connection.map_err(|error| DownReason::of(&error))?;
        Ok(Self { subscribers, subscriber, connection, push_handler, subscribed: HashSet::new() })
    }

    /// Subscribes to everything that is watched.
    async fn begin(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), DownReason> {
        let asked = {
            let mut requests = self.subscriber.requests.lock();
            requests.released.clear();
            if requests.accepts == Accepts::Nothing {
                requests.accepts = Accepts::Releases;
            }
            std::mem::take(&mut requests.asked)
        };
        self.resubscribe(changes).await?;
        self.subscriber.requests.lock().accepts = Accepts::All;
        self.confirm(asked);
        Ok(())
    }

    /// Serves requests until the connection is lost.
    async fn serve(&mut self, mut changes: watch::Receiver<u64>) -> Result<(), DownReason> {
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
                () = subscriber.wake.notified() => self.serve_requests().await?,
                _ = ping.tick() => self.send(ping_command()).await?,
            }
        }
    }

    /// Serves the queued requests.
    async fn serve_requests(&mut self) -> Result<(), DownReason> {
        let (asked, released) = {
            let mut requests = self.subscriber.requests.lock();
            (std::mem::take(&mut requests.asked), std::mem::take(&mut requests.released))
        };
        let affected: HashSet<&Topic> = asked.iter().flat_map(|asked| &asked.topics).chain(&released).collect();
        let affected: Vec<Topic> = affected.into_iter().cloned().collect();
        self.adjust(affected).await?;
        self.confirm(asked);
        Ok(())
    }

    /// Follows the present topology: subscribes to every watched topic that this server has now, and unsubscribes from
    /// those it no longer has.
    async fn resubscribe(&mut self, changes: &mut watch::Receiver<u64>) -> Result<(), DownReason> {
        let version = *changes.borrow_and_update();
        let watched = self.subscribers.dispatcher().topics().filter(|topic| self.is_here(topic));
        let affected: HashSet<Topic> = watched.chain(self.subscribed.iter().cloned()).collect();
        self.adjust(affected.into_iter().collect()).await?;
        self.subscriber.topology_version.store(version + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Makes the subscriptions to these topics as wanted. Watchers of a newly subscribed topic learn that it restarted.
    async fn adjust(&mut self, mut affected: Vec<Topic>) -> Result<(), DownReason> {
        while !affected.is_empty() {
            let part = affected.split_off(affected.len().saturating_sub(MAX_COMMANDS));
            let is_wanted = |topic: &Topic| self.subscribers.dispatcher().is_watched(topic) && self.is_here(topic);
            let (wanted, unwanted): (Vec<Topic>, Vec<Topic>) = part.into_iter().partition(is_wanted);
            let (kept, added): (Vec<Topic>, Vec<Topic>) =
                wanted.into_iter().partition(|topic| self.subscribed.contains(topic));
            let removed: Vec<Topic> = unwanted.into_iter().filter(|topic| self.subscribed.contains(topic)).collect();
            if !(added.is_empty() && removed.is_empty()) {
                self.push_handler.expect_unsubscribe(removed.iter().map(|topic| self.subscribers.channel_of(topic)));
                self.send(self.commands(&added, &removed)).await?;
            }
            for topic in &removed {
                self.subscribed.remove(topic);
            }
            let dispatcher = self.subscribers.dispatcher();
            kept.iter().for_each(|topic| dispatcher.activate(topic, dispatcher::Feed::Uninterrupted));
            added.iter().for_each(|topic| dispatcher.activate(topic, dispatcher::Feed::Restarted));
            self.subscribed.extend(added);
        }
        Ok(())
    }

    /// Confirms the requests whose topics are all subscribed. The others include a topic that moved meanwhile: they are
    /// retried.
    fn confirm(&self, asked: Vec<SubscribeRequest>) {
        let is_subscribed =
            |topic: &Topic| self.subscribed.contains(topic) || !self.subscribers.dispatcher().is_watched(topic);
        for SubscribeRequest { topics, confirm } in asked {
            if topics.iter().all(is_subscribed) {
                // A requester that stopped waiting has released its topics.
                let _ = confirm.send(());
            }
        }
    }

    fn commands(&self, added: &[Topic], removed: &[Topic]) -> Pipeline {
        let (subscribe, unsubscribe) = match self.subscribers.inner().servers.kind() {
            Kind::Single => ("SUBSCRIBE", "UNSUBSCRIBE"),
            Kind::Cluster => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
        };
        let mut pipeline = Pipeline::with_capacity(added.len() + removed.len());
        for (name, topics) in [(unsubscribe, removed), (subscribe, added)] {
            for topic in topics {
                pipeline.add_command(cmd(name).arg(self.subscribers.channel_of(topic)).to_owned());
            }
        }
        pipeline
    }

    fn is_here(&self, topic: &Topic) -> bool {
        self.subscribers.server_of(topic).is_some_and(|server| Arc::ptr_eq(&server, &self.subscriber.server))
    }

    /// Sends commands and waits for a reply to each: then everything sent before has arrived.
    async fn send(&mut self, commands: Pipeline) -> Result<(), DownReason> {
        let shared = &self.subscribers.inner().shared;
        let sent_at = shared.time.now();
        let answer = self.connection.send_packed_commands(&commands, 0, commands.len());
        let answers = tokio::time::timeout(shared.response_timeout, answer).await.map_err(|_| DownReason::TimedOut)?;
        let answers = answers.map_err(|error| DownReason::of(&error))?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(self.refused(error).await);
            }
        }
        // A push before the replies may have shown that they do not match our commands.
        if self.push_handler.is_broken() {
            return Err(DownReason::Unreachable("a slot moved".to_owned()));
        }
        self.subscriber.received_until_ms.fetch_max(sent_at.0, Ordering::SeqCst);
        self.subscribers.update_received_until();
        Ok(())
    }

    /// Classifies an error reply. If a slot moved, the topology is refreshed before the next try.
    async fn refused(&self, error: &redis::ServerError) -> DownReason {
        let inner = self.subscribers.inner();
        let line = error_line(error);
        match ErrorClass::of(&line) {
            ErrorClass::Moved | ErrorClass::Ask | ErrorClass::TryAgain => {
                let _ = tokio::time::timeout(inner.shared.connect_timeout, inner.refresh_topology()).await;
                DownReason::NotReady("a slot moved".to_owned())
            }
            class => DownReason::of_class(class, line),
        }
    }
}

fn ping_command() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(cmd("PING"));
    pipeline
}
