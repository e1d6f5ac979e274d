//! The way to a server: a line that is made when it is needed and made anew when it broke, and how long anybody waits.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use crate::keyspace::Commands;
use crate::transport::{ConnectionError, ReplyLine};
use futures::future::{Either, select};

use super::address::Address;
use super::byte_stream::Connector;
use super::multiplexed::{ANSWER_MS, Multiplexed, OnMessage};
use super::protocol::Question;

/// How long a connection may take, greeting included: as long as with the native host.
const CONNECT_MS: u64 = 1000;

/// The way to one server, for any number of calls at once.
pub struct Client<D: Connector> {
    dial: Rc<D>,
    greeting: Commands,
    hear: Option<OnMessage>,
    line: RefCell<Option<Rc<Multiplexed<D>>>>,
    /// Who waits for what comes of a connection that somebody makes; none: nobody does.
    dialing: RefCell<Option<Vec<D::Ringer>>>,
    dialed: Cell<u64>,
    /// Why the last try failed; none: it did not.
    failure: RefCell<Option<ConnectionError>>,
}

impl<D: Connector> Client<D> {
    /// A way to this server. Nothing is connected before something is asked.
    pub fn new(dial: D, address: &Address) -> Self {
        Self::hearing(dial, address, None)
    }

    /// One on which messages come, too.
    pub(super) fn hearing(dial: D, address: &Address, hear: Option<OnMessage>) -> Self {
        Self {
            dial: Rc::new(dial),
            greeting: address.greeting(),
            hear,
            line: RefCell::default(),
            dialing: RefCell::default(),
            dialed: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// What connects.
    pub fn dial(&self) -> &D {
        &self.dial
    }

    /// Sends commands in one go and waits for one answer to each.
    pub async fn send(&self, commands: &Commands) -> Result<Vec<ReplyLine>, ConnectionError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.line().await?.ask(Question::of(commands)).await
    }

    /// The line in use, or a new one.
    pub(super) async fn line(&self) -> Result<Rc<Multiplexed<D>>, ConnectionError> {
        loop {
            if let Some(line) = self.current() {
                return Ok(line);
            }
            let Some(_dialing) = Dialing::begin(self) else {
                self.others_dial().await?;
                continue;
            };
            let connected = self.within(CONNECT_MS, self.connect()).await;
            self.dialed.set(self.dialed.get() + 1);
            let connected =
                connected.unwrap_or_else(|| Err("it does not answer in time".to_owned())).map_err(ConnectionError);
            self.failure.replace(connected.as_ref().err().cloned());
            let line = Rc::new(connected?);
            self.line.replace(Some(Rc::clone(&line)));
            return Ok(line);
        }
    }

    /// Waits for what comes of a connection that somebody else makes. Whoever waited in vain has waited long enough.
    async fn others_dial(&self) -> Result<(), ConnectionError> {
        let before = self.dialed.get();
        let (ringer, bell) = self.dial.bell();
        if let Some(waiting) = self.dialing.borrow_mut().as_mut() {
            waiting.push(ringer);
        }
        bell.await;
        match self.failure.borrow().clone().filter(|_| self.dialed.get() != before) {
            Some(away) => Err(away),
            None => Ok(()),
        }
    }

    /// Asks on a line where somebody may read who waits for messages, and has no patience to offer; one that does not answer
    /// in time is broken off.
    pub(super) async fn ask(
        &self,
        line: &Multiplexed<D>,
        question: Question,
    ) -> Result<Vec<ReplyLine>, ConnectionError> {
        self.within(ANSWER_MS, line.ask(question)).await.unwrap_or_else(|| {
            line.break_off("it does not answer in time");
            Err(ConnectionError("it does not answer in time".to_owned()))
        })
    }

    /// Closes the line in use, once nobody uses it.
    pub(super) fn hang_up(&self) {
        self.line.take();
    }

    /// What came of it within so many milliseconds; none: nothing yet.
    pub(super) async fn within<T>(&self, ms: u64, what: impl Future<Output = T>) -> Option<T> {
        match select(pin!(what), pin!(self.dial.sleep(ms))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => None,
        }
    }

    fn current(&self) -> Option<Rc<Multiplexed<D>>> {
        self.line.borrow().as_ref().filter(|line| !line.is_broken()).map(Rc::clone)
    }

    async fn connect(&self) -> Result<Multiplexed<D>, String> {
        let line = Multiplexed::new(Rc::clone(&self.dial), self.dial.dial().await?, self.hear.clone());
        let replies = line.ask(Question::of(&self.greeting)).await.map_err(|away| away.0)?;
        let refusal = replies.into_iter().find_map(|reply| match reply {
            ReplyLine::Error(error) => Some(format!("it refuses us: {error}")),
            ReplyLine::Pieces(_) => None,
        });
        refusal.map_or(Ok(line), Err)
    }
}

/// Whoever connects. However it ends, those who wait go on.
struct Dialing<'a, D: Connector>(&'a Client<D>);

impl<'a, D: Connector> Dialing<'a, D> {
    /// None: somebody else does.
    fn begin(link: &'a Client<D>) -> Option<Self> {
        let mut dialing = link.dialing.borrow_mut();
        if dialing.is_some() {
            return None;
        }
        *dialing = Some(Vec::new());
        Some(Self(link))
    }
}

impl<D: Connector> Drop for Dialing<'_, D> {
    fn drop(&mut self) {
        drop(self.0.dialing.take());
    }
}
