//! Which server has which shard: a single server has all; on a Cluster the present masters have them.
//!
//! One multiplexed connection per master and our own slot map, because a batch is to be one pipeline per master: the
//! client library's Cluster connection refuses a pipeline whose keys are in more than one slot.

use std::sync::Arc;

use crate::keyspace::{Keyspace, SLOTS, slot_of};
use parking_lot::RwLock;
use redis::{Pipeline, Value, cmd};
use rollcall_core::Time;
use tokio::sync::watch;

use super::address::{Address, Endpoint, Kind};
use super::server::{Server, Shared};

/// The present topology.
#[derive(Debug)]
pub(super) struct Topology {
    /// Every server that has a shard.
    pub(super) servers: Vec<Arc<Server>>,
    /// The server of each shard; `None` if no server has it.
    by_shard: Box<[Option<Arc<Server>>]>,
}

/// The servers.
#[derive(Debug)]
pub(super) struct Servers {
    address: Address,
    shared: Arc<Shared>,
    topology: RwLock<Arc<Topology>>,
    changed: watch::Sender<u64>,
    /// The slot of each shard.
    slots: Box<[u16]>,
}

/// A range of slots and its master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

impl Topology {
    /// The server of this shard, if there is one.
    pub(super) fn server(&self, shard: u32) -> Option<&Arc<Server>> {
        self.by_shard.get(shard as usize)?.as_ref()
    }

    /// The server with the keys shared by all shards: that of shard 0.
    pub(super) fn shared_keys_server(&self) -> Option<&Arc<Server>> {
        self.server(0)
    }

    fn known(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.endpoint.to_string() == name)
    }
}

impl Servers {
    pub(super) fn new(address: Address, shared: Arc<Shared>, keys: &Keyspace) -> Self {
        let slots: Box<[u16]> =
            (0..keys.shards()).map(|shard| slot_of(keys.due(shard).to_string().as_bytes())).collect();
        let topology = match (address.kind, address.endpoints.first()) {
            (Kind::Single, Some(endpoint)) => {
                let server = Arc::new(Server::new(endpoint.clone(), Arc::clone(&shared), None));
                let by_shard = slots.iter().map(|_| Some(Arc::clone(&server))).collect();
                Topology { servers: vec![server], by_shard }
            }
            _ => Topology { servers: Vec::new(), by_shard: slots.iter().map(|_| None).collect() },
        };
        Self { address, shared, topology: RwLock::new(Arc::new(topology)), changed: watch::Sender::new(0), slots }
    }

    pub(super) fn kind(&self) -> Kind {
        self.address.kind
    }

    pub(super) fn database(&self) -> i64 {
        self.address.endpoints.first().map_or(0, Endpoint::database)
    }

    pub(super) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.read())
    }

    /// The version of the topology; it changes with every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The server of this name, for a key that is there while its slot moves.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Server>> {
        self.topology().known(name).cloned()
    }

    /// Asks any server that answers which master has which slot. Returns false if no server answers.
    pub(super) async fn refresh(&self) -> bool {
        if self.address.kind == Kind::Single {
            return true;
        }
        let known = self.topology();
        for server in known.servers.iter().filter(|server| server.down().is_none()) {
            if let Ok(replies) = server.call(slots_command()).await
                && self.accept(&server.endpoint, replies.first())
            {
                return true;
            }
        }
        // No known master is up: ask those in the URL, and those that were masters before.
        let former =
            known.servers.iter().filter(|server| server.down().is_some()).map(|server| server.endpoint.clone());
        for endpoint in self.address.endpoints.iter().cloned().chain(former) {
            let server = Server::new(endpoint.clone(), Arc::clone(&self.shared), None);
            let Ok(connection) = server.connect().await else { continue };
            if let Ok(replies) = server.send_on(&connection, slots_command()).await
                && self.accept(&endpoint, replies.first())
            {
                return true;
            }
        }
        false
    }

    /// Replaces the topology if the reply is valid and differs.
    fn accept(&self, asked: &Endpoint, reply: Option<&Value>) -> bool {
        let Some(ranges) = reply.and_then(|reply| ranges(reply, asked.host())) else { return false };
        if ranges.is_empty() {
            return false;
        }
        let mut place = self.topology.write();
        let old = Arc::clone(&place);
        let mut servers: Vec<Arc<Server>> = Vec::new();
        let mut by_shard: Vec<Option<Arc<Server>>> = Vec::with_capacity(self.slots.len());
        for (shard, slot) in (0..).zip(&self.slots) {
            let range = ranges.iter().find(|range| (range.first..=range.last).contains(slot));
            by_shard.push(range.map(|range| {
                let endpoint = asked.at(&range.host, range.port);
                let name = endpoint.to_string();
                let known =
                    servers.iter().find(|server| server.endpoint.to_string() == name).or_else(|| old.known(&name));
                let server = known.cloned().unwrap_or_else(|| {
                    Arc::new(Server::new(endpoint, Arc::clone(&self.shared), missed_since(old.server(shard))))
                });
                if !servers.iter().any(|known| Arc::ptr_eq(known, &server)) {
                    servers.push(Arc::clone(&server));
                }
                server
            }));
        }
        let same = |(one, other): (&Option<Arc<Server>>, &Option<Arc<Server>>)| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        if !by_shard.iter().zip(&*old.by_shard).all(same) {
            let masters: Vec<String> = servers.iter().map(|server| server.endpoint.to_string()).collect();
            tracing::info!(?masters, "Cluster topology changed");
            // A replica that took over may lack its master's newest writes.
            self.shared.deadlines.forget(self.shared.time.now());
            *place = Arc::new(Topology { servers, by_shard: by_shard.into() });
            drop(place);
            self.changed.send_modify(|version| *version += 1);
        }
        true
    }
}

/// When the shard was last served, if its server is down. The server that takes over records the outage.
fn missed_since(before: Option<&Arc<Server>>) -> Option<Time> {
    before?.down()?.since
}

fn slots_command() -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(1);
    pipeline.add_command(cmd("CLUSTER").arg("SLOTS").to_owned());
    pipeline
}

/// Parses the reply to `CLUSTER SLOTS`; `None` if it is something else. A node that does not know its own address
/// leaves it out; then it is the address at which the node was asked.
fn ranges(reply: &Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(entries) = reply else { return None };
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let Value::Array(entry) = entry else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = entry.as_slice() else { return None };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() && host != b"?" => String::from_utf8(host.clone()).ok()?,
            _ => asked.to_owned(),
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        ranges.push(Range { first, last, host, port: u16::try_from(*port).ok()? });
    }
    Some(ranges)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn entry(first: i64, last: i64, host: &str, port: i64) -> Value {
        let master =
            Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), Value::BulkString("id".into())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    #[test]
    fn unnamed_host_is_the_one_asked() {
        let reply = Value::Array(vec![entry(0, 8191, "a", 1), entry(8192, 16_383, "", 2)]);
        let ranges = ranges(&reply, "here").unwrap();
        let named: Vec<_> =
            ranges.iter().map(|range| (range.first, range.last, range.host.as_str(), range.port)).collect();
        assert_eq!(named, [(0, 8191, "a", 1), (8192, 16_383, "here", 2)]);
    }

    #[test]
    fn invalid_slot_maps_are_refused() {
        for reply in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![entry(5, 4, "a", 1)]),
            Value::Array(vec![entry(0, 16_384, "a", 1)]),
            Value::Array(vec![entry(0, 1, "a", 70_000)]),
        ] {
            assert_eq!(ranges(&reply, "here"), None, "{reply:?}");
        }
    }
}
