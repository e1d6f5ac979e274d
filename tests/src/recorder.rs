//! Records every publication: all events about each user, in order.
//!
//! A subscriber that loses its connection reconnects at once. Events may be missing between two connections, so each event says
//! on which connection it arrived; only within one is the record complete.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rollcall_redis::{Keyspace, slot_of};
use rollcall_servers::redis::Cluster;
use serde_json::Value;

use crate::eventually;
use crate::resp::{Reply, receive, send};

/// Every topic. Braces are literal in Redis patterns.
const EVERY_TOPIC: &str = "rc:{*}:t:*";

/// A running server confirms a subscription within milliseconds; a busy machine gets more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Delay before reconnecting: well below the time a host needs to reconnect.
const PAUSE: Duration = Duration::from_millis(10);

/// One publication.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The state.
    pub state: String,
    /// The note, null if there is none.
    pub note: Value,
    /// The newest beat, in milliseconds.
    pub last_seen: Option<u64>,
    /// The version.
    pub version: u64,
    /// The connection on which it arrived. Between events of two connections some may be missing.
    pub connection: usize,
}

impl Event {
    /// When it was decided, in milliseconds of the store's clock.
    pub fn at_ms(&self) -> u64 {
        self.version / 1000
    }

    /// Whether it repeats the other event. For an offline user a newer last seen is a change.
    pub fn repeats(&self, other: &Event) -> bool {
        let same = self.state == other.state && self.note == other.note;
        same && (self.state != "offline" || self.last_seen == other.last_seen)
    }
}

/// All events by user.
pub type Published = BTreeMap<String, Vec<Event>>;

/// Records until it is dropped.
pub struct Recorder {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    published: Mutex<Published>,
    connections: Mutex<Vec<TcpStream>>,
    subscribed: Mutex<usize>,
    ended: AtomicBool,
}

impl Recorder {
    /// Records everything published on the server at this port.
    pub fn on(port: u16) -> Self {
        Self::subscribed(vec![(port, vec![vec!["PSUBSCRIBE".to_owned(), EVERY_TOPIC.to_owned()]])])
    }

    /// Records what is published about these users on a Cluster. It subscribes at the replicas, which get every message of their
    /// masters and survive when those are killed.
    pub fn on_cluster(cluster: &Cluster, users: &[String]) -> Self {
        let keys = Keyspace::new("rc", rollcall_store::DEFAULT_SHARDS).expect("a prefix");
        let mut subscriptions_by_port: BTreeMap<u16, Vec<Vec<String>>> = BTreeMap::new();
        for user in users {
            let topic = keys.topic(user).to_string();
            let owner = cluster.owner_of(slot_of(topic.as_bytes())).expect("a master of every slot");
            let replica = &cluster.nodes()[owner + cluster.nodes().len() / 2];
            subscriptions_by_port.entry(replica.port()).or_default().push(vec!["SSUBSCRIBE".to_owned(), topic]);
        }
        Self::subscribed(subscriptions_by_port.into_iter().collect())
    }

    fn subscribed(subscriptions: Vec<(u16, Vec<Vec<String>>)>) -> Self {
        let shared = Arc::new(Shared::default());
        let wanted = subscriptions.iter().map(|(_, subscriptions)| subscriptions.len()).sum::<usize>();
        let threads = subscriptions.into_iter().map(|(port, subscriptions)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.listen(port, &subscriptions))
        });
        let threads = threads.collect();
        let recorder = Self { shared, threads };
        eventually("the recorder is subscribed", PATIENCE, || {
            *recorder.shared.subscribed.lock().expect("a lock") >= wanted
        });
        recorder
    }

    /// All events so far.
    pub fn published(&self) -> Published {
        self.shared.published.lock().expect("a lock").clone()
    }

    /// The events about one user so far.
    pub fn of(&self, user: &str) -> Vec<Event> {
        self.shared.published.lock().expect("a lock").get(user).cloned().unwrap_or_default()
    }

    /// Waits until a user's newest event has this state, and returns it.
    pub fn until(&self, user: &str, state: &str, within: Duration) -> Event {
        let mut newest = None;
        eventually(&format!("{user} is published as {state}"), within, || {
            newest = self.of(user).pop().filter(|event| event.state == state);
            newest.is_some()
        });
        newest.expect("an event")
    }

    /// How many connections it made.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().expect("a lock").len()
    }
}

impl Shared {
    fn listen(&self, port: u16, subscriptions: &[Vec<String>]) {
        while !self.ended.load(Ordering::SeqCst) {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                let _ = self.follow(stream, subscriptions);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn follow(&self, mut stream: TcpStream, subscriptions: &[Vec<String>]) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let connection = {
            let mut connections = self.connections.lock().expect("a lock");
            connections.push(stream.try_clone()?);
            connections.len()
        };
        for words in subscriptions {
            send(&mut stream, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        while !self.ended.load(Ordering::SeqCst) {
            let Reply::List(parts) = receive(&mut reader)? else { continue };
            match parts.first().and_then(Reply::text) {
                Some("psubscribe" | "ssubscribe") => *self.subscribed.lock().expect("a lock") += 1,
                Some("pmessage" | "smessage") => self.keep(parts.last().and_then(Reply::text), connection),
                _ => {}
            }
        }
        Ok(())
    }

    fn keep(&self, payload: Option<&str>, connection: usize) {
        let payload: Value = payload.and_then(|payload| serde_json::from_str(payload).ok()).expect("a payload");
        let event = Event {
            state: payload["state"].as_str().expect("a state").to_owned(),
            note: payload["note"].clone(),
            last_seen: payload["last_seen"].as_u64(),
            version: payload["version"].as_u64().expect("a version"),
            connection,
        };
        let user = payload["user"].as_str().expect("a user").to_owned();
        self.published.lock().expect("a lock").entry(user).or_default().push(event);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for connection in self.shared.connections.lock().expect("a lock").iter() {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
