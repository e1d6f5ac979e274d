//! Replica acknowledgement: on a Cluster a master may be lost, and a policy change must survive that.
//!
//! `WAIT` blocks everything else on its connection, and the connection that calls share carries heartbeats. So each
//! master has a separate connection for it. `WAIT` covers a write on that same connection: replicas receive all writes
//! in one order, so a replica that has this write has all before it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keyspace::Commands;
use futures::future::join_all;
use parking_lot::Mutex;
use redis::Value;

use super::NativeTransport;
use super::address::Kind;
use super::server::{NewConnection, Server, pipeline};
use super::topology::Topology;

/// How many replicas must acknowledge.
const REPLICAS: u64 = 1;

/// How long to wait for them, in milliseconds: a hundred times what it normally takes.
const AT_MOST_MS: u64 = 100;

/// How long no acknowledgement is waited for after one was missing: without replicas every change would take the full
/// wait.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a missing replica is logged.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Connections for `WAIT`, by server name.
#[derive(Default)]
pub(super) struct ReplicaAcks {
    by_server: Mutex<HashMap<String, ReplicaAck>>,
    warned: Mutex<Option<Instant>>,
}

#[derive(Default, Clone)]
struct ReplicaAck {
    connection: Option<NewConnection>,
    paused_until: Option<Instant>,
}

impl NativeTransport {
    /// Waits until a replica has what was just written to these groups, or the wait times out.
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
        let ReplicaAck { connection, paused_until } =
            self.replica_acks.by_server.lock().get(&name).cloned().unwrap_or_default();
        if paused_until.is_some_and(|until| Instant::now() < until) {
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
        let paused_until = (!has_it).then(|| Instant::now() + PAUSE);
        if !has_it {
            self.warn_no_replica(&name);
        }
        // A connection that failed may be broken: the next call opens another.
        let connection = connection.filter(|_| has_it);
        self.replica_acks.by_server.lock().insert(name, ReplicaAck { connection, paused_until });
    }

    async fn has_replica(&self, server: &Server, connection: &NewConnection, group: u32) -> bool {
        let mut commands = Commands::default();
        self.keys.write_replicated(&mut commands, group, self.shared.time.now_us());
        commands.begin("WAIT").number(REPLICAS).number(AT_MOST_MS);
        let answers = server.send_on(connection, pipeline(&commands)).await;
        matches!(answers.as_deref(), Ok([Value::Okay, Value::Int(count)]) if *count >= REPLICAS as i64)
    }

    fn warn_no_replica(&self, server: &str) {
        let mut warned = self.replica_acks.warned.lock();
        if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            *warned = Some(Instant::now());
            drop(warned);
            tracing::warn!(server, "No replica acknowledged a policy change; it is lost if this server is lost");
        }
    }
}
