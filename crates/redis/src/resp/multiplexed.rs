//! One connection that many calls share: requests are sent whole and in order, and replies come back in that order.
//!
//! No task reads or writes in the background. Of the waiting calls one writes until everything is sent, and one reads
//! and delivers the replies to their calls. When it has its own reply, or is cancelled, another call continues where it
//! stopped. Any error fails the connection for all calls: it is then unknown what took effect, and the next call needs
//! a new connection.
//!
//! Two things are shared because they are expensive on a host. Requests that come together are sent together, so that
//! the server reads and answers them together. And the timer of the writing or reading call serves all others too.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::transport::{CommandReply, ConnectionError, OwnedPiece};
use futures::future::{Either, select};

use super::byte_stream::{Connector, Sink, Source};
use super::protocol::{Parser, Request};

/// Receives the channel and the payload of a message.
pub(super) type OnMessage = Rc<dyn Fn(&[u8], &[u8])>;

/// How long the server may be silent while a call waits for it: as in the native store.
pub(super) const ANSWER_MS: u64 = 1500;

/// One connection.
pub(super) struct Multiplexed<C: Connector> {
    connector: Rc<C>,
    /// Bytes to be sent.
    unsent: RefCell<Vec<u8>>,
    /// `None` while a call writes.
    sink: RefCell<Option<C::Sink>>,
    /// `None` while a call reads.
    reading: RefCell<Option<Reading<C>>>,
    /// Requests without all their replies, in the order sent.
    pending: RefCell<VecDeque<Rc<Pending>>>,
    /// Wakes sleeping calls, by waiter: dropping a signal wakes its call.
    sleeping: RefCell<BTreeMap<u64, C::Signal>>,
    next_waiter: Cell<u64>,
    broken: RefCell<Option<String>>,
    on_message: Option<OnMessage>,
}

struct Reading<C: Connector> {
    source: C::Source,
    parser: Parser,
}

/// A request that was sent. It stays in the queue even if its call was cancelled: its replies come anyway.
struct Pending {
    waiter: u64,
    answers: usize,
    replies: RefCell<Vec<CommandReply>>,
}

impl Pending {
    fn is_answered(&self) -> bool {
        self.replies.borrow().len() >= self.answers
    }
}

impl<C: Connector> Multiplexed<C> {
    /// A connection. One that receives messages does not fail because it is silent.
    pub(super) fn new(connector: Rc<C>, (source, sink): (C::Source, C::Sink), on_message: Option<OnMessage>) -> Self {
        Self {
            connector,
            unsent: RefCell::default(),
            sink: RefCell::new(Some(sink)),
            reading: RefCell::new(Some(Reading { source, parser: Parser::default() })),
            pending: RefCell::default(),
            sleeping: RefCell::default(),
            next_waiter: Cell::new(0),
            broken: RefCell::default(),
            on_message,
        }
    }

    /// Sends a request and waits for all replies.
    pub(super) async fn ask(&self, request: Request) -> Result<Vec<CommandReply>, ConnectionError> {
        self.check()?;
        let Request { bytes, answers } = request;
        let slot = Rc::new(Pending { waiter: self.waiter(), answers, replies: RefCell::default() });
        if answers > 0 {
            self.pending.borrow_mut().push_back(Rc::clone(&slot));
            self.unsent.borrow_mut().extend(bytes);
        }
        self.until(slot.waiter, || slot.is_answered()).await?;
        Ok(slot.replies.take())
    }

    /// A new waiter id.
    pub(super) fn waiter(&self) -> u64 {
        self.next_waiter.replace(self.next_waiter.get() + 1)
    }

    /// Waits for a condition that only received data can fulfil. Writes and reads for all calls if no other call does.
    pub(super) async fn until(&self, waiter: u64, is_done: impl Fn() -> bool) -> Result<(), ConnectionError> {
        let _guard = WaiterGuard { connection: self, waiter };
        loop {
            if is_done() {
                return Ok(());
            }
            self.check()?;
            match self.task() {
                Some(Task::Write(sink)) => {
                    Writer { connection: self, sink: Some(sink), is_writing: false }.write().await
                }
                Some(Task::Read(reading)) => Reader { connection: self, reading: Some(reading) }.read().await,
                None => {
                    let (signal, signalled) = self.connector.signal();
                    self.sleeping.borrow_mut().insert(waiter, signal);
                    signalled.await;
                }
            }
        }
    }

    /// The next I/O task that no call has claimed. Reading begins only after everything is sent: so the reading call
    /// has sent its request, and a call that has not can be woken to write.
    fn task(&self) -> Option<Task<C>> {
        match self.unsent.borrow().is_empty() {
            false => self.sink.take().map(Task::Write),
            true => self.reading.take().map(Task::Read),
        }
    }

    /// The result; `None` if it timed out, which fails the connection.
    async fn in_time<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        match select(pin!(what), pin!(self.connector.sleep(ANSWER_MS))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => {
                self.fail("no reply within the timeout");
                None
            }
        }
    }

    /// Whether it can no longer be used.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    /// Fails the connection for all calls. The first reason counts.
    pub(super) fn fail(&self, why: &str) {
        self.broken.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.sleeping.borrow_mut().clear();
    }

    fn check(&self) -> Result<(), ConnectionError> {
        self.broken.borrow().clone().map_or(Ok(()), |why| Err(ConnectionError(why)))
    }

    /// Wakes one call if there is an unclaimed I/O task.
    fn wake_next(&self) {
        let is_free = match self.unsent.borrow().is_empty() {
            false => self.sink.borrow().is_some(),
            true => self.reading.borrow().is_some(),
        };
        if is_free {
            self.sleeping.borrow_mut().pop_first();
        }
    }

    /// Delivers a reply to its request, or a message to its receiver.
    fn deliver(&self, reply: CommandReply) {
        if let (Some(on_message), Some((channel, payload))) = (&self.on_message, message(&reply)) {
            return on_message(channel, payload);
        }
        let mut pending = self.pending.borrow_mut();
        let Some(slot) = pending.front() else {
            drop(pending);
            return self.fail("it sent a reply without a request");
        };
        slot.replies.borrow_mut().push(reply);
        if slot.is_answered() {
            let waiter = slot.waiter;
            pending.pop_front();
            drop(pending);
            self.sleeping.borrow_mut().remove(&waiter);
        }
    }
}

/// The channel and the payload of a message; `None` if it is a reply.
fn message(reply: &CommandReply) -> Option<(&[u8], &[u8])> {
    let CommandReply::Pieces(pieces) = reply else { return None };
    match pieces.as_slice() {
        [OwnedPiece::Bytes(sort), OwnedPiece::Bytes(channel), OwnedPiece::Bytes(payload)] if sort == b"message" => {
            Some((channel, payload))
        }
        _ => None,
    }
}

/// Wakes the next call when a call stops waiting: it may itself have been woken to continue.
struct WaiterGuard<'a, C: Connector> {
    connection: &'a Multiplexed<C>,
    waiter: u64,
}

impl<C: Connector> Drop for WaiterGuard<'_, C> {
    fn drop(&mut self) {
        self.connection.sleeping.borrow_mut().remove(&self.waiter);
        self.connection.wake_next();
    }
}

/// An I/O task that one call does for all.
enum Task<C: Connector> {
    Write(C::Sink),
    Read(Reading<C>),
}

/// Writes until nothing is left to send. However it ends, another call can continue, unless it is cancelled in the
/// middle of a write: after half a command the server would misread everything that follows.
struct Writer<'a, C: Connector> {
    connection: &'a Multiplexed<C>,
    sink: Option<C::Sink>,
    is_writing: bool,
}

impl<C: Connector> Writer<'_, C> {
    async fn write(mut self) {
        let Some(sink) = &mut self.sink else { return };
        // Other calls may be about to send.
        yield_once().await;
        while !self.connection.unsent.borrow().is_empty() && !self.connection.is_broken() {
            let unsent = self.connection.unsent.take();
            self.is_writing = true;
            if self.connection.in_time(sink.write(unsent)).await == Some(false) {
                self.connection.fail("the connection broke");
            }
            self.is_writing = false;
        }
    }
}

impl<C: Connector> Drop for Writer<'_, C> {
    fn drop(&mut self) {
        *self.connection.sink.borrow_mut() = self.sink.take();
        if self.is_writing {
            self.connection.fail("a call was cancelled while it was sent");
        }
    }
}

/// Lets all other ready calls run first.
async fn yield_once() {
    let mut is_over = false;
    poll_fn(|context| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Reads for all calls. However it ends, another call can continue.
struct Reader<'a, C: Connector> {
    connection: &'a Multiplexed<C>,
    reading: Option<Reading<C>>,
}

impl<C: Connector> Reader<'_, C> {
    async fn read(mut self) {
        let Some(reading) = &mut self.reading else { return };
        let read = reading.source.read();
        let read = match self.connection.on_message {
            None => self.connection.in_time(read).await,
            Some(_) => Some(read.await),
        };
        let bytes = match read {
            Some(Some(bytes)) => bytes,
            Some(None) => return self.connection.fail("it closed the connection"),
            None => return,
        };
        reading.parser.feed(&bytes);
        loop {
            match reading.parser.next() {
                Ok(Some(reply)) => self.connection.deliver(reply),
                Ok(None) => return,
                Err(garbled) => return self.connection.fail(&garbled.to_string()),
            }
        }
    }
}

impl<C: Connector> Drop for Reader<'_, C> {
    fn drop(&mut self) {
        *self.connection.reading.borrow_mut() = self.reading.take();
    }
}
