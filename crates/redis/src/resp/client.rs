//! A client of one server: connects when needed, reconnects after a loss, and limits how long a call waits.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use crate::keyspace::Commands;
use crate::transport::{CommandReply, ConnectionError};
use futures::future::{Either, select};

use super::address::Address;
use super::byte_stream::Connector;
use super::multiplexed::{ANSWER_MS, Multiplexed, OnMessage};
use super::protocol::Request;

/// How long connecting may take, including the first commands: as in the native store.
const CONNECT_MS: u64 = 1000;

/// A client of one server, for any number of concurrent calls.
pub struct Client<C: Connector> {
    connector: Rc<C>,
    greeting: Commands,
    on_message: Option<OnMessage>,
    connection: RefCell<Option<Rc<Multiplexed<C>>>>,
    /// The calls that wait for another call to connect; `None` if no call is connecting.
    connecting: RefCell<Option<Vec<C::Signal>>>,
    attempts: Cell<u64>,
    /// Why the last attempt failed; `None` if it succeeded.
    failure: RefCell<Option<ConnectionError>>,
}

impl<C: Connector> Client<C> {
    /// A client of this server. It connects with the first call.
    pub fn new(connector: C, address: &Address) -> Self {
        Self::with_messages(connector, address, None)
    }

    /// A client that also receives messages.
    pub(super) fn with_messages(connector: C, address: &Address, on_message: Option<OnMessage>) -> Self {
        Self {
            connector: Rc::new(connector),
            greeting: address.greeting(),
            on_message,
            connection: RefCell::default(),
            connecting: RefCell::default(),
            attempts: Cell::new(0),
            failure: RefCell::default(),
        }
    }

    /// The connector.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// Sends commands together and waits for one reply to each.
    pub async fn send(&self, commands: &Commands) -> Result<Vec<CommandReply>, ConnectionError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.connection().await?.ask(Request::of(commands)).await
    }

    /// The connection in use, or a new one.
    pub(super) async fn connection(&self) -> Result<Rc<Multiplexed<C>>, ConnectionError> {
        loop {
            if let Some(connection) = self.current() {
                return Ok(connection);
            }
            let Some(_connecting) = Connecting::begin(self) else {
                self.await_other_attempt().await?;
                continue;
            };
            let connected = self.within(CONNECT_MS, self.connect()).await;
            self.attempts.set(self.attempts.get() + 1);
            let connected =
                connected.unwrap_or_else(|| Err("no reply within the timeout".to_owned())).map_err(ConnectionError);
            self.failure.replace(connected.as_ref().err().cloned());
            let connection = Rc::new(connected?);
            self.connection.replace(Some(Rc::clone(&connection)));
            return Ok(connection);
        }
    }

    /// Waits for another call to connect. If that fails, this call fails too: it has waited long enough.
    async fn await_other_attempt(&self) -> Result<(), ConnectionError> {
        let before = self.attempts.get();
        let (signal, signalled) = self.connector.signal();
        if let Some(waiting) = self.connecting.borrow_mut().as_mut() {
            waiting.push(signal);
        }
        signalled.await;
        match self.failure.borrow().clone().filter(|_| self.attempts.get() != before) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Sends a request on a connection whose reader may be waiting for messages without a timeout. If the reply does
    /// not come in time, the connection fails.
    pub(super) async fn ask(
        &self,
        connection: &Multiplexed<C>,
        request: Request,
    ) -> Result<Vec<CommandReply>, ConnectionError> {
        self.within(ANSWER_MS, connection.ask(request)).await.unwrap_or_else(|| {
            connection.fail("no reply within the timeout");
            Err(ConnectionError("no reply within the timeout".to_owned()))
        })
    }

    /// Drops the connection in use; it closes when no call uses it.
    pub(super) fn close(&self) {
        self.connection.take();
    }

    /// The result within this many milliseconds; `None` if it timed out.
    pub(super) async fn within<T>(&self, ms: u64, what: impl Future<Output = T>) -> Option<T> {
        match select(pin!(what), pin!(self.connector.sleep(ms))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(((), _)) => None,
        }
    }

    fn current(&self) -> Option<Rc<Multiplexed<C>>> {
        self.connection.borrow().as_ref().filter(|connection| !connection.is_broken()).map(Rc::clone)
    }

    async fn connect(&self) -> Result<Multiplexed<C>, String> {
        let connection =
            Multiplexed::new(Rc::clone(&self.connector), self.connector.connect().await?, self.on_message.clone());
        let replies = connection.ask(Request::of(&self.greeting)).await.map_err(|error| error.0)?;
        let refusal = replies.into_iter().find_map(|reply| match reply {
            CommandReply::Error(error) => Some(format!("authentication refused: {error}")),
            CommandReply::Pieces(_) => None,
        });
        refusal.map_or(Ok(connection), Err)
    }
}

/// The call that connects. However it ends, the waiting calls continue.
struct Connecting<'a, C: Connector>(&'a Client<C>);

impl<'a, C: Connector> Connecting<'a, C> {
    /// `None` if another call is connecting.
    fn begin(client: &'a Client<C>) -> Option<Self> {
        let mut connecting = client.connecting.borrow_mut();
        if connecting.is_some() {
            return None;
        }
        *connecting = Some(Vec::new());
        Some(Self(client))
    }
}

impl<C: Connector> Drop for Connecting<'_, C> {
    fn drop(&mut self) {
        drop(self.0.connecting.take());
    }
}
