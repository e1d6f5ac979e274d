//! The service under test: one host with its embedded store, or two hosts that share a Redis or a Cluster. Tests write through
//! the last host and watch on the first, so that with two hosts every change crosses from one to the other.

use rollcall_servers::redis::{Cluster, Options, Redis};

use crate::Host;

/// Beats every second with half a second of tolerance, and early eviction.
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

    /// Two hosts on one Redis that keeps its data when it is killed.
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

    /// Checks a claim on the embedded store, then on two hosts with a Redis.
    pub fn on_each_store(arguments: &[&str], claim: impl Fn(&Self)) {
        for service in [Self::embedded, Self::redis] {
            let service = service(arguments);
            claim(&service);
            service.stop();
        }
    }

    /// The same on both at once, for claims that mostly wait.
    pub fn on_both_stores_at_once(arguments: &[&str], claim: impl Fn(&Self) + Sync) {
        let starts: [fn(&[&str]) -> Self; 2] = [Self::embedded, Self::redis];
        let claim = &claim;
        std::thread::scope(|scope| {
            for start in starts {
                scope.spawn(move || {
                    let service = start(arguments);
                    claim(&service);
                    service.stop();
                });
            }
        });
    }

    /// The host for watchers.
    pub fn first(&self) -> &Host {
        self.hosts.first().expect("a host")
    }

    /// The host for the users they watch; with one host the same.
    pub fn last(&self) -> &Host {
        self.hosts.last().expect("a host")
    }

    /// The Redis; panics if the store is another.
    pub fn server(&mut self) -> &mut Redis {
        self.redis.as_mut().expect("a Redis")
    }

    /// Stops every host; each must exit with success.
    pub fn stop(self) {
        self.hosts.into_iter().for_each(Host::stop);
    }
}

fn two(store: &str, arguments: &[&str]) -> Vec<Host> {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--store", store]);
    (0..2).map(|_| Host::start(&arguments)).collect()
}
