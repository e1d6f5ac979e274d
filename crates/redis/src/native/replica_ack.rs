//! A replica that has what was written: on a Cluster a master may be lost, and who may see whom must not be lost with
//! it.
//!
//! `WAIT` makes the server hold back everything else that comes on the same connection, and the one that all calls
//! share carries heartbeats. So each master has a connection of its own for it. What it waits for is a write that it
//! makes itself: replicas get all writes in one order, so one that has this has those before it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keyspace::Commands;
use futures::future::join_all;
use parking_lot::Mutex;
use redis::Value;

use super::Native;
use super::address::Kind;
use super::server::{NewConnection, Server, pipeline};
use super::topology::Topology;

/// How many replicas must have it.
const REPLICAS: u64 = 1;

/// How long is waited for them, in milliseconds: a hundred times what it takes when all is well.
const AT_MOST_MS: u64 = 100;

/// After nobody bore witness nobody is asked for so long: without replicas every change would take as long as it may.
const REST: Duration = Duration::from_secs(1);

/// How often it is said that there is no replica.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Connections to wait on, by the name of their server.
#[derive(Default)]
pub(super) struct ReplicaAcks {
    by_server: Mutex<HashMap<String, ReplicaAck>>,
    said: Mutex<Option<Instant>>,
}

#[derive(Default, Clone)]
struct ReplicaAck {
    connection: Option<NewConnection>,
    rests_until: Option<Instant>,
}

impl Native {
    /// Waits until what was just written to these groups is on a replica too, or for long enough.
    pub(super) async fn await_replicas(&self, topology: &Topology, groups: &BTreeSet<u32>) {
        if self.servers.kind() == Kind::Single {
            return;
        }
        let mut servers: Vec<(&Arc<Server>, u32)> = Vec::new();
        for (server, group) in groups.iter().filter_map(|group| Some((topology.server(*group)?, *group))) {
            if !servers.iter().any(|(known, _)| Arc::ptr_eq(known, server)) {
                servers.push((server, group));
            }
        }
        join_all(servers.into_iter().map(|(server, group)| self.wait(server, group))).await;
    }

    async fn wait(&self, server: &Server, group: u32) {
        let name = server.endpoint.to_string();
        let ReplicaAck { connection, rests_until } =
            self.replica_acks.by_server.lock().get(&name).cloned().unwrap_or_default();
        if rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let connection = match connection {
            Some(connection) => Some(connection),
            None => server.connect().await.ok(),
        };
        let has_it = match &connection {
            Some(connection) => self.has_replica(server, connection, group).await,
            None => false,
        };
        let rests_until = (!has_it).then(|| Instant::now() + REST);
        if !has_it {
            self.say_so(&name);
        }
        // A connection that failed may be broken: the next call makes another.
        let connection = connection.filter(|_| has_it);
        self.replica_acks.by_server.lock().insert(name, ReplicaAck { connection, rests_until });
    }

    async fn has_replica(&self, server: &Server, connection: &NewConnection, group: u32) -> bool {
        let mut commands = Commands::default();
        self.keys.write_replicated(&mut commands, group, self.shared.time.now_us());
        commands.begin("WAIT").number(REPLICAS).number(AT_MOST_MS);
        let answers = server.try_out(connection, pipeline(&commands)).await;
        matches!(answers.as_deref(), Ok([Value::Okay, Value::Int(count)]) if *count >= REPLICAS as i64)
    }

    fn say_so(&self, server: &str) {
        let mut said = self.replica_acks.said.lock();
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            *said = Some(Instant::now());
            drop(said);
            tracing::warn!(
                server,
                "changes of who may see whom are on no replica yet: lost with the server, they are lost"
            );
        }
    }
}
