//! Where something is tried: one host with its embedded store, or two hosts that share a Redis or a Cluster. What is done
//! *there* has to be seen *here*.

use rollcall_servers::redis::{Cluster, Options, Redis};

use crate::Host;

/// Beats every second with half a second of tolerance.
pub const BRISK: [&str; 6] = ["--interval", "1s", "--tolerance", "500ms", "--evict-after", "200ms"];

/// A running service.
pub struct Service {
    /// One, or two.
    pub hosts: Vec<Host>,
    /// The store, if it is a Redis.
    pub redis: Option<Redis>,
    /// The store, if it is a Cluster.
    pub cluster: Option<Cluster>,
}

impl Service {
    /// One host with its embedded store.
    pub fn embedded(arguments: &[&str]) -> Self {
        Self { hosts: vec![Host::start(arguments)], redis: None, cluster: None }
    }

    /// Two hosts on one Redis.
    pub fn redis(arguments: &[&str]) -> Self {
        Self::on(Redis::start().expect("a Redis"), arguments)
    }

    /// Two hosts on one Redis that keeps what is written when it is killed.
    pub fn durable_redis(arguments: &[&str]) -> Self {
        Self::on(Redis::with(Options { durable: true, ..Options::default() }).expect("a Redis"), arguments)
    }

    fn on(redis: Redis, arguments: &[&str]) -> Self {
        Self { hosts: two(&redis.url(), arguments), redis: Some(redis), cluster: None }
    }

    /// Two hosts on one Cluster.
    pub fn cluster(arguments: &[&str]) -> Self {
        let cluster = Cluster::start().expect("a Cluster");
        Self { hosts: two(&cluster.url(), arguments), redis: None, cluster: Some(cluster) }
    }

    /// Tries something on the embedded store and on two hosts with a Redis.
    pub fn on_each_store(arguments: &[&str], claim: impl Fn(&Self)) {
        for service in [Self::embedded, Self::redis] {
            let service = service(arguments);
            claim(&service);
            service.stop();
        }
    }

    /// Where the watchers are.
    pub fn first(&self) -> &Host {
        self.hosts.first().expect("a host")
    }

    /// Where those are whom they watch.
    pub fn last(&self) -> &Host {
        self.hosts.last().expect("a host")
    }

    /// Its store, which is a Redis.
    pub fn server(&mut self) -> &mut Redis {
        self.redis.as_mut().expect("a Redis")
    }

    /// Ends it in good order.
    pub fn stop(self) {
        self.hosts.into_iter().for_each(Host::stop);
    }
}

fn two(store: &str, arguments: &[&str]) -> Vec<Host> {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--store", store]);
    (0..2).map(|_| Host::start(&arguments)).collect()
}
