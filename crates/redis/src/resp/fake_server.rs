//! A fake server with a clock, controlled by the test.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::transport::{CommandReply, OwnedPiece};
use futures::channel::oneshot;

use super::byte_stream::{Connector, Sink, Source};
use super::protocol::Parser;

/// A server, its clock, and every command it received.
#[derive(Clone, Default)]
pub(super) struct FakeServer(Rc<State>);

#[derive(Default)]
struct State {
    now_ms: Cell<u64>,
    sleepers: RefCell<Vec<Waker>>,
    attempts: Cell<u32>,
    is_down: Cell<bool>,
    is_mute: Cell<bool>,
    is_full: Cell<bool>,
    said: RefCell<Vec<String>>,
    writes: Cell<u32>,
    logged: RefCell<Vec<String>>,
    connections: RefCell<Vec<Rc<Connection>>>,
}

#[derive(Default)]
struct Connection {
    /// What the server has sent, or will send once it is no longer mute.
    sent: RefCell<VecDeque<Vec<u8>>>,
    held: RefCell<VecDeque<Vec<u8>>>,
    reader: RefCell<Option<Waker>>,
    is_closed: Cell<bool>,
    is_left: Cell<bool>,
    parser: RefCell<Parser>,
    subscribed: RefCell<BTreeSet<String>>,
}

impl Connection {
    fn deliver(&self, bytes: Vec<u8>) {
        self.sent.borrow_mut().push_back(bytes);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl FakeServer {
    pub(super) fn advance(&self, ms: u64) {
        self.0.now_ms.set(self.0.now_ms.get() + ms);
        self.0.sleepers.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.0.is_down.set(is_down);
    }

    /// A mute server takes commands and holds its replies back.
    pub(super) fn set_mute(&self, is_mute: bool) {
        self.0.is_mute.set(is_mute);
        if !is_mute {
            for connection in self.0.connections.borrow().iter() {
                let held = connection.held.take();
                // In chunks that ignore reply boundaries.
                let bytes: Vec<u8> = held.into_iter().flatten().collect();
                bytes.chunks(3).for_each(|part| connection.deliver(part.to_vec()));
            }
        }
    }

    /// A full server accepts no bytes; a writer waits for ever.
    pub(super) fn set_full(&self, is_full: bool) {
        self.0.is_full.set(is_full);
    }

    pub(super) fn close_all(&self) {
        for connection in self.0.connections.borrow().iter() {
            connection.is_closed.set(true);
            if let Some(reader) = connection.reader.take() {
                reader.wake();
            }
        }
    }

    pub(super) fn publish(&self, channel: &str, payload: &[u8]) {
        for connection in self.0.connections.borrow().iter() {
            if connection.subscribed.borrow().contains(channel) {
                let mut bytes = format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n", channel.len()).into_bytes();
                bytes.extend(format!("${}\r\n", payload.len()).into_bytes());
                bytes.extend(payload);
                bytes.extend(b"\r\n");
                connection.deliver(bytes);
            }
        }
    }

    /// How many connections were opened, and how many are still open.
    pub(super) fn connections(&self) -> (u32, usize) {
        let open = self.0.connections.borrow().iter().filter(|connection| !connection.is_left.get()).count();
        (self.0.attempts.get(), open)
    }

    /// The commands since the last call.
    pub(super) fn said(&self) -> Vec<String> {
        self.0.said.take()
    }

    /// The number of writes since the last call.
    pub(super) fn writes(&self) -> u32 {
        self.0.writes.take()
    }

    pub(super) fn logged(&self) -> Vec<String> {
        self.0.logged.take()
    }

    fn take(&self, connection: &Connection, bytes: &[u8]) {
        let mut parser = connection.parser.borrow_mut();
        parser.feed(bytes);
        while let Ok(Some(CommandReply::Pieces(pieces))) = parser.next() {
            let words: Vec<String> = pieces
                .into_iter()
                .map(|piece| match piece {
                    OwnedPiece::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    OwnedPiece::Nil | OwnedPiece::Int(_) => String::new(),
                })
                .collect();
            self.0.said.borrow_mut().push(words.join(" "));
            let answer = answer(connection, &words);
            if self.0.is_mute.get() {
                connection.held.borrow_mut().push_back(answer);
            } else {
                connection.deliver(answer);
            }
        }
    }
}

fn answer(connection: &Connection, words: &[String]) -> Vec<u8> {
    let word = |place: usize| words.get(place).cloned().unwrap_or_default();
    let mut subscribed = connection.subscribed.borrow_mut();
    let confirm = |sort: &str, count: usize| {
        let channel = word(1);
        format!("*3\r\n${}\r\n{sort}\r\n${}\r\n{channel}\r\n:{count}\r\n", sort.len(), channel.len())
    };
    match word(0).as_str() {
        "SUBSCRIBE" => {
            subscribed.insert(word(1));
            confirm("subscribe", subscribed.len())
        }
        "UNSUBSCRIBE" => {
            subscribed.remove(&word(1));
            confirm("unsubscribe", subscribed.len())
        }
        "PING" => "*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned(),
        "AUTH" if word(1) != "right" => "-WRONGPASS invalid password\r\n".to_owned(),
        "ECHO" => format!("${}\r\n{}\r\n", word(1).len(), word(1)),
        "NOISE" => "HTTP/1.1 400\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
    .into_bytes()
}

pub(super) struct Incoming(Rc<Connection>);

pub(super) struct Outgoing(FakeServer, Rc<Connection>);

impl Drop for Incoming {
    fn drop(&mut self) {
        self.0.is_left.set(true);
    }
}

impl Connector for FakeServer {
    type Source = Incoming;
    type Sink = Outgoing;
    type Signal = oneshot::Sender<()>;

    async fn connect(&self) -> Result<(Incoming, Outgoing), String> {
        self.0.attempts.set(self.0.attempts.get() + 1);
        if self.0.is_down.get() {
            self.sleep(100).await;
            return Err("connection refused".to_owned());
        }
        let connection = Rc::new(Connection::default());
        self.0.connections.borrow_mut().push(Rc::clone(&connection));
        Ok((Incoming(Rc::clone(&connection)), Outgoing(self.clone(), connection)))
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms.get()
    }

    async fn sleep(&self, ms: u64) {
        let until = self.now_ms() + ms;
        poll_fn(|context| {
            if self.now_ms() >= until {
                return Poll::Ready(());
            }
            self.0.sleepers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn signal(&self) -> (oneshot::Sender<()>, impl Future<Output = ()>) {
        let (signal, signalled) = oneshot::channel();
        (signal, async { _ = signalled.await })
    }

    fn log(&self, text: &str) {
        self.0.logged.borrow_mut().push(text.to_owned());
    }
}

impl Source for Incoming {
    async fn read(&mut self) -> Option<Vec<u8>> {
        poll_fn(|context| {
            if let Some(bytes) = self.0.sent.borrow_mut().pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.0.is_closed.get() {
                return Poll::Ready(None);
            }
            *self.0.reader.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Sink for Outgoing {
    async fn write(&mut self, bytes: Vec<u8>) -> bool {
        if self.1.is_closed.get() {
            return false;
        }
        if self.0.0.is_full.get() {
            pending::<()>().await;
        }
        self.0.0.writes.set(self.0.0.writes.get() + 1);
        self.0.take(&self.1, &bytes);
        true
    }
}
