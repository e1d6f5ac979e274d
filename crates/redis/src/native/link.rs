//! A connection to one server, which is up or down. While it is down every call fails at once; only whoever tends the
//! store brings it up again, after it has done what must be done first.

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
use super::dues::Dues;
use super::stats::Stats;
use super::time::RedisTime;
use super::trouble::Trouble;

/// What all connections of a store have to do with.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) time: RedisTime,
    pub(super) stats: Stats,
    /// Whom this process left due; forgotten whenever the servers may have other data than they had.
    pub(super) dues: Dues,
    /// Wakes whoever tends the store.
    pub(super) wake: Notify,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
}

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) endpoint: Endpoint,
    around: Arc<Surroundings>,
    state: Mutex<State>,
    /// The last time that it answered, in milliseconds.
    last_good_ms: AtomicU64,
}

enum State {
    Up { connection: MultiplexedConnection, generation: u64 },
    Down(Down),
}

/// A server that cannot be used, and why.
#[derive(Debug, Clone)]
pub(super) struct Down {
    /// When it was last known to answer; none: it was not used before, so nobody can have missed it.
    pub(super) since: Option<Time>,
    pub(super) trouble: Trouble,
    generation: u64,
}

/// A fresh connection that is not in use by calls.
#[derive(Clone)]
pub(super) struct Fresh(MultiplexedConnection);

/// A call that failed because the server is away. Whether it took effect is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Away;

impl Link {
    /// A server that is not connected yet. `since`: it takes the place of one that was last known to answer then.
    pub(super) fn new(endpoint: Endpoint, around: Arc<Surroundings>, since: Option<Time>) -> Self {
        let trouble = Trouble::Unreachable("not connected yet".to_owned());
        let state = Mutex::new(State::Down(Down { since, trouble, generation: 0 }));
        Self { endpoint, around, state, last_good_ms: AtomicU64::new(0) }
    }

    /// None: it is up.
    pub(super) fn down(&self) -> Option<Down> {
        match &*self.state.lock() {
            State::Up { .. } => None,
            State::Down(down) => Some(down.clone()),
        }
    }

    pub(super) fn last_good(&self) -> Time {
        Time(self.last_good_ms.load(Ordering::SeqCst))
    }

    /// Sends commands in one go and waits for all replies, one for each.
    pub(super) async fn call(&self, commands: Pipeline) -> Result<Vec<Value>, Away> {
        let (connection, generation) = match &*self.state.lock() {
            State::Up { connection, generation } => (connection.clone(), *generation),
            State::Down(_) => return Err(Away),
        };
        match self.send(connection, commands).await {
            Ok(replies) => {
                self.last_good_ms.fetch_max(self.around.time.now().0, Ordering::SeqCst);
                Ok(replies)
            }
            Err(trouble) => {
                self.break_off(Some(generation), trouble);
                Err(Away)
            }
        }
    }

    /// Takes the server out of use because of what it answered.
    pub(super) fn fail(&self, trouble: Trouble) {
        self.break_off(None, trouble);
    }

    /// Connects, without putting the connection to use.
    pub(super) async fn connect(&self) -> Result<Fresh, Trouble> {
        let client = self.endpoint.client().map_err(|error| Trouble::of(&error))?;
        let limit = self.around.connect_timeout;
        // Ours is the only time limit there is: theirs would leave the connection in use.
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(limit)).set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(limit, connecting).await {
            Ok(connection) => connection.map(Fresh).map_err(|error| Trouble::of(&error)),
            Err(_) => Err(Trouble::Silent),
        }
    }

    /// Uses a connection that is not in use yet.
    pub(super) async fn try_out(&self, fresh: &Fresh, commands: Pipeline) -> Result<Vec<Value>, Trouble> {
        self.send(fresh.0.clone(), commands).await
    }

    /// Puts a connection to use.
    pub(super) fn put_up(&self, fresh: Fresh) {
        self.last_good_ms.fetch_max(self.around.time.now().0, Ordering::SeqCst);
        let mut state = self.state.lock();
        let generation = match &*state {
            State::Up { generation, .. } | State::Down(Down { generation, .. }) => generation + 1,
        };
        // Also what was sent to a server that took the place of another, until this one is used.
        self.around.dues.forget(self.around.time.now());
        *state = State::Up { connection: fresh.0, generation };
    }

    /// Says why the server, which is down, could not be brought up. True: for another reason than was known.
    pub(super) fn stays_down(&self, trouble: Trouble) -> bool {
        match &mut *self.state.lock() {
            State::Up { .. } => false,
            State::Down(down) => std::mem::replace(&mut down.trouble, trouble.clone()) != trouble,
        }
    }

    async fn send(&self, mut connection: MultiplexedConnection, commands: Pipeline) -> Result<Vec<Value>, Trouble> {
        let count = commands.len();
        self.around.stats.round_trips.add(1);
        self.around.stats.commands.add(count);
        let answer = connection.send_packed_commands(&commands, 0, count);
        match tokio::time::timeout(self.around.response_timeout, answer).await {
            Ok(Ok(replies)) if replies.len() == count => Ok(replies),
            Ok(Ok(_)) => Err(Trouble::Unreachable("it answered with the wrong number of replies".to_owned())),
            Ok(Err(error)) => Err(Trouble::of(&error)),
            Err(_) => Err(Trouble::Silent),
        }
    }

    /// Takes the server out of use, if it is in use by this very connection.
    fn break_off(&self, broken: Option<u64>, trouble: Trouble) {
        let mut state = self.state.lock();
        let State::Up { generation, .. } = &*state else { return };
        let generation = *generation;
        if broken.is_some_and(|broken| broken != generation) {
            return;
        }
        tracing::warn!(server = %self.endpoint, "Redis is away: {trouble}");
        self.around.dues.forget(self.around.time.now());
        *state = State::Down(Down { since: Some(self.last_good()), trouble, generation });
        drop(state);
        self.around.stats.outages.add(1);
        self.around.wake.notify_one();
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

/// A command as the client library takes it.
pub(super) fn packed(command: Command<'_>) -> Cmd {
    let mut packed = Cmd::with_capacity(command.args().len(), command.bytes());
    command.args().for_each(|arg| {
        packed.arg(arg);
    });
    packed
}

/// All of these as one pipeline.
pub(super) fn pipeline(commands: &Commands) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    commands.iter().for_each(|command| {
        pipeline.add_command(packed(command));
    });
    pipeline
}
