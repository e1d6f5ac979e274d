//! A watcher over either protocol, and the queue of its events. A thread reads the connection, so that nothing waits in socket
//! buffers and pings are answered while a test does something else.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::history::now_ms;
use crate::{Host, Socket, Stream};

/// An event takes milliseconds; a busy machine gets more.
pub const DELIVERY: Duration = Duration::from_secs(10);

/// A user that a watcher watches besides those under test: see [`EventQueue::events_so_far`].
pub const FENCE: &str = "fence";

/// An event that a watcher received.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// Its name.
    pub event: String,
    /// Its id, to resume from.
    pub id: Option<String>,
    /// The `ref` of the message that it answers.
    pub reference: Option<u64>,
    /// Its object.
    pub data: Value,
    /// When it arrived, in Unix milliseconds.
    pub at_ms: u64,
}

impl WatchEvent {
    pub(crate) fn new(event: &str, id: Option<&str>, reference: Option<u64>, data: Value) -> Self {
        Self { event: event.to_owned(), id: id.map(str::to_owned), reference, data, at_ms: now_ms() }
    }

    /// Whether it is a presence event about this user.
    pub fn is_of(&self, user: &str) -> bool {
        self.event == "presence" && self.data["user"] == user
    }

    /// The state in it; empty if there is none.
    pub fn state(&self) -> &str {
        self.data["state"].as_str().unwrap_or_default()
    }

    /// The version in it.
    pub fn version(&self) -> u64 {
        self.data["version"].as_u64().unwrap_or_else(|| panic!("no version: {self:?}"))
    }
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The host closed it with a reason.
    Closed {
        /// The close code of a socket; zero for a stream.
        code: u16,
        /// The reason.
        reason: String,
    },
    /// Without a reason.
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

/// What the reading thread sends.
#[derive(Debug)]
pub(crate) enum Incoming {
    Event(WatchEvent),
    Ended(Ending),
}

/// What a client keeps to reconnect.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResumePoint {
    pub(crate) last_id: Option<String>,
    pub(crate) retry_ms: Option<u64>,
}

/// The events received on one connection.
#[derive(Debug)]
pub struct EventQueue {
    incoming: Receiver<Incoming>,
    resume_point: Arc<Mutex<ResumePoint>>,
    /// Received while waiting for something else.
    passed: VecDeque<WatchEvent>,
    ending: Option<Ending>,
}

impl EventQueue {
    pub(crate) fn new() -> (Sender<Incoming>, Arc<Mutex<ResumePoint>>, Self) {
        let (sender, incoming) = channel();
        let resume_point = Arc::<Mutex<ResumePoint>>::default();
        (sender, Arc::clone(&resume_point), Self { incoming, resume_point, passed: VecDeque::new(), ending: None })
    }

    /// The id a client would resume from now.
    pub fn last_id(&self) -> Option<String> {
        self.resume_point.lock().expect("a lock").last_id.clone()
    }

    /// The reconnect delay that a browser would use, in milliseconds.
    pub fn retry_ms(&self) -> Option<u64> {
        self.resume_point.lock().expect("a lock").retry_ms
    }

    /// The next event; none if nothing arrives in time or the connection has ended.
    pub fn try_next(&mut self, within: Duration) -> Option<WatchEvent> {
        self.passed.pop_front().or_else(|| self.receive(within))
    }

    fn receive(&mut self, within: Duration) -> Option<WatchEvent> {
        if self.ending.is_some() {
            return None;
        }
        match self.incoming.recv_timeout(within) {
            Ok(Incoming::Event(event)) => Some(event),
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

    /// The next event; panics if none arrives in time.
    pub fn next_event(&mut self) -> WatchEvent {
        let event = self.try_next(DELIVERY);
        event.unwrap_or_else(|| panic!("no event within {DELIVERY:?}; the connection: {:?}", self.ending))
    }

    /// Waits for an event and leaves it in the queue.
    fn wait(&mut self) {
        let event = self.next_event();
        self.passed.push_front(event);
    }

    /// All events up to and including the first that matches.
    pub fn until(&mut self, what: &str, within: Duration, wanted: impl Fn(&WatchEvent) -> bool) -> Vec<WatchEvent> {
        let end = Instant::now() + within;
        let mut all = Vec::new();
        loop {
            match self.try_next(end.saturating_duration_since(Instant::now())) {
                Some(event) => all.push(event),
                None => panic!("{what}: not within {within:?}; the connection: {:?}; events: {all:#?}", self.ending),
            }
            if all.last().is_some_and(&wanted) {
                return all;
            }
        }
    }

    /// The snapshot, which is the first event.
    pub fn snapshot(&mut self) -> Value {
        let event = self.next_event();
        assert_eq!(event.event, "snapshot", "{event:?}");
        event.data
    }

    /// Waits for a presence event with this state, skipping others.
    pub fn presence(&mut self, user: &str, state: &str) -> WatchEvent {
        let what = format!("{user} is pushed as {state}");
        let all = self.until(&what, DELIVERY, |event| event.is_of(user) && event.state() == state);
        all.into_iter().next_back().expect("at least the matching one")
    }

    /// Waits for the answer to a message; other events stay in the queue.
    pub fn answer(&mut self, reference: u64) -> WatchEvent {
        let end = Instant::now() + DELIVERY;
        while let Some(event) = self.receive(end.saturating_duration_since(Instant::now())) {
            if event.reference == Some(reference) {
                return event;
            }
            self.passed.push_back(event);
        }
        panic!("no answer to {reference} within {DELIVERY:?}; the connection: {:?}", self.ending)
    }

    /// All events caused before this call. The user [`FENCE`], whom the watcher watches too, changes; everything received before
    /// that event is complete. So a claim that nothing was sent needs no fixed wait.
    pub fn events_so_far(&mut self, host: &Host) -> Vec<WatchEvent> {
        let fence = host.client(FENCE);
        let word = format!("now {}", now_ms());
        assert_eq!(fence.beat("web").status, 200);
        let answer = fence.put("/v1/status", json!({ "choice": "busy", "text": word }));
        assert_eq!(answer.status, 200, "{}", answer.text);
        let is_fence = |event: &WatchEvent| event.is_of(FENCE) && event.data["note"]["text"] == *word;
        let all = self.until("the fence event arrives", DELIVERY, is_fence);
        all.into_iter().filter(|event| !event.is_of(FENCE)).collect()
    }

    /// Waits until the connection has ended and returns how; earlier events are dropped.
    pub fn ending(&mut self, within: Duration) -> Ending {
        let end = Instant::now() + within;
        while self.try_next(end.saturating_duration_since(Instant::now())).is_some() {}
        self.ending.clone().unwrap_or_else(|| panic!("the connection did not end within {within:?}"))
    }

    /// Whether the connection is open, as far as events were read.
    pub fn is_open(&self) -> bool {
        self.ending.is_none()
    }
}

/// The states pushed about a user, in order.
pub fn states<'a>(events: &'a [WatchEvent], user: &str) -> Vec<&'a str> {
    events.iter().filter(|event| event.is_of(user)).map(WatchEvent::state).collect()
}

/// The ways to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Server-sent events.
    Events,
    /// A WebSocket.
    Socket,
}

impl Protocol {
    /// All of them.
    pub const BOTH: [Self; 2] = [Self::Events, Self::Socket];

    /// Watches these users with `watch_only`. The snapshot is the first event.
    pub fn watch(self, host: &Host, viewer: &str, users: &str) -> Watcher {
        self.watch_as(host, viewer, "watch_only=true", &[("users", users)])
    }

    /// Watches these conversations with `watch_only`.
    pub fn listen(self, host: &Host, viewer: &str, conversations: &str) -> Watcher {
        self.watch_as(host, viewer, "watch_only=true", &[("conversations", conversations)])
    }

    /// Watches with a query such as `device=tab`. `watched` holds comma-separated lists.
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
                // The subscription is in force once the snapshot is there.
                socket.wait();
                Watcher::Socket(Box::new(socket))
            }
        }
    }
}

/// A watcher over either protocol. Dropping it breaks the connection.
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
