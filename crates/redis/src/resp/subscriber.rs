//! What is published, as it is published: one connection that is listened to, for everybody who watches.
//!
//! Whoever begins to watch first says whom, then subscribes, and has begun when the server confirmed it; so nothing falls
//! in between. To subscribe to what somebody else hears already changes nothing, and is not spared: its answer says that
//! the other's has come. What nobody watches any more is given up with the next question whether the server is still
//! there; when nobody watches at all, the connection is closed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::keyspace::{Commands, Keyspace, decode_payload};
use crate::transport::{ConnectionError, ReplyLine};
use futures::future::LocalBoxFuture;
use rollcall_core::{Error, UserId};
use rollcall_functions::capabilities::Change;

use super::address::Address;
use super::byte_stream::Connector;
use super::client::Client;
use super::mailbox::Mailbox;
use super::multiplexed::Multiplexed;
use super::protocol::Question;
use crate::transport::RETRY_MS;

/// How often the server is asked whether it is there; with the time that its answer may take, a silent one is found out
/// within five seconds.
const PING_MS: u64 = 3000;

/// How often it is looked whether anybody still reads.
const CHECK_MS: u64 = 5000;

/// The channel of a person.
type Channel = Vec<u8>;

/// Listens to one server.
pub struct Subscriber<D: Connector> {
    link: Client<D>,
    watched: Rc<Watched>,
    /// What was subscribed to on the line in use.
    subscribed: RefCell<BTreeSet<Channel>>,
    pinged_at_ms: Cell<u64>,
    /// Why nothing is heard, as it was last said.
    trouble: RefCell<Option<ConnectionError>>,
}

/// Who wants to hear what.
#[derive(Default)]
struct Watched(RefCell<BTreeMap<Channel, Vec<Rc<Mailbox>>>>);

impl Watched {
    /// Puts a message into everybody's mailbox. One that is not ours is about nobody.
    fn hear(&self, channel: &[u8], payload: &[u8]) {
        let Ok((user, published)) = decode_payload(payload) else { return };
        for mailbox in self.0.borrow().get(channel).into_iter().flatten() {
            mailbox.put(Change { user: user.clone(), published: published.clone() });
        }
    }
}

impl<D: Connector> Subscriber<D> {
    /// Listens to this server, once somebody watches.
    pub fn new(dial: D, address: &Address) -> Self {
        let watched = Rc::new(Watched::default());
        let hear = {
            let watched = Rc::clone(&watched);
            Rc::new(move |channel: &[u8], payload: &[u8]| watched.hear(channel, payload))
        };
        let link = Client::hearing(dial, address, Some(hear));
        Self { link, watched, subscribed: RefCell::default(), pinged_at_ms: Cell::new(0), trouble: RefCell::default() }
    }

    /// Watches these people: everything that is published about them once this has returned.
    pub async fn watch(self: &Rc<Self>, keys: &Keyspace, users: &[UserId]) -> Result<Subscription<D>, Error> {
        let channels = users.iter().map(|user| keys.topic(user.as_str()).to_string().into_bytes()).collect();
        // Before anything is waited for: as long as somebody wants to hear something, the line is not closed.
        let interest = Interest::new(Rc::clone(self), channels);
        let line = self.link.line().await.map_err(|away| self.complain(away))?;
        let replies = self.link.ask(&line, Question::of(&self.subscriptions(&interest.channels))).await;
        for reply in replies.map_err(|away| self.complain(away))? {
            if let ReplyLine::Error(error) = reply {
                return Err(Error::Other(format!("Redis does not let us listen: {error}")));
            }
        }
        if self.trouble.take().is_some() {
            self.link.dial().log("Redis is heard again");
        }
        let listening = Box::pin(listen(Rc::clone(self), line));
        Ok(Subscription { listening: Some(listening), interest })
    }

    /// One command for each channel: then it has one answer.
    fn subscriptions(&self, channels: &[Channel]) -> Commands {
        let mut commands = Commands::with_capacity(channels.len());
        let mut subscribed = self.subscribed.borrow_mut();
        for channel in channels {
            commands.begin("SUBSCRIBE").arg(channel);
            subscribed.insert(channel.clone());
        }
        commands
    }

    /// Asks whether the server is there, and gives up what nobody watches any more.
    fn upkeep(&self) -> Commands {
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

    /// Says why nothing is heard, once for each reason; whoever watches may come back.
    fn complain(&self, away: ConnectionError) -> Error {
        let mut trouble = self.trouble.borrow_mut();
        if trouble.as_ref() != Some(&away) {
            self.link.dial().log(&format!("nothing is heard from Redis: {}", away.0));
            *trouble = Some(away);
        }
        Error::Unavailable(RETRY_MS)
    }

    /// Whether it is time to ask again; whoever is told so does it for all.
    fn is_time_to_ping(&self) -> bool {
        let now = self.link.dial().now_ms();
        let is_time = now.saturating_sub(self.pinged_at_ms.get()) >= PING_MS;
        if is_time {
            self.pinged_at_ms.set(now);
        }
        is_time
    }
}

/// Listens until the line breaks.
async fn listen<D: Connector>(subscriber: Rc<Subscriber<D>>, line: Rc<Multiplexed<D>>) -> Error {
    let seat = line.seat();
    loop {
        // What arrives goes into mailboxes, not to whoever reads it.
        if let Some(Err(away)) = subscriber.link.within(PING_MS, line.until(seat, || false)).await {
            return subscriber.complain(away);
        }
        if !subscriber.is_time_to_ping() {
            continue;
        }
        match subscriber.link.ask(&line, Question::of(&subscriber.upkeep())).await {
            Err(away) => return subscriber.complain(away),
            Ok(replies) => {
                let refusal = replies.into_iter().find_map(|reply| match reply {
                    ReplyLine::Error(error) => Some(error),
                    ReplyLine::Pieces(_) => None,
                });
                if let Some(error) = refusal {
                    line.break_off(&error);
                }
            }
        }
    }
}

/// People being listened to.
pub struct Subscription<D: Connector> {
    /// Kept across calls, for it may be in the middle of a question; none: it ended.
    listening: Option<LocalBoxFuture<'static, Error>>,
    /// Last, so that nobody listens any more when it is given up.
    interest: Interest<D>,
}

impl<D: Connector> Subscription<D> {
    /// Goes on listening; ready once changes may have been lost.
    fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        if let Some(listening) = &mut self.listening {
            ready!(listening.as_mut().poll(context));
            self.listening = None;
        }
        Poll::Ready(Error::Unavailable(RETRY_MS))
    }
}

impl<D: Connector> Subscription<D> {
    /// How often [`Subscription::next`] returns nothing within two minutes of silence.
    pub const TWO_MINUTES: u32 = (120_000 / CHECK_MS) as u32;

    /// Waits for a change, the newest of each user; none: nothing came for five seconds. An error: changes may have been lost.
    /// It can be cancelled: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Change>, Error> {
        let (subscriber, mailbox) = (Rc::clone(&self.interest.subscriber), Rc::clone(&self.interest.mailbox));
        let _leaving = Waiting(&mailbox);
        let change = poll_fn(|context| {
            // First what arrives, then whether anything has.
            let lost = self.poll_lost(context);
            match (mailbox.poll_take(context), lost) {
                (Poll::Ready(change), _) => Poll::Ready(Ok(Some(change))),
                (Poll::Pending, Poll::Ready(error)) => Poll::Ready(Err(error)),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        });
        subscriber.link.within(CHECK_MS, change).await.unwrap_or(Ok(None))
    }

    /// Goes on listening without taking changes, and returns only if some may have been lost. It can be cancelled.
    pub async fn lost(&mut self) -> Error {
        poll_fn(|context| self.poll_lost(context)).await
    }
}

/// Somebody waits for an mailbox; whoever leaves is not to be woken.
struct Waiting<'a>(&'a Mailbox);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.forget_reader();
    }
}

/// What somebody wants to hear, until it is dropped.
struct Interest<D: Connector> {
    subscriber: Rc<Subscriber<D>>,
    channels: Vec<Channel>,
    mailbox: Rc<Mailbox>,
}

impl<D: Connector> Interest<D> {
    fn new(subscriber: Rc<Subscriber<D>>, channels: Vec<Channel>) -> Self {
        let mailbox = Rc::new(Mailbox::default());
        let mut watched = subscriber.watched.0.borrow_mut();
        for channel in &channels {
            watched.entry(channel.clone()).or_default().push(Rc::clone(&mailbox));
        }
        drop(watched);
        Self { subscriber, channels, mailbox }
    }
}

impl<D: Connector> Drop for Interest<D> {
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
            self.subscriber.link.hang_up();
        }
    }
}
