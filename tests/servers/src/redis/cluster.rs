//! A Cluster of three masters with a replica each, on its own loopback ports.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Options, Redis};
use crate::process::{free_port, wait_until};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// A Cluster forms in two seconds; a busy machine needs more.
const START: Duration = Duration::from_secs(30);

/// After this long without an answer a master counts as failed and its replica takes over. Short, for short failover tests;
/// not so short that a busy machine causes a failover.
const NODE_TIMEOUT_MS: &str = "1500";

/// The nodes: the masters first, then their replicas in the same order, as they were at the start.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts a Cluster and waits until every slot is served and every replica follows its master.
    pub fn start() -> Result<Self> {
        let mut nodes = Vec::new();
        let meeting_bus = free_port()?;
        for index in 0..MASTERS * 2 {
            let bus = if index == 0 { meeting_bus } else { free_port()? };
            nodes.push(Redis::with(options(bus))?);
        }
        let cluster = Self { nodes };
        cluster.join(meeting_bus)?;
        Ok(cluster)
    }

    /// The URL for `--store`: all initial masters.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().take(MASTERS).map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Every node.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The index of the node that serves this slot, according to any node that answers.
    pub fn owner_of(&self, slot: u16) -> Result<usize> {
        let shards = self.ask_any(&["CLUSTER", "NODES"])?;
        for line in shards.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (Some(address), Some(flags)) = (words.get(1), words.get(2)) else { continue };
            let owns = words.iter().skip(8).filter(|range| !range.starts_with('[')).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
            });
            if owns && flags.contains("master") && !flags.contains("fail") {
                let port = address.split(['@', ':']).nth(1).context("an address without a port")?;
                let node = self.nodes.iter().position(|node| node.port().to_string() == port);
                return node.context("the owner is not one of the nodes");
            }
        }
        bail!("no node serves slot {slot}")
    }

    /// Kills a node at once.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        self.nodes.get_mut(node).context("no such node")?.kill();
        Ok(())
    }

    /// Starts a killed node again.
    pub fn restart(&mut self, node: usize) -> Result<()> {
        self.nodes.get_mut(node).context("no such node")?.restart()
    }

    /// Joins the nodes to one Cluster: all of them meet the first, which has this bus port.
    fn join(&self, bus: u16) -> Result<()> {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        let first = masters.first().context("no masters")?;
        let (port, bus) = (first.port().to_string(), bus.to_string());
        for (index, master) in masters.iter().enumerate() {
            let (start, end) = (index * SLOTS / MASTERS, (index + 1) * SLOTS / MASTERS - 1);
            let range = [start.to_string(), end.to_string()];
            expect_ok(master, &["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]])?;
            expect_ok(master, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
        }
        for node in self.nodes.iter().skip(1) {
            expect_ok(node, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        for (master, replica) in masters.iter().zip(replicas) {
            let id = master.ask(&["CLUSTER", "MYID"])?;
            // A node that does not know its master yet refuses this.
            wait_until("a replica to know its master", START, || {
                Ok(replica.ask(&["CLUSTER", "REPLICATE", &id])? == "OK")
            })?;
        }
        wait_until("the Cluster to form", START, || self.is_formed())
    }

    fn is_formed(&self) -> Result<bool> {
        let mut counts = BTreeMap::new();
        for node in &self.nodes {
            let info = node.ask(&["CLUSTER", "INFO"])?;
            let is_ok = info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6");
            let role = node.ask(&["INFO", "replication"])?;
            *counts.entry((is_ok, role.contains("master_link_status:up"))).or_insert(0) += 1;
        }
        Ok(counts == BTreeMap::from([((true, false), MASTERS), ((true, true), MASTERS)]))
    }

    fn ask_any(&self, args: &[&str]) -> Result<String> {
        self.nodes.iter().find_map(|node| node.ask(args).ok()).context("no node answers")
    }
}

fn options(bus: u16) -> Options {
    let args = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        NODE_TIMEOUT_MS,
        // The default bus port, 10,000 above the node's, is out of range for half of the free ports.
        "--cluster-port",
        &bus.to_string(),
        "--repl-diskless-sync-delay",
        "0",
    ];
    Options { args: args.map(str::to_owned).to_vec(), ..Options::default() }
}

fn expect_ok(node: &Redis, args: &[&str]) -> Result<()> {
    match node.ask(args)?.as_str() {
        "OK" => Ok(()),
        other => bail!("{args:?}: {other}"),
    }
}
