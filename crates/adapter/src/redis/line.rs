//! One connection that many share: questions go out whole and in order, and answers come back in that order.
//!
//! Nobody reads in the background. Of all who wait, one reads and hands to each what is theirs; when it has its own answer
//! and leaves, or is given up, another goes on where it stopped. Whatever goes wrong breaks the line off for everybody: it
//! is then not known what took effect, and whoever comes next needs a new one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use futures::lock::Mutex;
use rollcall_platform::{Away, OwnedPiece, Reply};

use super::pipe::{Dial, Sink, Source};
use super::resp::{Parser, Question};

/// Where a message on a channel goes: its channel and its payload.
pub(super) type Hear = Rc<dyn Fn(&[u8], &[u8])>;

/// One connection.
pub(super) struct Line<D: Dial> {
    sink: Mutex<D::Sink>,
    /// None while somebody reads.
    reading: RefCell<Option<Reading<D>>>,
    /// Who waits for answers, in the order of their questions.
    asked: RefCell<VecDeque<Rc<Slot>>>,
    /// Who sleeps, by seat.
    sleepers: RefCell<BTreeMap<u64, Waker>>,
    seats: Cell<u64>,
    broken: RefCell<Option<String>>,
    hear: Option<Hear>,
}

struct Reading<D: Dial> {
    source: D::Source,
    parser: Parser,
}

/// A question that was sent. It stays in the queue also if nobody waits any more: its answers come all the same.
struct Slot {
    seat: u64,
    answers: usize,
    replies: RefCell<Vec<Reply>>,
}

impl Slot {
    fn is_answered(&self) -> bool {
        self.replies.borrow().len() >= self.answers
    }
}

impl<D: Dial> Line<D> {
    pub(super) fn new((source, sink): (D::Source, D::Sink), hear: Option<Hear>) -> Self {
        Self {
            sink: Mutex::new(sink),
            reading: RefCell::new(Some(Reading { source, parser: Parser::default() })),
            asked: RefCell::default(),
            sleepers: RefCell::default(),
            seats: Cell::new(0),
            broken: RefCell::default(),
            hear,
        }
    }

    /// Asks, and waits for all answers. What is asked is decided when it is its turn: until then others may say what
    /// matters for it.
    pub(super) async fn ask(&self, question: impl FnOnce() -> Question) -> Result<Vec<Reply>, Away> {
        let slot = {
            let mut sink = self.sink.lock().await;
            self.check()?;
            let Question { bytes, answers } = question();
            if answers == 0 {
                return Ok(Vec::new());
            }
            let slot = Rc::new(Slot { seat: self.seat(), answers, replies: RefCell::default() });
            self.asked.borrow_mut().push_back(Rc::clone(&slot));
            // Half a command would make nonsense of all that follow.
            let mut fuse = Fuse { line: self, is_lit: true };
            if !sink.write(bytes).await {
                self.break_off("the connection broke");
            }
            fuse.is_lit = false;
            slot
        };
        self.until(slot.seat, || slot.is_answered()).await?;
        Ok(slot.replies.take())
    }

    /// A place to wait at, of one's own.
    pub(super) fn seat(&self) -> u64 {
        self.seats.replace(self.seats.get() + 1)
    }

    /// Waits until something is so that only what arrives here can bring about, reading for everybody if nobody else does.
    pub(super) async fn until(&self, seat: u64, is_so: impl Fn() -> bool) -> Result<(), Away> {
        let _leaving = Leaving { line: self, seat };
        loop {
            let turn = poll_fn(|context| {
                if is_so() || self.is_broken() {
                    return Poll::Ready(None);
                }
                match self.reading.take() {
                    Some(reading) => Poll::Ready(Some(reading)),
                    None => {
                        self.sleepers.borrow_mut().insert(seat, context.waker().clone());
                        Poll::Pending
                    }
                }
            });
            match turn.await {
                Some(reading) => Turn { line: self, reading: Some(reading) }.read().await,
                None if is_so() => return Ok(()),
                None => return self.check(),
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
        let sleepers = self.sleepers.take();
        sleepers.into_values().for_each(Waker::wake);
    }

    fn check(&self) -> Result<(), Away> {
        self.broken.borrow().clone().map_or(Ok(()), |why| Err(Away(why)))
    }

    fn wake(&self, seat: u64) {
        let sleeper = self.sleepers.borrow_mut().remove(&seat);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    /// If nobody reads, somebody should.
    fn pass_on(&self) {
        if self.reading.borrow().is_some() {
            let sleeper = self.sleepers.borrow_mut().pop_first();
            if let Some((_, sleeper)) = sleeper {
                sleeper.wake();
            }
        }
    }

    /// Hands a reply to whom it belongs.
    fn hand_over(&self, reply: Reply) {
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
            self.wake(seat);
        }
    }
}

/// The channel and the payload of a message; none: it is an answer.
fn message(reply: &Reply) -> Option<(&[u8], &[u8])> {
    let Reply::Pieces(pieces) = reply else { return None };
    match pieces.as_slice() {
        [OwnedPiece::Bytes(sort), OwnedPiece::Bytes(channel), OwnedPiece::Bytes(payload)] if sort == b"message" => {
            Some((channel, payload))
        }
        _ => None,
    }
}

/// Breaks the line off if a question was not sent to its end.
struct Fuse<'a, D: Dial> {
    line: &'a Line<D>,
    is_lit: bool,
}

impl<D: Dial> Drop for Fuse<'_, D> {
    fn drop(&mut self) {
        if self.is_lit {
            self.line.break_off("a call was given up while it was sent");
        }
    }
}

/// Whoever leaves a seat sees to it that somebody reads: it may have been woken to do so itself.
struct Leaving<'a, D: Dial> {
    line: &'a Line<D>,
    seat: u64,
}

impl<D: Dial> Drop for Leaving<'_, D> {
    fn drop(&mut self) {
        self.line.sleepers.borrow_mut().remove(&self.seat);
        self.line.pass_on();
    }
}

/// The turn to read. However it ends, another can take it.
struct Turn<'a, D: Dial> {
    line: &'a Line<D>,
    reading: Option<Reading<D>>,
}

impl<D: Dial> Turn<'_, D> {
    async fn read(mut self) {
        let Some(reading) = &mut self.reading else { return };
        let Some(bytes) = reading.source.read().await else {
            return self.line.break_off("it closed the connection");
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

impl<D: Dial> Drop for Turn<'_, D> {
    fn drop(&mut self) {
        *self.line.reading.borrow_mut() = self.reading.take();
    }
}
