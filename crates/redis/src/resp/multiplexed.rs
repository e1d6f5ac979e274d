//! One connection that many share: questions go out whole and in order, and answers come back in that order.
//!
//! Nobody reads or writes in the background. Of all who wait, one writes until everything is sent, and one reads and hands
//! to each what is theirs; when it has its own answer and leaves, or is given up, another goes on where it stopped.
//! Whatever goes wrong breaks the line off for everybody: it is then not known what took effect, and whoever comes next
//! needs a new one.
//!
//! Two things are shared because they cost a host more than what they are for. Questions that come together are sent
//! together, so that the server reads and answers them together. And whoever writes or reads is patient for all others
//! too, who need no clock of their own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::transport::{ConnectionError, OwnedPiece, ReplyLine};
use futures::future::{Either, select};

use super::byte_stream::{Connector, Sink, Source};
use super::protocol::{Parser, Question};

/// Where a message on a channel goes: its channel and its payload.
pub(super) type OnMessage = Rc<dyn Fn(&[u8], &[u8])>;

/// How long the other side may keep silent while somebody waits for it: as long as with the native host.
pub(super) const ANSWER_MS: u64 = 1500;

/// One connection.
pub(super) struct Multiplexed<D: Connector> {
    dial: Rc<D>,
    /// What is to be sent.
    unsent: RefCell<Vec<u8>>,
    /// None while somebody writes.
    sink: RefCell<Option<D::Sink>>,
    /// None while somebody reads.
    reading: RefCell<Option<Reading<D>>>,
    /// Who waits for answers, in the order of their questions.
    asked: RefCell<VecDeque<Rc<Slot>>>,
    /// What wakes those who sleep, by seat: to drop it is to ring.
    sleepers: RefCell<BTreeMap<u64, D::Ringer>>,
    seats: Cell<u64>,
    broken: RefCell<Option<String>>,
    hear: Option<OnMessage>,
}

struct Reading<D: Connector> {
    source: D::Source,
    parser: Parser,
}

/// A question that was sent. It stays in the queue also if nobody waits any more: its answers come all the same.
struct Slot {
    seat: u64,
    answers: usize,
    replies: RefCell<Vec<ReplyLine>>,
}

impl Slot {
    fn is_answered(&self) -> bool {
        self.replies.borrow().len() >= self.answers
    }
}

impl<D: Connector> Multiplexed<D> {
    /// A line of this connection. On one where messages are heard, to hear nothing is no reason to break it off.
    pub(super) fn new(dial: Rc<D>, (source, sink): (D::Source, D::Sink), hear: Option<OnMessage>) -> Self {
        Self {
            dial,
            unsent: RefCell::default(),
            sink: RefCell::new(Some(sink)),
            reading: RefCell::new(Some(Reading { source, parser: Parser::default() })),
            asked: RefCell::default(),
            sleepers: RefCell::default(),
            seats: Cell::new(0),
            broken: RefCell::default(),
            hear,
        }
    }

    /// Asks, and waits for all answers.
    pub(super) async fn ask(&self, question: Question) -> Result<Vec<ReplyLine>, ConnectionError> {
        self.check()?;
        let Question { bytes, answers } = question;
        let slot = Rc::new(Slot { seat: self.seat(), answers, replies: RefCell::default() });
        if answers > 0 {
            self.asked.borrow_mut().push_back(Rc::clone(&slot));
            self.unsent.borrow_mut().extend(bytes);
        }
        self.until(slot.seat, || slot.is_answered()).await?;
        Ok(slot.replies.take())
    }

    /// A place to wait at, of one's own.
    pub(super) fn seat(&self) -> u64 {
        self.seats.replace(self.seats.get() + 1)
    }

    /// Waits until something is so that only what arrives here can bring about, writing and reading for everybody if nobody
    /// else does.
    pub(super) async fn until(&self, seat: u64, is_so: impl Fn() -> bool) -> Result<(), ConnectionError> {
        let _leaving = Leaving { line: self, seat };
        loop {
            if is_so() {
                return Ok(());
            }
            self.check()?;
            match self.task() {
                Some(Task::Write(sink)) => Writer { line: self, sink: Some(sink), is_writing: false }.write().await,
                Some(Task::Read(reading)) => Reader { line: self, reading: Some(reading) }.read().await,
                None => {
                    let (ringer, bell) = self.dial.bell();
                    self.sleepers.borrow_mut().insert(seat, ringer);
                    bell.await;
                }
            }
        }
    }

    /// What there is to do that nobody does. Nobody begins to read before everything is sent: so whoever reads has asked, and
    /// whoever has not can be woken to write.
    fn task(&self) -> Option<Task<D>> {
        match self.unsent.borrow().is_empty() {
            false => self.sink.take().map(Task::Write),
            true => self.reading.take().map(Task::Read),
        }
    }

    /// What came of it. None: that took too long, and the line is broken off.
    async fn in_time<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        match select(pin!(what), pin!(self.dial.sleep(ANSWER_MS))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => {
                self.break_off("it does not answer in time");
                None
            }
        }
    }

    /// Whether it can no longer be used.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.borrow().is_some()
    }

    /// Ends it for everybody. Only the first reason counts.
    pub(super) fn break_off(&self, why: &str) {
        self.broken.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.sleepers.borrow_mut().clear();
    }

    fn check(&self) -> Result<(), ConnectionError> {
        self.broken.borrow().clone().map_or(Ok(()), |why| Err(ConnectionError(why)))
    }

    /// If there is something to do that nobody does, somebody should.
    fn pass_on(&self) {
        let is_free = match self.unsent.borrow().is_empty() {
            false => self.sink.borrow().is_some(),
            true => self.reading.borrow().is_some(),
        };
        if is_free {
            self.sleepers.borrow_mut().pop_first();
        }
    }

    /// Hands a reply to whom it belongs.
    fn hand_over(&self, reply: ReplyLine) {
        if let (Some(hear), Some((channel, payload))) = (&self.hear, message(&reply)) {
            return hear(channel, payload);
        }
        let mut asked = self.asked.borrow_mut();
        let Some(slot) = asked.front() else {
            drop(asked);
            return self.break_off("it answered what nobody asked");
        };
        slot.replies.borrow_mut().push(reply);
        if slot.is_answered() {
            let seat = slot.seat;
            asked.pop_front();
            drop(asked);
            self.sleepers.borrow_mut().remove(&seat);
        }
    }
}

/// The channel and the payload of a message; none: it is an answer.
fn message(reply: &ReplyLine) -> Option<(&[u8], &[u8])> {
    let ReplyLine::Pieces(pieces) = reply else { return None };
    match pieces.as_slice() {
        [OwnedPiece::Bytes(sort), OwnedPiece::Bytes(channel), OwnedPiece::Bytes(payload)] if sort == b"message" => {
            Some((channel, payload))
        }
        _ => None,
    }
}

/// Whoever leaves a seat sees to it that somebody goes on: it may have been woken to do so itself.
struct Leaving<'a, D: Connector> {
    line: &'a Multiplexed<D>,
    seat: u64,
}

impl<D: Connector> Drop for Leaving<'_, D> {
    fn drop(&mut self) {
        self.line.sleepers.borrow_mut().remove(&self.seat);
        self.line.pass_on();
    }
}

/// What one does for all who wait.
enum Task<D: Connector> {
    Write(D::Sink),
    Read(Reading<D>),
}

/// Whoever writes, until nothing is left to be sent. However it ends, another can go on, unless it is given up in the middle:
/// half a command would make nonsense of all that follow.
struct Writer<'a, D: Connector> {
    line: &'a Multiplexed<D>,
    sink: Option<D::Sink>,
    is_writing: bool,
}

impl<D: Connector> Writer<'_, D> {
    async fn write(mut self) {
        let Some(sink) = &mut self.sink else { return };
        // Others may be about to ask.
        a_moment().await;
        while !self.line.unsent.borrow().is_empty() && !self.line.is_broken() {
            let unsent = self.line.unsent.take();
            self.is_writing = true;
            if self.line.in_time(sink.write(unsent)).await == Some(false) {
                self.line.break_off("the connection broke");
            }
            self.is_writing = false;
        }
    }
}

impl<D: Connector> Drop for Writer<'_, D> {
    fn drop(&mut self) {
        *self.line.sink.borrow_mut() = self.sink.take();
        if self.is_writing {
            self.line.break_off("a call was given up while it was sent");
        }
    }
}

/// Lets everybody go on who can.
async fn a_moment() {
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

/// Whoever reads. However it ends, another can go on.
struct Reader<'a, D: Connector> {
    line: &'a Multiplexed<D>,
    reading: Option<Reading<D>>,
}

impl<D: Connector> Reader<'_, D> {
    async fn read(mut self) {
        let Some(reading) = &mut self.reading else { return };
        let read = reading.source.read();
        let read = match self.line.hear {
            None => self.line.in_time(read).await,
            Some(_) => Some(read.await),
        };
        let bytes = match read {
            Some(Some(bytes)) => bytes,
            Some(None) => return self.line.break_off("it closed the connection"),
            None => return,
        };
        reading.parser.feed(&bytes);
        loop {
            match reading.parser.next() {
                Ok(Some(reply)) => self.line.hand_over(reply),
                Ok(None) => return,
                Err(garbled) => return self.line.break_off(&garbled.to_string()),
            }
        }
    }
}

impl<D: Connector> Drop for Reader<'_, D> {
    fn drop(&mut self) {
        *self.line.reading.borrow_mut() = self.reading.take();
    }
}
