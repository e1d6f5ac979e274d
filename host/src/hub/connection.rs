//! One connection that stays, over either transport: tells it what it watches, beats for it, takes what it says, and sees it
//! off.

use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;
use rollcall_api::call::{Connect, Reason, Subscribe, TypingUpdate};
use rollcall_api::socket::{Message, decode_message};
use rollcall_api::{Caller, Close, Kind, LEEWAY_S, Problem, events, renew};
use rollcall_core::{DeviceId, Error};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::connection_heartbeats::{ConnectedDevice, DeviceConnection};
use super::handshake::{Handshake, event_stream_head};
use super::socket::Socket;
use super::sse::EventStream;
use super::{Hub, Subscription};
use crate::http::edge::unix_now;
use crate::http::write_timeout::WriteTimeoutStream;

/// Pings without an answer after which a socket counts as dead.
const MAX_SILENT_PINGS: u32 = 2;

/// Messages that make no sense after which a socket is closed.
const MAX_NONSENSE: u32 = 20;

/// Messages that a socket may send at once, and how many more each second. A person does nothing that often.
const BURST: f64 = 60.0;
const MESSAGES_PER_S: f64 = 20.0;

/// A browser keeps to the last such time that it was told, also when nobody answers: so never a very short one.
pub(super) const RETRY_MS: RangeInclusive<u64> = 1000..=3000;

/// No connection is given up sooner than this, however short the beats.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections are attended to on a common beat, so that what they have to tell the store comes together.
const GRID: Duration = Duration::from_millis(100);

/// A transport.
pub(super) trait Protocol {
    /// Whether the other side answers a ping.
    const ANSWERS: bool;

    /// Adds an event to what is sent next.
    fn put(&mut self, event: &str, id: Option<&str>, reference: Option<u64>, data: &str);
    /// Sends what was put.
    async fn flush(&mut self) -> io::Result<()>;
    /// Finds out whether the other side is there.
    async fn ping(&mut self, id: &str) -> io::Result<()>;
    /// What the other side says. To be called again and again, and dropped while it waits.
    async fn receive(&mut self) -> Received;
    /// Tells the other side to come back after a while.
    async fn reconnect(&mut self, after_ms: u64) -> io::Result<()>;
    /// Says why it ends, and ends it.
    async fn close(&mut self, close: Close);
}

/// What the other side says.
#[derive(Debug)]
pub(super) enum Received {
    /// A message.
    Text(String),
    /// That it is there.
    Alive,
    /// Something for which it is sent away.
    Unwanted(Close),
    /// Nothing any more.
    Gone,
}

/// Somebody who was let in and whose connection is to be taken over.
pub(crate) struct UpgradedConnection {
    hub: Rc<Hub>,
    subscription: Subscription,
    device_connection: Option<DeviceConnection>,
    caller: Caller,
    opening: Opening,
    /// The origin of the page that is let in to read the answer.
    origin: Option<HeaderValue>,
}

/// How a upgraded came.
enum Opening {
    /// To a stream of events, which begins with this snapshot.
    Subscribed { snapshot: String },
    /// By this handshake.
    Socket(Handshake),
}

impl UpgradedConnection {
    /// Lets in somebody who subscribes, or says why not.
    pub(crate) async fn subscribe(hub: &Rc<Hub>, subscribe: Subscribe) -> Result<Self, Error> {
        let Subscribe { connect, users, conversations, since } = subscribe;
        let subscription = hub.subscription(connect.viewer.clone());
        let snapshot = subscription.watch(users, conversations, since).await?;
        Ok(Self::new(hub, subscription, connect, Opening::Subscribed { snapshot }))
    }

    /// Lets in somebody who opens a socket.
    pub(crate) fn socket(hub: &Rc<Hub>, connect: Connect, handshake: Handshake) -> Self {
        let subscription = hub.subscription(connect.viewer.clone());
        Self::new(hub, subscription, connect, Opening::Socket(handshake))
    }

    fn new(hub: &Rc<Hub>, subscription: Subscription, connect: Connect, opening: Opening) -> Self {
        let device = connect.device.or_else(nameless).filter(|_| connect.beats);
        let device_connection = device.map(|device| {
            let user = connect.caller.user.clone();
            hub.heartbeats.enter(ConnectedDevice { user, device }, connect.kind, connect.active)
        });
        let (hub, caller) = (Rc::clone(hub), connect.caller);
        Self { hub, subscription, device_connection, caller, opening, origin: None }
    }

    /// The same, from a page of this origin.
    pub(crate) fn of(self, origin: Option<HeaderValue>) -> Self {
        Self { origin, ..self }
    }

    /// The status of the answer by which the connection is taken over.
    pub(crate) fn status(&self) -> u16 {
        match self.opening {
            Opening::Subscribed { .. } => 200,
            Opening::Socket(_) => 101,
        }
    }

    /// Serves the connection to its end; `read` came along with the request.
    pub(crate) fn serve(self, stream: WriteTimeoutStream, read: Bytes, ending: watch::Receiver<bool>) -> Serving<()> {
        let metrics = Arc::clone(&self.hub.functions.platform.metrics);
        let transport = match self.opening {
            Opening::Subscribed { .. } => "subscribe",
            Opening::Socket(_) => "socket",
        };
        // In pieces, so that what is needed to open a connection is let go: it may stay open for days.
        let opening = Box::pin(self.open(stream, read, ending));
        Box::pin(async move {
            let Ok(serving) = opening.await else { return };
            metrics.hub.opened(transport);
            metrics.hub.closed(transport, serving.await);
        })
    }

    /// Answers the request, and goes over to what the connection is for.
    async fn open(
        self,
        mut stream: WriteTimeoutStream,
        read: Bytes,
        ending: watch::Receiver<bool>,
    ) -> io::Result<Serving<End>> {
        let Self { hub, subscription, device_connection, caller, opening, origin } = self;
        // Two of these are somewhat less than an interval, so that a beat is never late, whatever else is going on; and so that
        // who moved to another host has beaten there before the grace of the connection that broke here is over.
        let period = Duration::from_millis(hub.functions.platform.rules.interval.0 * 9 / 20);
        // What was sent and is never taken means that nobody is there any more, however long the system would hope.
        let _ = socket2::SockRef::from(stream.stream()).set_tcp_user_timeout(Some(period.max(MIN_USER_TIMEOUT) * 2));
        let first = match &opening {
            Opening::Subscribed { snapshot } => {
                let snapshot = events::sse(events::SNAPSHOT, Some(&subscription.id()), snapshot);
                event_stream_head(origin.as_ref()) + &events::sse_retry(retry_ms()) + &snapshot
            }
            Opening::Socket(handshake) => handshake.head(),
        };
        stream.write_all(first.as_bytes()).await?;
        let state = State { hub, subscription, device_connection, caller, ending, pulse: Pulse::new(period) };
        Ok(match opening {
            Opening::Subscribed { .. } => Box::pin(Connection::new(EventStream::new(stream), state).run()),
            Opening::Socket(_) => Box::pin(Connection::new(Socket::new(stream, read).await, state).run()),
        })
    }
}

/// A connection being served.
pub(crate) type Serving<T> = Pin<Box<dyn Future<Output = T>>>;

/// When a browser whose stream broke comes back: each at another moment, or all would come at once.
pub(crate) fn retry_ms() -> u64 {
    fastrand::u64(RETRY_MS)
}

/// A device that its client gave no name: as many as there are connections.
fn nameless() -> Option<DeviceId> {
    DeviceId::parse(format!("connection-{:016x}", fastrand::u64(..))).ok()
}

/// When a connection is attended to.
struct Pulse {
    sleep: Pin<Box<Sleep>>,
    period: Duration,
    /// Turns with every pulse: a connection is pinged at each and beats at every other.
    beats: bool,
}

impl Pulse {
    /// The first comes early by chance, so that those who came together are not attended to together for ever.
    fn new(period: Duration) -> Self {
        let first = period.mul_f64(0.5 + fastrand::f64() / 2.0);
        Self {
            sleep: Box::pin(tokio::time::sleep_until(on_grid(Instant::now() + first, period))),
            period,
            beats: false,
        }
    }

    /// Sets the next; answers whether a beat is due at this one.
    fn turn(&mut self) -> bool {
        let next = on_grid(Instant::now() + self.period, self.period);
        self.sleep.as_mut().reset(next);
        self.beats = !self.beats;
        self.beats
    }
}

/// The last common instant before this one.
fn on_grid(instant: Instant, period: Duration) -> Instant {
    let grid = GRID.min(period / 8).as_nanos().max(1);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let ahead = instant.saturating_duration_since(Instant::now()).as_nanos();
    instant - Duration::from_nanos(((since + ahead) % grid) as u64)
}

/// What a connection is, whatever carries it.
struct State {
    hub: Rc<Hub>,
    subscription: Subscription,
    device_connection: Option<DeviceConnection>,
    caller: Caller,
    ending: watch::Receiver<bool>,
    pulse: Pulse,
}

/// A connection.
struct Connection<W> {
    protocol: W,
    state: State,
    /// Heard of since the last ping.
    heard: bool,
    silent_pings: u32,
    nonsense: u32,
    /// Messages that may still be sent, as of when.
    allowance: f64,
    allowed_at: Instant,
}

/// Why a connection ends: none, that it broke.
type End = Option<Close>;

impl<W: Protocol> Connection<W> {
    fn new(protocol: W, state: State) -> Self {
        let allowed_at = Instant::now();
        Self { protocol, state, heard: true, silent_pings: 0, nonsense: 0, allowance: BURST, allowed_at }
    }

    /// Serves it to its end. Answers why it ended.
    async fn run(mut self) -> End {
        let Err(end) = self.serve().await;
        // Whoever logged out is gone now, however long the other side takes to hear of it.
        if end == Some(Close::Normal) {
            self.state.device_connection = None;
        }
        if end == Some(Close::Restart) {
            self.send_away().await;
        } else if let Some(close) = end {
            self.protocol.close(close).await;
        }
        end
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        loop {
            if self.state.subscription.has_updates() {
                Box::pin(self.tell()).await.map_err(|_| None)?;
            }
            let State { subscription, ending, pulse, .. } = &mut self.state;
            let what = tokio::select! {
                biased;
                _ = ending.wait_for(|ending| *ending) => return Err(Some(Close::Restart)),
                // Before the news, of which there may be no end for a connection that takes them slowly.
                () = pulse.sleep.as_mut() => None,
                received = self.protocol.receive() => Some(received),
                () = subscription.updated() => continue,
            };
            // What a connection does now and then is put aside, so that an idle one has no room for it.
            match what {
                Some(received) => Box::pin(self.take(received)).await?,
                None => Box::pin(self.attend()).await?,
            }
        }
    }

    /// Tells everything that there is to tell, in one go.
    async fn tell(&mut self) -> io::Result<()> {
        let news = self.state.subscription.news().await;
        let told = news.presences.len() + news.typing.len();
        if told == 0 {
            return Ok(());
        }
        let id = self.state.subscription.id();
        news.presences.iter().for_each(|presence| self.protocol.put(events::PRESENCE, Some(&id), None, presence));
        news.typing.iter().for_each(|typing| self.protocol.put(events::TYPING, Some(&id), None, typing));
        self.state.hub.functions.platform.metrics.hub.told(told);
        self.protocol.flush().await
    }

    /// Looks after the connection: is anybody there, and may they still be?
    async fn attend(&mut self) -> Result<(), End> {
        let beats = self.state.pulse.turn();
        if self.state.caller.expires_at.is_some_and(|at| at.saturating_add(LEEWAY_S) <= unix_now()) {
            return Err(Some(Close::TokenExpired));
        }
        let is_there = !W::ANSWERS || std::mem::take(&mut self.heard);
        if is_there {
            self.silent_pings = 0;
            // A connection beats when it was heard of, so that one which is dead without a word is not kept alive by us.
            if let (true, Some(device_connection)) = (beats, &self.state.device_connection) {
                device_connection.beat(false);
            }
        } else {
            // A beat that was due is made up for as soon as there is an answer.
            self.state.pulse.beats &= !beats;
            self.silent_pings += 1;
            if self.silent_pings >= MAX_SILENT_PINGS {
                return Err(Some(Close::Idle));
            }
        }
        let id = self.state.subscription.id();
        self.protocol.ping(&id).await.map_err(|_| None)
    }

    async fn take(&mut self, received: Received) -> Result<(), End> {
        self.heard = true;
        match received {
            Received::Text(text) => {
                self.spend()?;
                self.obey(&text).await
            }
            Received::Alive => self.spend(),
            Received::Unwanted(close) => Err(Some(close)),
            Received::Gone => Err(None),
        }
    }

    /// Takes one message from the allowance.
    fn spend(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let earned = now.duration_since(self.allowed_at).as_secs_f64() * MESSAGES_PER_S;
        self.allowance = (self.allowance + earned).min(BURST) - 1.0;
        self.allowed_at = now;
        if self.allowance < 0.0 { Err(Some(Close::TooFast)) } else { Ok(()) }
    }

    async fn obey(&mut self, text: &str) -> Result<(), End> {
        let hub = Rc::clone(&self.state.hub);
        let (reference, done) = match decode_message(text, &self.state.caller, &hub.limits) {
            Ok((reference, message)) => (reference, self.carry_out(reference, message).await?),
            Err((reference, problem)) => (reference, Err(problem)),
        };
        match done {
            Ok(Done::Told) => {}
            Ok(Done::Silently) if reference.is_none() => {}
            Ok(Done::Silently) => self.protocol.put(events::DONE, None, reference, &events::done()),
            Err(problem) => {
                self.protocol.put(events::ERROR, None, reference, &events::problem(&problem));
                // What somebody may not do makes sense: a page does not know in which conversations its person takes part.
                let makes_sense = problem.kind == Kind::Forbidden || !problem.status().is_client_error();
                self.nonsense += u32::from(!makes_sense);
            }
        }
        self.protocol.flush().await.map_err(|_| None)?;
        if self.nonsense > MAX_NONSENSE { Err(Some(Close::Policy)) } else { Ok(()) }
    }

    async fn carry_out(&mut self, reference: Option<u64>, message: Message) -> Result<Result<Done, Problem>, End> {
        let done = match message {
            Message::Beat { active } => match &self.state.device_connection {
                Some(device_connection) => {
                    device_connection.beat(active);
                    Ok(Done::Silently)
                }
                None => Err(Problem::new(Kind::Forbidden, "this connection only watches")),
            },
            Message::Watch { users, conversations, since } => {
                match self.state.subscription.watch(users, conversations, since).await {
                    Ok(snapshot) => {
                        let id = self.state.subscription.id();
                        self.protocol.put(events::SNAPSHOT, Some(&id), reference, &snapshot);
                        Ok(Done::Told)
                    }
                    Err(error) => Err(Problem::from(error)),
                }
            }
            Message::Unwatch { users, conversations } => {
                self.state.subscription.unwatch(&users, &conversations);
                Ok(Done::Silently)
            }
            Message::Typing { conversation, typing } => {
                let typing_update = TypingUpdate { user: self.state.caller.user.clone(), conversation, typing };
                let typed = self.state.hub.functions.type_many(vec![typing_update]).await;
                let typed = typed.and_then(|outcomes| outcomes.into_iter().next().unwrap_or(Ok(())));
                typed.map(|()| Done::Silently).map_err(Problem::from)
            }
            Message::Leave => {
                if let Some(device_connection) = &mut self.state.device_connection {
                    device_connection.will_leave(Some(Reason::Logout));
                }
                return Err(Some(Close::Normal));
            }
            Message::Token(token) => self.renew(&token).map(|()| Done::Silently),
        };
        Ok(done)
    }

    /// Goes on with a fresh token of the same person.
    fn renew(&mut self, token: &str) -> Result<(), Problem> {
        let State { hub, subscription, caller, .. } = &mut self.state;
        *caller = renew(&hub.access, caller, token, unix_now())?;
        // Where the person takes part no longer, they see nobody type any more.
        let mut left = subscription.conversations();
        left.retain(|conversation| !caller.conversations.allows(conversation));
        subscription.unwatch(&[], &left);
        Ok(())
    }

    /// The service ends, and nobody is to notice: the connection beats once more, so that its device has the whole time to
    /// come back, and is told when to do so, each at another moment.
    async fn send_away(&mut self) {
        if let Some(device_connection) = &mut self.state.device_connection {
            device_connection.beat(false);
            device_connection.will_leave(None);
        }
        let interval = self.state.hub.functions.platform.rules.interval.0;
        let _ = self.protocol.reconnect(fastrand::u64(interval / 30..=interval / 3)).await;
        self.protocol.close(Close::Restart).await;
    }
}

/// How a message was carried out.
enum Done {
    /// With an answer of its own.
    Told,
    /// With nothing to say but that it was.
    Silently,
}
