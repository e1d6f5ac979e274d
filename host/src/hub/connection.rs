//! An upgraded connection, over server-sent events or a WebSocket: sends updates and beats, takes messages, and closes it.

use std::io;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;
use rollcall_api::call::{Connect, DepartureReason, Subscribe, TypingUpdate};
use rollcall_api::socket::{Message, decode_message};
use rollcall_api::{Caller, Close, Kind, LEEWAY_S, Problem, events, renew};
use rollcall_core::{DeviceId, Error};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::Hub;
use super::connection_heartbeats::{ConnectedDevice, DeviceConnection};
use super::handshake::{Handshake, event_stream_head};
use super::socket::Socket;
use super::sse::EventStream;
use super::subscription::Subscription;
use crate::http::edge::unix_now;
use crate::http::write_timeout::WriteTimeoutStream;

/// Pings without an answer after which a socket counts as dead.
const MAX_UNANSWERED_PINGS: u32 = 2;

/// Invalid messages after which a socket is closed.
const MAX_INVALID: u32 = 20;

/// A token bucket for messages of a socket: its size, and its refill per second. No user acts that often.
const BURST: f64 = 60.0;
const MESSAGES_PER_S: f64 = 20.0;

/// The reconnect delay sent to clients. A browser keeps the last one, also while no host answers, so it is never very short.
pub(super) const RETRY_MS: RangeInclusive<u64> = 1000..=3000;

/// The shortest TCP user timeout, however short the beat interval is.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Pings and beats of all connections are aligned to multiples of this, so that their beats reach the store in batches.
const BEAT_ALIGNMENT: Duration = Duration::from_millis(100);

/// The protocol of an upgraded connection.
pub(super) trait Protocol {
    /// Whether the client answers a ping.
    const ANSWERS: bool;

    /// Queues an event.
    fn put(&mut self, event: &str, id: Option<&str>, reference: Option<u64>, data: &str);
    /// Sends the queued events.
    async fn flush(&mut self) -> io::Result<()>;
    /// Tests the connection.
    async fn ping(&mut self, id: &str) -> io::Result<()>;
    /// The next message of the client. Cancel-safe.
    async fn receive(&mut self) -> Received;
    /// Tells the client when to reconnect.
    async fn reconnect(&mut self, after_ms: u64) -> io::Result<()>;
    /// Sends the reason and closes the connection.
    async fn close(&mut self, close: Close);
}

/// What was received from the client.
#[derive(Debug)]
pub(super) enum Received {
    Text(String),
    /// A control frame: the client is alive.
    Alive,
    /// A violation, for which the connection is closed.
    Violation(Close),
    /// The connection is closed.
    Gone,
}

/// An admitted request whose connection is taken over from the HTTP library.
pub(crate) struct UpgradedConnection {
    hub: Rc<Hub>,
    subscription: Subscription,
    device: Option<DeviceConnection>,
    caller: Caller,
    opening: Opening,
    /// The origin of the page that may read the response.
    origin: Option<HeaderValue>,
}

/// How the connection was opened.
enum Opening {
    /// As an event stream, which begins with this snapshot.
    EventStream { snapshot: String },
    /// As a WebSocket.
    Socket(Handshake),
}

impl UpgradedConnection {
    /// Admits a subscription.
    pub(crate) async fn subscribe(hub: &Rc<Hub>, subscribe: Subscribe) -> Result<Self, Error> {
        let Subscribe { connect, users, conversations, since } = subscribe;
        let subscription = hub.subscription(connect.viewer.clone());
        let snapshot = subscription.watch(users, conversations, since).await?;
        Ok(Self::new(hub, subscription, connect, Opening::EventStream { snapshot }))
    }

    /// Admits a socket.
    pub(crate) fn socket(hub: &Rc<Hub>, connect: Connect, handshake: Handshake) -> Self {
        let subscription = hub.subscription(connect.viewer.clone());
        Self::new(hub, subscription, connect, Opening::Socket(handshake))
    }

    fn new(hub: &Rc<Hub>, subscription: Subscription, connect: Connect, opening: Opening) -> Self {
        let device = connect.device.or_else(generated_device).filter(|_| connect.beats);
        let device = device.map(|device| {
            let user = connect.caller.user.clone();
            hub.heartbeats.connect(ConnectedDevice { user, device }, connect.kind, connect.active)
        });
        let (hub, caller) = (Rc::clone(hub), connect.caller);
        Self { hub, subscription, device, caller, opening, origin: None }
    }

    /// The same, for a page of this origin.
    pub(crate) fn with_origin(self, origin: Option<HeaderValue>) -> Self {
        Self { origin, ..self }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> u16 {
        match self.opening {
            Opening::EventStream { .. } => 200,
            Opening::Socket(_) => 101,
        }
    }

    /// Serves the connection until it closes; `read` are bytes received after the request.
    pub(crate) fn serve(self, stream: WriteTimeoutStream, read: Bytes, ending: watch::Receiver<bool>) -> Serving<()> {
        let metrics = Arc::clone(&self.hub.functions.platform.metrics);
        let protocol = match self.opening {
            Opening::EventStream { .. } => "sse",
            Opening::Socket(_) => "websocket",
        };
        // Two futures, so that the memory needed for opening is freed: the connection may stay open for days.
        let opening = Box::pin(self.open(stream, read, ending));
        Box::pin(async move {
            let Ok(serving) = opening.await else { return };
            metrics.hub.opened(protocol);
            metrics.hub.closed(protocol, serving.await);
        })
    }

    /// Sends the response and starts serving.
    async fn open(
        self,
        mut stream: WriteTimeoutStream,
        read: Bytes,
        ending: watch::Receiver<bool>,
    ) -> io::Result<Serving<End>> {
        let Self { hub, subscription, device, caller, opening, origin } = self;
        // Two periods are somewhat less than an interval, so a beat is never late, and a device that moved to another host has
        // beaten there before the grace of its broken connection here ends.
        let period = Duration::from_millis(hub.functions.platform.rules.interval.0 * 9 / 20);
        // Unacknowledged data means a dead client; the kernel's default would wait for many minutes.
        let _ = socket2::SockRef::from(stream.stream()).set_tcp_user_timeout(Some(period.max(MIN_USER_TIMEOUT) * 2));
        let first = match &opening {
            Opening::EventStream { snapshot } => {
                let snapshot = events::sse(events::SNAPSHOT, Some(&subscription.resume_id()), snapshot);
                event_stream_head(origin.as_ref()) + &events::sse_retry(retry_ms()) + &snapshot
            }
            Opening::Socket(handshake) => handshake.head(),
        };
        stream.write_all(first.as_bytes()).await?;
        let state =
            ConnectionState { hub, subscription, device, caller, ending, ping_schedule: PingSchedule::new(period) };
        Ok(match opening {
            Opening::EventStream { .. } => Box::pin(Connection::new(EventStream::new(stream), state).run()),
            Opening::Socket(_) => Box::pin(Connection::new(Socket::new(stream, read).await, state).run()),
        })
    }
}

/// The future that serves a connection.
pub(crate) type Serving<T> = Pin<Box<dyn Future<Output = T>>>;

/// A random reconnect delay, so that clients do not reconnect all at once.
pub(crate) fn retry_ms() -> u64 {
    fastrand::u64(RETRY_MS)
}

/// The device id of a connection whose client gave none.
fn generated_device() -> Option<DeviceId> {
    DeviceId::parse(format!("connection-{:016x}", fastrand::u64(..))).ok()
}

/// When a connection is pinged and beats.
struct PingSchedule {
    sleep: Pin<Box<Sleep>>,
    period: Duration,
    /// Alternates: a connection is pinged every time and beats every second time.
    beats: bool,
}

impl PingSchedule {
    /// The first ping has a random offset, so that connections opened together are spread out.
    fn new(period: Duration) -> Self {
        let first = period.mul_f64(0.5 + fastrand::f64() / 2.0);
        Self {
            sleep: Box::pin(tokio::time::sleep_until(aligned(Instant::now() + first, period))),
            period,
            beats: false,
        }
    }

    /// Schedules the next ping. Returns whether a beat is due with this one.
    fn advance(&mut self) -> bool {
        let next = aligned(Instant::now() + self.period, self.period);
        self.sleep.as_mut().reset(next);
        self.beats = !self.beats;
        self.beats
    }
}

/// The last aligned instant before this one.
fn aligned(instant: Instant, period: Duration) -> Instant {
    let alignment = BEAT_ALIGNMENT.min(period / 8).as_nanos().max(1);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let ahead = instant.saturating_duration_since(Instant::now()).as_nanos();
    instant - Duration::from_nanos(((since + ahead) % alignment) as u64)
}

/// What a connection has in either protocol.
struct ConnectionState {
    hub: Rc<Hub>,
    subscription: Subscription,
    device: Option<DeviceConnection>,
    caller: Caller,
    ending: watch::Receiver<bool>,
    ping_schedule: PingSchedule,
}

struct Connection<W> {
    protocol: W,
    state: ConnectionState,
    /// Whether anything was received since the last ping.
    heard: bool,
    unanswered_pings: u32,
    invalid: u32,
    /// The token bucket for messages, as of `allowed_at`.
    allowance: f64,
    allowed_at: Instant,
}

/// Why a connection ends; `None` if it broke.
type End = Option<Close>;

impl<W: Protocol> Connection<W> {
    fn new(protocol: W, state: ConnectionState) -> Self {
        let allowed_at = Instant::now();
        Self { protocol, state, heard: true, unanswered_pings: 0, invalid: 0, allowance: BURST, allowed_at }
    }

    /// Serves the connection. Returns why it ended.
    async fn run(mut self) -> End {
        let Err(end) = self.serve().await;
        // A logout takes effect now, however long the closing handshake takes.
        if end == Some(Close::Normal) {
            self.state.device = None;
        }
        if end == Some(Close::Restart) {
            self.drain().await;
        } else if let Some(close) = end {
            self.protocol.close(close).await;
        }
        end
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        loop {
            if self.state.subscription.has_updates() {
                Box::pin(self.send_updates()).await.map_err(|_| None)?;
            }
            let ConnectionState { subscription, ending, ping_schedule, .. } = &mut self.state;
            let received = tokio::select! {
                biased;
                _ = ending.wait_for(|ending| *ending) => return Err(Some(Close::Restart)),
                // Before updates, which may never end for a slow connection.
                () = ping_schedule.sleep.as_mut() => None,
                received = self.protocol.receive() => Some(received),
                () = subscription.updated() => continue,
            };
            // Boxed, so that an idle connection has no memory reserved for it.
            match received {
                Some(received) => Box::pin(self.take(received)).await?,
                None => Box::pin(self.ping_and_beat()).await?,
            }
        }
    }

    /// Sends all updates in one write.
    async fn send_updates(&mut self) -> io::Result<()> {
        let updates = self.state.subscription.take_updates().await;
        let count = updates.presences.len() + updates.typing.len();
        if count == 0 {
            return Ok(());
        }
        let id = self.state.subscription.resume_id();
        updates.presences.iter().for_each(|presence| self.protocol.put(events::PRESENCE, Some(&id), None, presence));
        updates.typing.iter().for_each(|typing| self.protocol.put(events::TYPING, Some(&id), None, typing));
        self.state.hub.functions.platform.metrics.hub.sent(count);
        self.protocol.flush().await
    }

    /// Pings, beats if it is time, and checks that the client answers and its token is valid.
    async fn ping_and_beat(&mut self) -> Result<(), End> {
        let beats = self.state.ping_schedule.advance();
        if self.state.caller.expires_at.is_some_and(|at| at.saturating_add(LEEWAY_S) <= unix_now()) {
            return Err(Some(Close::TokenExpired));
        }
        let is_alive = !W::ANSWERS || std::mem::take(&mut self.heard);
        if is_alive {
            self.unanswered_pings = 0;
            // Only a connection that answered beats, so that a dead one does not keep its device alive.
            if let (true, Some(device)) = (beats, &self.state.device) {
                device.beat(false);
            }
        } else {
            // A due beat is made up for at the next ping that finds an answer.
            self.state.ping_schedule.beats &= !beats;
            self.unanswered_pings += 1;
            if self.unanswered_pings >= MAX_UNANSWERED_PINGS {
                return Err(Some(Close::Idle));
            }
        }
        let id = self.state.subscription.resume_id();
        self.protocol.ping(&id).await.map_err(|_| None)
    }

    async fn take(&mut self, received: Received) -> Result<(), End> {
        self.heard = true;
        match received {
            Received::Text(text) => {
                self.limit_rate()?;
                self.handle(&text).await
            }
            Received::Alive => self.limit_rate(),
            Received::Violation(close) => Err(Some(close)),
            Received::Gone => Err(None),
        }
    }

    /// Takes one token from the bucket.
    fn limit_rate(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let earned = now.duration_since(self.allowed_at).as_secs_f64() * MESSAGES_PER_S;
        self.allowance = (self.allowance + earned).min(BURST) - 1.0;
        self.allowed_at = now;
        if self.allowance < 0.0 { Err(Some(Close::TooFast)) } else { Ok(()) }
    }

    async fn handle(&mut self, text: &str) -> Result<(), End> {
        let hub = Rc::clone(&self.state.hub);
        let (reference, done) = match decode_message(text, &self.state.caller, &hub.limits) {
            Ok((reference, message)) => (reference, self.execute(reference, message).await?),
            Err((reference, problem)) => (reference, Err(problem)),
        };
        match done {
            Ok(Execution::Answered) => {}
            Ok(Execution::Unanswered) if reference.is_none() => {}
            Ok(Execution::Unanswered) => self.protocol.put(events::DONE, None, reference, &events::done()),
            Err(problem) => {
                self.protocol.put(events::ERROR, None, reference, &events::problem(&problem));
                // A forbidden message is valid: a page does not know which conversations the token allows.
                let is_valid = problem.kind == Kind::Forbidden || !problem.status().is_client_error();
                self.invalid += u32::from(!is_valid);
            }
        }
        self.protocol.flush().await.map_err(|_| None)?;
        if self.invalid > MAX_INVALID { Err(Some(Close::Policy)) } else { Ok(()) }
    }

    async fn execute(&mut self, reference: Option<u64>, message: Message) -> Result<Result<Execution, Problem>, End> {
        let done = match message {
            Message::Beat { active } => match &self.state.device {
                Some(device) => {
                    device.beat(active);
                    Ok(Execution::Unanswered)
                }
                None => Err(Problem::new(Kind::Forbidden, "this connection only watches")),
            },
            Message::Watch { users, conversations, since } => {
                match self.state.subscription.watch(users, conversations, since).await {
                    Ok(snapshot) => {
                        let id = self.state.subscription.resume_id();
                        self.protocol.put(events::SNAPSHOT, Some(&id), reference, &snapshot);
                        Ok(Execution::Answered)
                    }
                    Err(error) => Err(Problem::from(error)),
                }
            }
            Message::Unwatch { users, conversations } => {
                self.state.subscription.unwatch(&users, &conversations);
                Ok(Execution::Unanswered)
            }
            Message::Typing { conversation, typing } => {
                let update = TypingUpdate { user: self.state.caller.user.clone(), conversation, typing };
                let typed = self.state.hub.functions.type_many(vec![update]).await;
                let typed = typed.and_then(|outcomes| outcomes.into_iter().next().unwrap_or(Ok(())));
                typed.map(|()| Execution::Unanswered).map_err(Problem::from)
            }
            Message::Leave => {
                if let Some(device) = &mut self.state.device {
                    device.depart_as(Some(DepartureReason::Logout));
                }
                return Err(Some(Close::Normal));
            }
            Message::Token(token) => self.renew(&token).map(|()| Execution::Unanswered),
        };
        Ok(done)
    }

    /// Replaces the token by a newer one of the same user.
    fn renew(&mut self, token: &str) -> Result<(), Problem> {
        let ConnectionState { hub, subscription, caller, .. } = &mut self.state;
        *caller = renew(&hub.access, caller, token, unix_now())?;
        // Conversations that the new token does not allow are no longer watched.
        let mut left = subscription.conversations();
        left.retain(|conversation| !caller.conversations.allows(conversation));
        subscription.unwatch(&[], &left);
        Ok(())
    }

    /// Closes the connection because the host stops. A last beat gives the device a full interval to reconnect, and the
    /// reconnect delay is random, so no presence event is published and clients do not come all at once.
    async fn drain(&mut self) {
        if let Some(device) = &mut self.state.device {
            device.beat(false);
            device.depart_as(None);
        }
        let interval = self.state.hub.functions.platform.rules.interval.0;
        let _ = self.protocol.reconnect(fastrand::u64(interval / 30..=interval / 3)).await;
        self.protocol.close(Close::Restart).await;
    }
}

/// How a message was executed.
enum Execution {
    /// An answer is queued.
    Answered,
    /// It has no answer of its own.
    Unanswered,
}
