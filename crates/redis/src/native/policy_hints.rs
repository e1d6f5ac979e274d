//! Hears that something changed about who may see whom.
//!
//! Each master is listened to over a connection of its own, once anybody wants to know. It need not be exact: it
//! moves a number, also when a subscription comes back and something may have been missed, and whoever follows the
//! logs looks into them. So whenever anything is odd, everything is begun anew.

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
use super::{Native, Task};

/// How often a server is asked whether it is there.
const PING: Duration = Duration::from_secs(1);

/// Before a lost connection is tried again.
const PAUSE: Duration = Duration::from_millis(150);

/// What moves, and who moves it.
pub(super) struct PolicyHints {
    runtime: Handle,
    moved: watch::Sender<u64>,
    task: OnceLock<Task>,
}

impl PolicyHints {
    /// It takes the runtime that it is called on.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), moved: watch::Sender::new(0), task: OnceLock::new() }
    }

    /// Something changed.
    pub(super) fn invalidation(&self) {
        invalidation(&self.moved);
    }

    /// Moves from now on whenever something may have changed.
    pub(super) fn listen(&self, inner: &Arc<Native>) -> watch::Receiver<u64> {
        // Before anybody listens, so that the first thing heard is not missed.
        let receiver = self.moved.subscribe();
        self.task.get_or_init(|| {
            let following = follow(Arc::downgrade(inner), inner.servers.changes(), self.moved.clone());
            Task(self.runtime.spawn(following))
        });
        receiver
    }
}

fn invalidation(moved: &watch::Sender<u64>) {
    moved.send_modify(|count| *count += 1);
}

/// Listens to every master that has a group. When anything moves among them, all are listened to anew.
async fn follow(inner: Weak<Native>, mut changes: watch::Receiver<u64>, moved: watch::Sender<u64>) {
    loop {
        changes.mark_unchanged();
        let Some(inner) = inner.upgrade() else { return };
        let mut tasks = Vec::new();
        for (server, channels) in by_server(&inner) {
            let listener = Listener { inner: Arc::clone(&inner), server, channels, moved: moved.clone() };
            tasks.push(Task(tokio::spawn(listener.listen())));
        }
        drop(inner);
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// The channels of the groups, by the server that has them.
fn by_server(inner: &Native) -> Vec<(Arc<Server>, Vec<String>)> {
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

/// One master, listened to.
struct Listener {
    inner: Arc<Native>,
    server: Arc<Server>,
    channels: Vec<String>,
    moved: watch::Sender<u64>,
}

impl Listener {
    /// Listens through any number of connections.
    async fn listen(self) {
        let mut complaint = None;
        loop {
            let Err(reason) = self.listen_once(&mut complaint).await;
            if complaint.as_ref() != Some(&reason) {
                tracing::warn!(server = %self.server.endpoint, "changes of who may see whom are not heard: {reason}");
                complaint = Some(reason);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Listens until the connection is lost, and says why.
    async fn listen_once(&self, complaint: &mut Option<DownReason>) -> Result<std::convert::Infallible, DownReason> {
        let broke = Arc::new(Notify::new());
        let mut connection = self.connect(Arc::clone(&broke)).await?;
        self.send(&mut connection, subscribe(&self.inner.servers, &self.channels)).await?;
        if complaint.take().is_some() {
            tracing::info!(server = %self.server.endpoint, "changes of who may see whom are heard again");
        }
        // What came before nobody heard.
        invalidation(&self.moved);
        let mut ping = tokio::time::interval(PING);
        loop {
            tokio::select! {
                () = broke.notified() => return Err(DownReason::Unreachable("the connection broke".to_owned())),
                _ = ping.tick() => self.send(&mut connection, one(cmd("PING"))).await?,
            }
        }
    }

    async fn connect(&self, broke: Arc<Notify>) -> Result<MultiplexedConnection, DownReason> {
        let moved = self.moved.clone();
        let take = move |push: PushInfo| {
            match push.kind {
                PushKind::Message | PushKind::SMessage => invalidation(&moved),
                // Nothing is ever unsubscribed from by us: a server that does so no longer has the slot.
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
        let connection = tokio::time::timeout(limit, connecting).await.map_err(|_| DownReason::Silent)?;
        connection.map_err(|error| DownReason::of(&error))
    }

    async fn send(&self, connection: &mut MultiplexedConnection, commands: Pipeline) -> Result<(), DownReason> {
        let answer = connection.send_packed_commands(&commands, 0, commands.len());
        let limit = self.inner.shared.response_timeout;
        let answers = tokio::time::timeout(limit, answer).await.map_err(|_| DownReason::Silent)?;
        for answer in answers.map_err(|error| DownReason::of(&error))? {
            if let Value::ServerError(error) = answer {
                // A slot that moved is learned of by whoever calls, and then all is begun anew.
                return Err(DownReason::Unwilling(error.to_string()));
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
