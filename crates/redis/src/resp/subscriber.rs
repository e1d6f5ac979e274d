//! The subscriber: one connection that receives published records for all watchers.
//!
//! A watch registers its mailbox, then subscribes, and begins when the server has confirmed; so no change falls in
//! between. A watch subscribes even if another has already subscribed to the same channel: the other's may not be
//! confirmed yet, and its own confirmation comes later. Channels without watchers are unsubscribed together with the
//! next ping; without any watcher the connection is closed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::keyspace::{Commands, Keyspace, decode_payload};
use crate::transport::{CommandReply, ConnectionError};
use futures::future::LocalBoxFuture;
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::PresenceChange;

use super::address::Address;
use super::byte_stream::Connector;
use super::client::Client;
use super::mailbox::Mailbox;
use super::multiplexed::Multiplexed;
use super::protocol::Request;
use crate::transport::RETRY_MS;

/// How often the server is pinged. Together with the reply timeout, a silent server is noticed within five seconds.
const PING_MS: u64 = 3000;

/// How often [`Subscription::next`] returns without a change, so that the caller can check whether its client still
/// reads.
const CHECK_MS: u64 = 5000;

/// The channel of a user.
type Channel = Vec<u8>;

/// Subscribes at one server.
pub struct Subscriber<C: Connector> {
    client: Client<C>,
    watched: Rc<MailboxesByChannel>,
    /// The channels subscribed on the connection in use.
    subscribed: RefCell<BTreeSet<Channel>>,
    pinged_at_ms: Cell<u64>,
    /// The last logged reason why nothing is received.
    logged: RefCell<Option<ConnectionError>>,
}

/// The mailboxes by channel.
#[derive(Default)]
struct MailboxesByChannel(RefCell<BTreeMap<Channel, Vec<Rc<Mailbox>>>>);

impl MailboxesByChannel {
    /// Puts a message into every mailbox of its channel. An invalid payload is ignored.
    fn deliver(&self, channel: &[u8], payload: &[u8]) {
        let Ok((user, published)) = decode_payload(payload) else { return };
        for mailbox in self.0.borrow().get(channel).into_iter().flatten() {
            mailbox.put(PresenceChange { user: user.clone(), published: published.clone() });
        }
    }
}

impl<C: Connector> Subscriber<C> {
    /// A subscriber of this server. It connects with the first watch.
    pub fn new(connector: C, address: &Address) -> Self {
        let watched = Rc::new(MailboxesByChannel::default());
        let deliver = {
            let watched = Rc::clone(&watched);
            Rc::new(move |channel: &[u8], payload: &[u8]| watched.deliver(channel, payload))
        };
        let client = Client::with_messages(connector, address, Some(deliver));
        Self { client, watched, subscribed: RefCell::default(), pinged_at_ms: Cell::new(0), logged: RefCell::default() }
    }

    /// Watches these users: receives everything published about them once this has returned.
    pub async fn watch(self: &Rc<Self>, keys: &Keyspace, users: &[UserId]) -> Result<Subscription<C>, Error> {
        let channels = users.iter().map(|user| keys.topic(user.as_str()).to_string().into_bytes()).collect();
        // Before the first await: while there is an interest, the connection is not closed.
        let interest = Interest::new(Rc::clone(self), channels);
        let connection = self.client.connection().await.map_err(|error| self.unavailable(error))?;
        let replies = self.client.ask(&connection, Request::of(&self.subscriptions(&interest.channels))).await;
        for reply in replies.map_err(|error| self.unavailable(error))? {
            if let CommandReply::Error(error) = reply {
                return Err(Error::Other(format!("Redis refused SUBSCRIBE: {error}")));
            }
        }
        if self.logged.take().is_some() {
            self.client.connector().log("Redis subscription restored");
        }
        let listening = Box::pin(listen(Rc::clone(self), connection));
        Ok(Subscription { listening: Some(listening), interest })
    }

    /// One command per channel: then each has one reply.
    fn subscriptions(&self, channels: &[Channel]) -> Commands {
        let mut commands = Commands::with_capacity(channels.len());
        let mut subscribed = self.subscribed.borrow_mut();
        for channel in channels {
            commands.begin("SUBSCRIBE").arg(channel);
            subscribed.insert(channel.clone());
        }
        commands
    }

    /// Pings the server and unsubscribes channels without watchers.
    fn ping_commands(&self) -> Commands {
        let mut commands = Commands::default();
        let watched = self.watched.0.borrow();
        self.subscribed.borrow_mut().retain(|channel| {
            let is_watched = watched.contains_key(channel);
            if !is_watched {
                commands.begin("UNSUBSCRIBE").arg(channel);
            }
            is_watched
        });
        commands.begin("PING");
        commands
    }

    /// Logs why nothing is received, once per reason. The error says when to retry.
    fn unavailable(&self, error: ConnectionError) -> Error {
        let mut logged = self.logged.borrow_mut();
        if logged.as_ref() != Some(&error) {
            self.client.connector().log(&format!("Redis subscription lost; retrying: {}", error.0));
            *logged = Some(error);
        }
        Error::Unavailable(RETRY_MS)
    }

    /// Whether a ping is due; the caller that gets true sends it for all.
    fn is_time_to_ping(&self) -> bool {
        let now = self.client.connector().now_ms();
        let is_time = now.saturating_sub(self.pinged_at_ms.get()) >= PING_MS;
        if is_time {
            self.pinged_at_ms.set(now);
        }
        is_time
    }
}

/// Receives until the connection fails.
async fn listen<C: Connector>(subscriber: Rc<Subscriber<C>>, connection: Rc<Multiplexed<C>>) -> Error {
    let waiter = connection.waiter();
    loop {
        // What arrives goes into mailboxes, whichever watch reads it.
        if let Some(Err(error)) = subscriber.client.within(PING_MS, connection.until(waiter, || false)).await {
            return subscriber.unavailable(error);
        }
        if !subscriber.is_time_to_ping() {
            continue;
        }
        match subscriber.client.ask(&connection, Request::of(&subscriber.ping_commands())).await {
            Err(error) => return subscriber.unavailable(error),
            Ok(replies) => {
                let refusal = replies.into_iter().find_map(|reply| match reply {
                    CommandReply::Error(error) => Some(error),
                    CommandReply::Pieces(_) => None,
                });
                if let Some(error) = refusal {
                    connection.fail(&error);
                }
            }
        }
    }
}

/// A watch of some users.
pub struct Subscription<C: Connector> {
    /// Kept across calls, because it may have sent a request; `None` if it ended.
    listening: Option<LocalBoxFuture<'static, Error>>,
    /// Declared last, so that it is dropped after `listening`.
    interest: Interest<C>,
}

impl<C: Connector> Subscription<C> {
    /// Continues to receive; ready once changes may have been lost.
    fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        if let Some(listening) = &mut self.listening {
            ready!(listening.as_mut().poll(context));
            self.listening = None;
        }
        Poll::Ready(Error::Unavailable(RETRY_MS))
    }
}

impl<C: Connector> Subscription<C> {
    /// How often [`Subscription::next`] returns nothing within two minutes of silence.
    pub const MAX_QUIET_POLLS: u32 = (120_000 / CHECK_MS) as u32;

    /// Waits for a change, the newest of each user; `None` if nothing arrived for five seconds. Fails if changes may
    /// have been lost. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<PresenceChange>, Error> {
        let (subscriber, mailbox) = (Rc::clone(&self.interest.subscriber), Rc::clone(&self.interest.mailbox));
        let _leaving = Waiting(&mailbox);
        let change = poll_fn(|context| {
            // Receive first, then look into the mailbox.
            let lost = self.poll_lost(context);
            match (mailbox.poll_take(context), lost) {
                (Poll::Ready(change), _) => Poll::Ready(Ok(Some(change))),
                (Poll::Pending, Poll::Ready(error)) => Poll::Ready(Err(error)),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        });
        subscriber.client.within(CHECK_MS, change).await.unwrap_or(Ok(None))
    }

    /// Receives without taking changes, and returns only if some may have been lost. Cancel safe.
    pub async fn lost(&mut self) -> Error {
        poll_fn(|context| self.poll_lost(context)).await
    }
}

/// Unregisters the reader of a mailbox when dropped, so that it is not woken.
struct Waiting<'a>(&'a Mailbox);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.forget_reader();
    }
}

/// The channels of a watch, until it is dropped.
struct Interest<C: Connector> {
    subscriber: Rc<Subscriber<C>>,
    channels: Vec<Channel>,
    mailbox: Rc<Mailbox>,
}

impl<C: Connector> Interest<C> {
    fn new(subscriber: Rc<Subscriber<C>>, channels: Vec<Channel>) -> Self {
        let mailbox = Rc::new(Mailbox::default());
        let mut watched = subscriber.watched.0.borrow_mut();
        for channel in &channels {
            watched.entry(channel.clone()).or_default().push(Rc::clone(&mailbox));
        }
        drop(watched);
        Self { subscriber, channels, mailbox }
    }
}

impl<C: Connector> Drop for Interest<C> {
    fn drop(&mut self) {
        let mut watched = self.subscriber.watched.0.borrow_mut();
        for channel in &self.channels {
            if let Some(mailboxes) = watched.get_mut(channel) {
                mailboxes.retain(|mailbox| !Rc::ptr_eq(mailbox, &self.mailbox));
                if mailboxes.is_empty() {
                    watched.remove(channel);
                }
            }
        }
        if watched.is_empty() {
            self.subscriber.subscribed.borrow_mut().clear();
            self.subscriber.client.close();
        }
    }
}
