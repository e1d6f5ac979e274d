//! A connection to one server, which is up or down. While it is down every call fails at once. Only the supervisor
//! brings it up again, after the steps that must come first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::keyspace::{Command, Commands};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};
use rollcall_core::Time;
use tokio::sync::Notify;

use super::address::Endpoint;
use super::deadline_cache::DeadlineCache;
use super::down_reason::DownReason;
use super::sampled_time::SampledTime;
use super::stats::Stats;

/// What all connections of a store share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) time: SampledTime,
    pub(super) stats: Stats,
    /// The deadline cache; invalidated whenever the servers may have other data than before.
    pub(super) deadlines: DeadlineCache,
    /// Wakes the supervisor.
    pub(super) wake: Notify,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// When it last answered, in milliseconds.
    last_good_ms: AtomicU64,
}

enum State {
    Up { connection: MultiplexedConnection, generation: u64 },
    Down(Down),
}

/// A server that cannot be used, and why.
#[derive(Debug, Clone)]
pub(super) struct Down {
    /// When it last answered; `None` if it was never used, so that no beats were missed.
    pub(super) since: Option<Time>,
    pub(super) reason: DownReason,
    generation: u64,
}

/// A connection that calls do not use yet.
#[derive(Clone)]
pub(super) struct NewConnection(MultiplexedConnection);

/// A call failed because the server is down. It may or may not have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerDown;

impl Server {
    /// A server that is not connected yet. `since`: when the server that it replaces last answered.
    pub(super) fn new(endpoint: Endpoint, shared: Arc<Shared>, since: Option<Time>) -> Self {
        let reason = DownReason::Unreachable("not connected yet".to_owned());
        let state = Mutex::new(State::Down(Down { since, reason, generation: 0 }));
        Self { endpoint, shared, state, last_good_ms: AtomicU64::new(0) }
    }

    /// Why it is down; `None` if it is up.
    pub(super) fn down(&self) -> Option<Down> {
        match &*self.state.lock() {
            State::Up { .. } => None,
            State::Down(down) => Some(down.clone()),
        }
    }

    pub(super) fn last_good(&self) -> Time {
        Time(self.last_good_ms.load(Ordering::SeqCst))
    }

    /// Sends commands as one pipeline and waits for all replies, one per command.
    pub(super) async fn call(&self, commands: Pipeline) -> Result<Vec<Value>, ServerDown> {
        let (connection, generation) = match &*self.state.lock() {
            State::Up { connection, generation } => (connection.clone(), *generation),
            State::Down(_) => return Err(ServerDown),
        };
        match self.send(connection, commands).await {
            Ok(replies) => {
                self.last_good_ms.fetch_max(self.shared.time.now().0, Ordering::SeqCst);
                Ok(replies)
            }
            Err(reason) => {
                self.mark_down(Some(generation), reason);
                Err(ServerDown)
            }
        }
    }

    /// Marks the server as down because of a reply.
    pub(super) fn fail(&self, reason: DownReason) {
        self.mark_down(None, reason);
    }

    /// Opens a connection without using it for calls.
    pub(super) async fn connect(&self) -> Result<NewConnection, DownReason> {
        let client = self.endpoint.client().map_err(|error| DownReason::of(&error))?;
        let limit = self.shared.connect_timeout;
        // Only our timeout applies: the library's would keep using the connection.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(limit, connecting).await {
            Ok(connection) => connection.map(NewConnection).map_err(|error| DownReason::of(&error)),
            Err(_) => Err(DownReason::TimedOut),
        }
    }

    /// Sends commands on a connection that calls do not use yet.
    pub(super) async fn send_on(
        &self,
        connection: &NewConnection,
        commands: Pipeline,
    ) -> Result<Vec<Value>, DownReason> {
        self.send(connection.0.clone(), commands).await
    }

    /// Starts using a connection for calls.
    pub(super) fn mark_up(&self, connection: NewConnection) {
        self.last_good_ms.fetch_max(self.shared.time.now().0, Ordering::SeqCst);
        let mut state = self.state.lock();
        let generation = match &*state {
            State::Up { generation, .. } | State::Down(Down { generation, .. }) => generation + 1,
        };
        // This also covers hints for a server that this one replaced.
        self.shared.deadlines.forget(self.shared.time.now());
        *state = State::Up { connection: connection.0, generation };
    }

    /// Updates why the server is down. True if the reason is new.
    pub(super) fn update_down_reason(&self, reason: DownReason) -> bool {
        match &mut *self.state.lock() {
            State::Up { .. } => false,
            State::Down(down) => std::mem::replace(&mut down.reason, reason.clone()) != reason,
        }
    }

    async fn send(&self, mut connection: MultiplexedConnection, commands: Pipeline) -> Result<Vec<Value>, DownReason> {
        let count = commands.len();
        self.shared.stats.round_trips.add(1);
        self.shared.stats.commands.add(count);
        let answer = connection.send_packed_commands(&commands, 0, count);
        match tokio::time::timeout(self.shared.response_timeout, answer).await {
            Ok(Ok(replies)) if replies.len() == count => Ok(replies),
            Ok(Ok(_)) => Err(DownReason::Unreachable("it sent the wrong number of replies".to_owned())),
            Ok(Err(error)) => Err(DownReason::of(&error)),
            Err(_) => Err(DownReason::TimedOut),
        }
    }

    /// Marks the server as down, if it is still up with this connection.
    fn mark_down(&self, broken: Option<u64>, reason: DownReason) {
        let mut state = self.state.lock();
        let State::Up { generation, .. } = &*state else { return };
        let generation = *generation;
        if broken.is_some_and(|broken| broken != generation) {
            return;
        }
        tracing::warn!(server = %self.endpoint, %reason, "Redis is down; reconnecting");
        self.shared.deadlines.forget(self.shared.time.now());
        *state = State::Down(Down { since: Some(self.last_good()), reason, generation });
        drop(state);
        self.shared.stats.outages.add(1);
        self.shared.wake.notify_one();
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up { generation, .. } => f.debug_struct("Up").field("generation", generation).finish_non_exhaustive(),
            Self::Down(down) => down.fmt(f),
        }
    }
}

/// A command for the client library.
pub(super) fn packed(command: Command<'_>) -> Cmd {
    let mut packed = Cmd::with_capacity(command.args().len(), command.bytes());
    command.args().for_each(|arg| {
        packed.arg(arg);
    });
    packed
}

/// These commands as one pipeline.
pub(super) fn pipeline(commands: &Commands) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    commands.iter().for_each(|command| {
        pipeline.add_command(packed(command));
    });
    pipeline
}
