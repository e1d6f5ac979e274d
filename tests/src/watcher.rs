//! What a watcher hears, over either transport. A thread takes it in as it comes, so that nothing waits in the system's
//! buffers and pings are answered while a test does something else.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::history::now_ms;
use crate::{Host, Socket, Stream};

/// Telling takes milliseconds; a busy machine is given more.
pub const DELIVERY: Duration = Duration::from_secs(10);

/// Somebody whom a watcher watches beside those whom a test is about: see [`EventQueue::events_so_far`].
pub const FENCE: &str = "fence";

/// Something that a watcher was told.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// The event's name.
    pub event: String,
    /// From where to resume after it.
    pub id: Option<String>,
    /// The message that it answers.
    pub reference: Option<u64>,
    /// The object.
    pub data: Value,
    /// When it came, in Unix milliseconds.
    pub at_ms: u64,
}

impl WatchEvent {
    pub(crate) fn new(event: &str, id: Option<&str>, reference: Option<u64>, data: Value) -> Self {
        Self { event: event.to_owned(), id: id.map(str::to_owned), reference, data, at_ms: now_ms() }
    }

    /// Whether it is about this person's presence.
    pub fn is_of(&self, user: &str) -> bool {
        self.event == "presence" && self.data["user"] == user
    }

    /// The state that it tells of; empty if it tells of none.
    pub fn state(&self) -> &str {
        self.data["state"].as_str().unwrap_or_default()
    }

    /// The version of the presence.
    pub fn version(&self) -> u64 {
        self.data["version"].as_u64().unwrap_or_else(|| panic!("no version: {self:?}"))
    }
}

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The host said why.
    Closed {
        /// The code of a socket; of a stream, which has none, zero.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// Without a word.
    Broken,
}

impl Ending {
    /// The close code; zero if there was none.
    pub fn code(&self) -> u16 {
        match self {
            Ending::Closed { code, .. } => *code,
            Ending::Broken => 0,
        }
    }
}

/// What comes to pass on a line.
#[derive(Debug)]
pub(crate) enum Incoming {
    Event(WatchEvent),
    Ended(Ending),
}

/// What a client keeps beside the events.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResumePoint {
    pub(crate) last_id: Option<String>,
    pub(crate) retry_ms: Option<u64>,
}

/// The receiving end of a connection.
#[derive(Debug)]
pub struct EventQueue {
    heard: Receiver<Incoming>,
    mark: Arc<Mutex<ResumePoint>>,
    /// Taken from the channel while something else was looked for.
    passed: VecDeque<WatchEvent>,
    ending: Option<Ending>,
}

impl EventQueue {
    pub(crate) fn new() -> (Sender<Incoming>, Arc<Mutex<ResumePoint>>, Self) {
        let (sender, heard) = channel();
        let mark = Arc::<Mutex<ResumePoint>>::default();
        (sender, Arc::clone(&mark), Self { heard, mark, passed: VecDeque::new(), ending: None })
    }

    /// From where a client would resume now.
    pub fn last_id(&self) -> Option<String> {
        self.mark.lock().expect("a lock").last_id.clone()
    }

    /// After how many milliseconds a browser would connect again.
    pub fn retry_ms(&self) -> Option<u64> {
        self.mark.lock().expect("a lock").retry_ms
    }

    /// The next that is told; none if nothing comes in time, or if the line has ended.
    pub fn try_next(&mut self, within: Duration) -> Option<WatchEvent> {
        self.passed.pop_front().or_else(|| self.receive(within))
    }

    fn receive(&mut self, within: Duration) -> Option<WatchEvent> {
        if self.ending.is_some() {
            return None;
        }
        match self.heard.recv_timeout(within) {
            Ok(Incoming::Event(told)) => Some(told),
            Ok(Incoming::Ended(ending)) => {
                self.ending = Some(ending);
                None
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.ending = Some(Ending::Broken);
                None
            }
        }
    }

    /// The next that is told.
    pub fn next_event(&mut self) -> WatchEvent {
        let told = self.try_next(DELIVERY);
        told.unwrap_or_else(|| panic!("nothing was told within {DELIVERY:?}; the line: {:?}", self.ending))
    }

    /// Waits until something is told, and leaves it to be taken.
    fn wait(&mut self) {
        let told = self.next_event();
        self.passed.push_front(told);
    }

    /// Everything up to the first that is as wanted, which is the last.
    pub fn until(&mut self, what: &str, within: Duration, wanted: impl Fn(&WatchEvent) -> bool) -> Vec<WatchEvent> {
        let end = Instant::now() + within;
        let mut all = Vec::new();
        loop {
            match self.try_next(end.saturating_duration_since(Instant::now())) {
                Some(told) => all.push(told),
                None => panic!("{what}: not within {within:?}; the line: {:?}; told: {all:#?}", self.ending),
            }
            if all.last().is_some_and(&wanted) {
                return all;
            }
        }
    }

    /// The snapshot, which comes first.
    pub fn snapshot(&mut self) -> Value {
        let told = self.next_event();
        assert_eq!(told.event, "snapshot", "{told:?}");
        told.data
    }

    /// Waits until this is told of somebody, whatever is told before.
    pub fn presence(&mut self, user: &str, state: &str) -> WatchEvent {
        let what = format!("{user} is told to be {state}");
        let all = self.until(&what, DELIVERY, |told| told.is_of(user) && told.state() == state);
        all.into_iter().next_back().expect("at least the one that was wanted")
    }

    /// Waits for the answer to a message; what comes before stays to be taken.
    pub fn answer(&mut self, reference: u64) -> WatchEvent {
        let end = Instant::now() + DELIVERY;
        while let Some(told) = self.receive(end.saturating_duration_since(Instant::now())) {
            if told.reference == Some(reference) {
                return told;
            }
            self.passed.push_back(told);
        }
        panic!("no answer to {reference} within {DELIVERY:?}; the line: {:?}", self.ending)
    }

    /// Everything that was told of what happened before this call. Somebody whom the watcher watches, [`FENCE`], does
    /// something, and whatever is told before that is all there is: so a claim that nothing was told needs no waiting.
    pub fn events_so_far(&mut self, host: &Host) -> Vec<WatchEvent> {
        let fence = host.client(FENCE);
        let word = format!("now {}", now_ms());
        assert_eq!(fence.beat("web").status, 200);
        let answer = fence.put("/v1/status", json!({ "choice": "busy", "text": word }));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let is_fence = |told: &WatchEvent| told.is_of(FENCE) && told.data["note"]["text"] == *word;
        let all = self.until("the fence is told", DELIVERY, is_fence);
        all.into_iter().filter(|told| !told.is_of(FENCE)).collect()
    }

    /// Waits until the line has ended, and answers how; what was told before is let go.
    pub fn ending(&mut self, within: Duration) -> Ending {
        let end = Instant::now() + within;
        while self.try_next(end.saturating_duration_since(Instant::now())).is_some() {}
        self.ending.clone().unwrap_or_else(|| panic!("the line did not end within {within:?}"))
    }

    /// Whether it is still there, as far as was taken from it.
    pub fn is_open(&self) -> bool {
        self.ending.is_none()
    }
}

/// The states that were told of a person, in order.
pub fn states<'a>(told: &'a [WatchEvent], user: &str) -> Vec<&'a str> {
    told.iter().filter(|told| told.is_of(user)).map(WatchEvent::state).collect()
}

/// The ways to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Server-sent events.
    Events,
    /// A WebSocket.
    Socket,
}

impl Transport {
    /// All of them.
    pub const BOTH: [Self; 2] = [Self::Events, Self::Socket];

    /// Watches these people, without being here oneself. The snapshot is the first that is told.
    pub fn watch(self, host: &Host, viewer: &str, users: &str) -> Watcher {
        self.watch_as(host, viewer, "watch_only=true", &[("users", users)])
    }

    /// Watches these conversations, without being here oneself.
    pub fn listen(self, host: &Host, viewer: &str, conversations: &str) -> Watcher {
        self.watch_as(host, viewer, "watch_only=true", &[("conversations", conversations)])
    }

    /// Watches, connected in this way: `device=tab`. What is watched are lists with commas.
    pub fn watch_as(self, host: &Host, viewer: &str, how: &str, watched: &[(&str, &str)]) -> Watcher {
        match self {
            Self::Events => {
                let lists: String = watched.iter().map(|(name, list)| format!("&{name}={list}")).collect();
                Watcher::Stream(Stream::subscribe(host, viewer, &format!("{how}{lists}")))
            }
            Self::Socket => {
                let mut socket = Socket::open(host, viewer, how);
                let mut message = json!({ "op": "watch" });
                for (name, list) in watched {
                    let list: Value = list.split(',').collect();
                    message[*name] = list;
                }
                socket.send(&message);
                // Only then is anything watched that happens from now on.
                socket.wait();
                Watcher::Socket(Box::new(socket))
            }
        }
    }
}

/// A watcher, over either transport. Dropping it breaks its connection.
#[derive(Debug)]
pub enum Watcher {
    /// By server-sent events.
    Stream(Stream),
    /// By a WebSocket.
    Socket(Box<Socket>),
}

impl Deref for Watcher {
    type Target = EventQueue;

    fn deref(&self) -> &EventQueue {
        match self {
            Watcher::Stream(stream) => stream,
            Watcher::Socket(socket) => socket,
        }
    }
}

impl DerefMut for Watcher {
    fn deref_mut(&mut self) -> &mut EventQueue {
        match self {
            Watcher::Stream(stream) => stream,
            Watcher::Socket(socket) => socket,
        }
    }
}
