//! Policy hints: notices that policy changed.
//!
//! Every master gets its own subscription, once there is a first receiver. It need not be exact: it increments a
//! counter, also when a subscription was restored and hints may have been missed, and the receiver then reads the logs.
//! So any irregularity restarts all subscriptions.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, ProtocolVersion, PushInfo, PushKind, Value, cmd};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::address::Kind;
use super::down_reason::DownReason;
use super::server::Server;
use super::topology::Servers;
use super::{NativeTransport, Task};

/// How often a server is pinged.
const PING: Duration = Duration::from_secs(1);

/// The pause before a lost connection is retried.
const PAUSE: Duration = Duration::from_millis(150);

/// The counter of hints and the task that increments it.
pub(super) struct PolicyHints {
    runtime: Handle,
    hints: watch::Sender<u64>,
    task: OnceLock<Task>,
}

impl PolicyHints {
    /// Uses the runtime that it is called on.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), hints: watch::Sender::new(0), task: OnceLock::new() }
    }

    /// Increments the counter: policy changed.
    pub(super) fn notify(&self) {
        bump(&self.hints);
    }

    /// A receiver of the counter, which is incremented whenever policy may have changed.
    pub(super) fn subscribe(&self, inner: &Arc<NativeTransport>) -> watch::Receiver<u64> {
        // Before the task starts, so that the first hint is not missed.
        let receiver = self.hints.subscribe();
        self.task.get_or_init(|| {
            let following = follow(Arc::downgrade(inner), inner.servers.changes(), self.hints.clone());
            Task(self.runtime.spawn(following))
        });
        receiver
    }
}

fn bump(hints: &watch::Sender<u64>) {
    hints.send_modify(|count| *count += 1);
}

/// Subscribes at every master that has a group. When the topology changes, all subscriptions are restarted.
async fn follow(inner: Weak<NativeTransport>, mut changes: watch::Receiver<u64>, hints: watch::Sender<u64>) {
    loop {
        changes.mark_unchanged();
        let Some(inner) = inner.upgrade() else { return };
        let mut tasks = Vec::new();
        for (server, channels) in by_server(&inner) {
            let subscriber = HintSubscriber { inner: Arc::clone(&inner), server, channels, hints: hints.clone() };
            tasks.push(Task(tokio::spawn(subscriber.run())));
        }
        drop(inner);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The channels of the groups, by server.
fn by_server(inner: &NativeTransport) -> Vec<(Arc<Server>, Vec<String>)> {
    let topology = inner.servers.topology();
    let mut by_server: HashMap<String, (Arc<Server>, Vec<String>)> = HashMap::new();
    for group in 0..inner.keys.groups() {
        if let Some(server) = topology.server(group) {
            let known = by_server.entry(server.endpoint.to_string());
            known
                .or_insert_with(|| (Arc::clone(server), Vec::new()))
                .1
                .push(inner.keys.invalidation(group).to_string());
        }
    }
    by_server.into_values().collect()
}

/// The subscription at one master.
struct HintSubscriber {
    inner: Arc<NativeTransport>,
    server: Arc<Server>,
    channels: Vec<String>,
    hints: watch::Sender<u64>,
}

impl HintSubscriber {
    /// Subscribes through any number of connections.
    async fn run(self) {
        let mut complaint = None;
        loop {
            let Err(reason) = self.subscribe_once(&mut complaint).await;
            if complaint.as_ref() != Some(&reason) {
                tracing::warn!(server = %self.server.endpoint, %reason, "Policy subscription lost; retrying");
                complaint = Some(reason);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Subscribes until the connection is lost, and returns why.
    async fn subscribe_once(&self, complaint: &mut Option<DownReason>) -> Result<std::convert::Infallible, DownReason> {
        let broke = Arc::new(Notify::new());
        let mut connection = self.connect(Arc::clone(&broke)).await?;
        self.send(&mut connection, subscribe(&self.inner.servers, &self.channels)).await?;
        if complaint.take().is_some() {
            tracing::info!(server = %self.server.endpoint, "Policy subscription restored");
        }
        // Hints from before the subscription were missed.
        bump(&self.hints);
        let mut ping = tokio::time::interval(PING);
        loop {
            tokio::select! {
                () = broke.notified() => return Err(DownReason::Unreachable("the connection broke".to_owned())),
                _ = ping.tick() => self.send(&mut connection, one(cmd("PING"))).await?,
            }
        }
    }

    async fn connect(&self, broke: Arc<Notify>) -> Result<MultiplexedConnection, DownReason> {
        let hints = self.hints.clone();
        let take = move |push: PushInfo| {
            match push.kind {
                PushKind::Message | PushKind::SMessage => bump(&hints),
                // We never unsubscribe: a server that does so no longer has the slot.
                PushKind::Unsubscribe | PushKind::SUnsubscribe | PushKind::Disconnection => broke.notify_one(),
                _ => {}
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let limit = self.inner.shared.connect_timeout;
        let client =
            self.server.endpoint.client_speaking(ProtocolVersion::RESP3).map_err(|error| DownReason::of(&error))?;
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
        let config = config.set_push_sender(take);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| DownReason::TimedOut)?;
        connection.map_err(|error| DownReason::of(&error))
    }

    async fn send(&self, connection: &mut MultiplexedConnection, commands: Pipeline) -> Result<(), DownReason> {
        let answer = connection.send_packed_commands(&commands, 0, commands.len());
        let limit = self.inner.shared.response_timeout;
        let answers = tokio::time::timeout(limit, answer).await.map_err(|_| DownReason::TimedOut)?;
        for answer in answers.map_err(|error| DownReason::of(&error))? {
            if let Value::ServerError(error) = answer {
                // A call that meets the moved slot refreshes the topology, and that restarts all subscriptions.
                return Err(DownReason::NotReady(error.to_string()));
            }
        }
        Ok(())
    }
}

fn subscribe(servers: &Servers, channels: &[String]) -> Pipeline {
    let name = match servers.kind() {
        Kind::Single => "SUBSCRIBE",
        Kind::Cluster => "SSUBSCRIBE",
    };
    let mut pipeline = Pipeline::with_capacity(channels.len());
    for channel in channels {
        pipeline.add_command(cmd(name).arg(channel).to_owned());
    }
    pipeline
}

fn one(command: redis::Cmd) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(command);
    pipeline
}
