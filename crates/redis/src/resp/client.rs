//! A client of one server: connects when needed, reconnects after a loss, and limits how long a call waits.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use crate::keyspace::Commands;
use crate::transport::{ConnectionError, ReplyLine};
use futures::future::{Either, select};

use super::address::Address;
use super::byte_stream::Connector;
use super::multiplexed::{ANSWER_MS, Multiplexed, OnMessage};
use super::protocol::Request;

/// How long connecting may take, including the first commands: as in the native store.
const CONNECT_MS: u64 = 1000;

/// A client of one server, for any number of concurrent calls.
pub struct Client<D: Connector> {
    dial: Rc<D>,
    greeting: Commands,
    on_message: Option<OnMessage>,
    connection: RefCell<Option<Rc<Multiplexed<D>>>>,
    /// The calls that wait for another call to connect; `None`: no call is connecting.
    dialing: RefCell<Option<Vec<D::Ringer>>>,
    dialed: Cell<u64>,
    /// Why the last attempt failed; `None`: it succeeded.
    failure: RefCell<Option<ConnectionError>>,
}

impl<D: Connector> Client<D> {
    /// A client of this server. It connects with the first call.
    pub fn new(dial: D, address: &Address) -> Self {
        Self::with_messages(dial, address, None)
    }

    /// A client that also receives messages.
    pub(super) fn with_messages(dial: D, address: &Address, on_message: Option<OnMessage>) -> Self {
        Self {
            dial: Rc::new(dial),
            greeting: address.greeting(),
            on_message,
            connection: RefCell::default(),
            dialing: RefCell::default(),
            dialed: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// The connector.
    pub fn dial(&self) -> &D {
        &self.dial
    }

    /// Sends commands together and waits for one reply to each.
    pub async fn send(&self, commands: &Commands) -> Result<Vec<ReplyLine>, ConnectionError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.connection().await?.ask(Request::of(commands)).await
    }

    /// The connection in use, or a new one.
    pub(super) async fn connection(&self) -> Result<Rc<Multiplexed<D>>, ConnectionError> {
        loop {
            if let Some(connection) = self.current() {
                return Ok(connection);
            }
            let Some(_dialing) = Dialing::begin(self) else {
                self.await_other_dial().await?;
                continue;
            };
            let connected = self.within(CONNECT_MS, self.connect()).await;
            self.dialed.set(self.dialed.get() + 1);
            let connected =
                connected.unwrap_or_else(|| Err("it does not answer in time".to_owned())).map_err(ConnectionError);
            self.failure.replace(connected.as_ref().err().cloned());
            let connection = Rc::new(connected?);
            self.connection.replace(Some(Rc::clone(&connection)));
            return Ok(connection);
        }
    }

    /// Waits for another call to connect. If that fails, this call fails too: it has waited long enough.
    async fn await_other_dial(&self) -> Result<(), ConnectionError> {
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

    /// Sends a request on a connection whose reader may be waiting for messages without a timeout. If the reply does
    /// not come in time, the connection fails.
    pub(super) async fn ask(
        &self,
        connection: &Multiplexed<D>,
        request: Request,
    ) -> Result<Vec<ReplyLine>, ConnectionError> {
        self.within(ANSWER_MS, connection.ask(request)).await.unwrap_or_else(|| {
            connection.fail("it does not answer in time");
            Err(ConnectionError("it does not answer in time".to_owned()))
        })
    }

    /// Drops the connection in use; it closes when no call uses it.
    pub(super) fn close(&self) {
        self.connection.take();
    }

    /// The result within this many milliseconds; `None`: timed out.
    pub(super) async fn within<T>(&self, ms: u64, what: impl Future<Output = T>) -> Option<T> {
        match select(pin!(what), pin!(self.dial.sleep(ms))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => None,
        }
    }

    fn current(&self) -> Option<Rc<Multiplexed<D>>> {
        self.connection.borrow().as_ref().filter(|connection| !connection.is_broken()).map(Rc::clone)
    }

    async fn connect(&self) -> Result<Multiplexed<D>, String> {
        let connection = Multiplexed::new(Rc::clone(&self.dial), self.dial.dial().await?, self.on_message.clone());
        let replies = connection.ask(Request::of(&self.greeting)).await.map_err(|away| away.0)?;
        let refusal = replies.into_iter().find_map(|reply| match reply {
            ReplyLine::Error(error) => Some(format!("it refuses us: {error}")),
            ReplyLine::Pieces(_) => None,
        });
        refusal.map_or(Ok(connection), Err)
    }
}

/// The call that connects. However it ends, the waiting calls continue.
struct Dialing<'a, D: Connector>(&'a Client<D>);

impl<'a, D: Connector> Dialing<'a, D> {
    /// `None`: another call is connecting.
    fn begin(client: &'a Client<D>) -> Option<Self> {
        let mut dialing = client.dialing.borrow_mut();
        if dialing.is_some() {
            return None;
        }
        *dialing = Some(Vec::new());
        Some(Self(client))
    }
}

impl<D: Connector> Drop for Dialing<'_, D> {
    fn drop(&mut self) {
        drop(self.0.dialing.take());
    }
}
