//! Hears every publication and keeps it: what the whole world was told about each person, in order.
//!
//! A listener that loses its connection comes back at once, and notes that it may have missed something in between: only
//! of what came over one connection can be said that nothing is lacking.

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
use crate::resp::{Reply, hear, say};

/// Every topic. Braces mean themselves in Redis's patterns.
const EVERY_TOPIC: &str = "rc:{*}:t:*";

/// A server that is there takes a subscription within milliseconds; a busy machine is given more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before a server that is away is tried again: well below the time that a host needs to come back.
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
    /// The connection on which it was heard. Between two of different ones something may be lacking.
    pub line: usize,
}

impl Event {
    /// When it was decided, in milliseconds, by the store's clock.
    pub fn at_ms(&self) -> u64 {
        self.version / 1000
    }

    /// Whether others learn nothing from this if they knew the other. Of somebody offline a newer last seen is news.
    pub fn repeats(&self, other: &Event) -> bool {
        let same = self.state == other.state && self.note == other.note;
        same && (self.state != "offline" || self.last_seen == other.last_seen)
    }
}

/// What was heard, by person.
pub type Published = BTreeMap<String, Vec<Event>>;

/// Listens until it is dropped.
pub struct Recorder {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Published>,
    lines: Mutex<Vec<TcpStream>>,
    subscribed: Mutex<usize>,
    ended: AtomicBool,
}

impl Recorder {
    /// Listens to everything that is published on the server at this port.
    pub fn on(port: u16) -> Self {
        Self::listening(vec![(port, vec![vec!["PSUBSCRIBE".to_owned(), EVERY_TOPIC.to_owned()]])])
    }

    /// Listens to what is published about these people on a Cluster. It listens at the replicas, which hear all that
    /// their masters do, and go on when these are killed.
    pub fn on_cluster(cluster: &Cluster, users: &[String]) -> Self {
        let keys = Keyspace::new("rc", rollcall_store::DEFAULT_SHARDS).expect("a prefix");
        let mut lines: BTreeMap<u16, Vec<Vec<String>>> = BTreeMap::new();
        for user in users {
            let topic = keys.topic(user).to_string();
            let owner = cluster.owner_of(slot_of(topic.as_bytes())).expect("a master of every slot");
            let replica = &cluster.nodes()[owner + cluster.nodes().len() / 2];
            lines.entry(replica.port()).or_default().push(vec!["SSUBSCRIBE".to_owned(), topic]);
        }
        Self::listening(lines.into_iter().collect())
    }

    fn listening(lines: Vec<(u16, Vec<Vec<String>>)>) -> Self {
        let shared = Arc::new(Shared::default());
        let wanted = lines.iter().map(|(_, subscriptions)| subscriptions.len()).sum::<usize>();
        let threads = lines.into_iter().map(|(port, subscriptions)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.listen(port, &subscriptions))
        });
        let threads = threads.collect();
        let recorder = Self { shared, threads };
        eventually("the recorder listens", PATIENCE, || *recorder.shared.subscribed.lock().expect("a lock") >= wanted);
        recorder
    }

    /// Everything that was heard so far.
    pub fn heard(&self) -> Published {
        self.shared.heard.lock().expect("a lock").clone()
    }

    /// What was heard of one person.
    pub fn of(&self, user: &str) -> Vec<Event> {
        self.shared.heard.lock().expect("a lock").get(user).cloned().unwrap_or_default()
    }

    /// Waits until this was published about a person as the newest, and answers it.
    pub fn until(&self, user: &str, state: &str, within: Duration) -> Event {
        let mut newest = None;
        eventually(&format!("{user} is published as {state}"), within, || {
            newest = self.of(user).pop().filter(|event| event.state == state);
            newest.is_some()
        });
        newest.expect("an event")
    }

    /// How often it had to connect.
    pub fn lines(&self) -> usize {
        self.shared.lines.lock().expect("a lock").len()
    }
}

impl Shared {
    fn listen(&self, port: u16, subscriptions: &[Vec<String>]) {
        while !self.ended.load(Ordering::SeqCst) {
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                // How it ended does not matter: the next connection is another line.
                let _ = self.follow(stream, subscriptions);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn follow(&self, mut stream: TcpStream, subscriptions: &[Vec<String>]) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let line = {
            let mut lines = self.lines.lock().expect("a lock");
            lines.push(stream.try_clone()?);
            lines.len()
        };
        for words in subscriptions {
            say(&mut stream, &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        while !self.ended.load(Ordering::SeqCst) {
            let Reply::List(parts) = hear(&mut reader)? else { continue };
            match parts.first().and_then(Reply::text) {
                Some("psubscribe" | "ssubscribe") => *self.subscribed.lock().expect("a lock") += 1,
                Some("pmessage" | "smessage") => self.keep(parts.last().and_then(Reply::text), line),
                _ => {}
            }
        }
        Ok(())
    }

    fn keep(&self, payload: Option<&str>, line: usize) {
        let payload: Value = payload.and_then(|payload| serde_json::from_str(payload).ok()).expect("a payload");
        let event = Event {
            state: payload["state"].as_str().expect("a state").to_owned(),
            note: payload["note"].clone(),
            last_seen: payload["last_seen"].as_u64(),
            version: payload["version"].as_u64().expect("a version"),
            line,
        };
        let user = payload["user"].as_str().expect("a user").to_owned();
        self.heard.lock().expect("a lock").entry(user).or_default().push(event);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for line in self.shared.lines.lock().expect("a lock").iter() {
            let _ = line.shutdown(std::net::Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
