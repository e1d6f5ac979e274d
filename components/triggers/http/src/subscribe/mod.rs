//! The trigger of `subscribe`: a stream of server-sent events, and heartbeats while it is read.
//!
//! It begins with a snapshot, taken from the start of the feed, so that no change falls in between. Then three tasks run
//! until one of them ends the stream: changes are sent, the device is kept alive, and typing is polled once a second,
//! because no function streams it.
//!
//! Deliberately absent: renewing a token, because a client cannot send anything on this stream, and checking visibility
//! again while nothing changes. A client that vanishes silently stays online until the platform gives up the connection:
//! the network accepts writes for a while.

mod feed;
mod heartbeats;
#[cfg_attr(feature = "wasi-0.2", path = "running_sync.rs")]
mod running;
mod watcher;

use std::pin::pin;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::{Either, FutureExt, Shared, join3, select};
use futures::stream::{self, LocalBoxStream, StreamExt, select_all};
use http::{HeaderValue, Response, header};
use rollcall_api::call::{self, Call, Connect, DepartureReason};
use rollcall_api::{Caller, Close, LEEWAY_S, Operation, events};
use rollcall_core::{ConversationId, Error, UserId};
use rollcall_functions::subscribe::Update;
use rollcall_wasi::{sleep, unix_now, within};

use crate::jitter::any_of;
use crate::typing::{Typists, typists};
use crate::{Answer, BodyWriter, Setup, Streaming, Trigger, logged, misrouted};
use feed::Feed;
use heartbeats::{ConnectedDevice, keep_alive};
use watcher::Watcher;

/// The reconnect delay sent to browsers. They also use the last one while the service is down, so it is never very short.
const RETRY_MS: std::ops::RangeInclusive<u64> = 1000..=3000;

/// The same for a stream that ends because of its maximum length: the service is there, and the client should miss little.
const RETRY_AFTER_MAX_MS: std::ops::RangeInclusive<u64> = 250..=1000;

/// How often something is written at least, to notice a reader that went away.
const QUIET: Duration = Duration::from_secs(3);

/// How often typing is polled. A typing signal lasts several times longer.
const TYPING_POLL: Duration = Duration::from_secs(1);

/// The least time a slow reader has, however short the heartbeat interval.
const MIN_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The trigger of `subscribe`.
#[derive(Debug)]
pub enum Subscribe {}

impl Trigger for Subscribe {
    fn serves(operation: Operation<'_>) -> bool {
        matches!(operation, Operation::Subscribe)
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::Subscribe(asked) = call else { return Err(misrouted()) };
        open(setup, asked).await
    }
}

/// When a browser should reconnect: random, so that not all come at once.
pub(crate) fn retry_ms() -> u64 {
    any_of(RETRY_MS)
}

/// Opens a subscription.
async fn open(setup: &Setup, asked: call::Subscribe) -> Result<Answer, Error> {
    let call::Subscribe { connect, users, conversations, since } = asked;
    let limit = setup.rules.watch_limit;
    // The function checks the limit on users.
    if conversations.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
        return Err(Error::TooMany(limit));
    }
    let (feed, updates) = match users.as_slice() {
        [] => (None, Vec::new()),
        users => {
            let (feed, updates) = Feed::begin(connect.viewer.as_ref(), users).await?;
            (Some(feed), updates)
        }
    };
    let conversations = Conversations { viewer: connect.viewer.clone(), ids: conversations };
    let typing = conversations.typists().await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (watcher, snapshot) = Watcher::new(updates, conversations.ids.iter().cloned().zip(typing), since, &setup.rules);
    let interval = Duration::from_millis(setup.rules.interval.0);
    let Connect { caller, device, kind, beats, active, .. } = connect;
    let device = beats.then(|| ConnectedDevice::new(caller.user.clone(), device, kind, active, interval)).flatten();
    let sender = EventSender {
        feed,
        watcher,
        caller,
        first: events::sse_retry(retry_ms()) + &snapshot,
        max: setup.stream_max,
        write_timeout: interval.max(MIN_WRITE_TIMEOUT),
    };
    Ok(Answer::Stream(response(Box::new(move |body| Box::pin(serve(sender, conversations, device, body))))))
}

fn response(streaming: Streaming) -> Response<Streaming> {
    let mut response = Response::new(streaming);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would otherwise buffer events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Resolves when the stream has ended, with the reason for the device's departure; `None` if no departure is sent.
///
/// The other tasks end by this instead of being dropped, so that a call in flight completes: a beat must not arrive after
/// the departure.
type Ending = Shared<oneshot::Receiver<Option<DepartureReason>>>;

async fn serve(sender: EventSender, conversations: Conversations, device: Option<ConnectedDevice>, body: BodyWriter) {
    let (ended, ending) = oneshot::channel();
    let ending: Ending = ending.shared();
    let (polled, typing) = mpsc::channel(1);
    let send = async {
        let departure = sender.run(typing, body).await;
        // Without a device there is no receiver.
        let _ = ended.send(departure);
    };
    let keep = async {
        if let Some(device) = device {
            keep_alive(device, ending.clone()).await;
        }
    };
    join3(send, keep, conversations.poll(polled, ending.clone())).await;
}

/// The conversations of a stream, and their viewer.
struct Conversations {
    viewer: Option<UserId>,
    ids: Vec<ConversationId>,
}

impl Conversations {
    /// The users typing now, in the order of the conversations.
    async fn typists(&self) -> Result<Vec<Typists>, Error> {
        if self.ids.is_empty() {
            return Ok(Vec::new());
        }
        typists(self.viewer.as_ref(), &self.ids).await
    }

    /// Polls until the stream ends.
    async fn poll(&self, mut polled: mpsc::Sender<Vec<(ConversationId, Typists)>>, mut ending: Ending) {
        if self.ids.is_empty() {
            return;
        }
        while let Either::Right(_) = select(&mut ending, pin!(sleep(TYPING_POLL))).await {
            // After a failure, or while the last result was not sent yet, the next poll tries again.
            if let Ok(typists) = self.typists().await {
                let _ = polled.try_send(self.ids.iter().cloned().zip(typists).collect());
            }
        }
    }
}

/// Sends the events of one stream.
struct EventSender {
    feed: Option<Feed>,
    watcher: Watcher,
    caller: Caller,
    /// The first events.
    first: String,
    /// How long the stream lasts at most.
    max: Option<Duration>,
    /// How long the reader may take for one write.
    write_timeout: Duration,
}

/// An input of the stream.
enum Input {
    /// Users changed.
    Changed(Vec<Update>),
    /// The users typing now.
    Typing(Vec<(ConversationId, Typists)>),
    /// The feed ended and could not be started again.
    Failed(Error),
    /// [`QUIET`] has passed.
    Quiet,
    /// The maximum length was reached.
    Max,
}

/// Why a stream ends.
enum End {
    /// The reader went away.
    Gone,
    /// The token expired.
    TokenExpired,
    /// The stream reached its maximum length.
    Max,
    /// The store cannot be reached: reconnect after this many milliseconds at the earliest.
    Unavailable(u32),
}

impl EventSender {
    /// Sends events until the end, then the closing event. Returns the reason for the departure, if there is one.
    async fn run(
        mut self,
        typing: mpsc::Receiver<Vec<(ConversationId, Typists)>>,
        mut body: BodyWriter,
    ) -> Option<DepartureReason> {
        match self.send(typing, &mut body).await {
            End::Gone => Some(DepartureReason::Dropped),
            End::TokenExpired => {
                let close = events::sse(events::CLOSE, None, &events::close(Close::TokenExpired));
                let _ = self.write(&mut body, close).await;
                Some(DepartureReason::Dropped)
            }
            End::Max => self.ask_to_reconnect(&mut body, any_of(RETRY_AFTER_MAX_MS)).await,
            End::Unavailable(after_ms) => {
                self.ask_to_reconnect(&mut body, u64::from(after_ms).saturating_add(retry_ms())).await
            }
        }
    }

    /// The client did not leave: its device keeps its full lifetime to reconnect.
    async fn ask_to_reconnect(&self, body: &mut BodyWriter, after_ms: u64) -> Option<DepartureReason> {
        let reconnect = events::sse(events::RECONNECT, None, &events::reconnect(after_ms));
        let _ = self.write(body, events::sse_retry(after_ms) + &reconnect).await;
        None
    }

    async fn send(&mut self, typing: mpsc::Receiver<Vec<(ConversationId, Typists)>>, body: &mut BodyWriter) -> End {
        let typing = typing.map(Input::Typing).boxed_local();
        let mut inputs = select_all([changes(self.feed.take()), typing, quiet(), max(self.max)]);
        let mut text = std::mem::take(&mut self.first);
        loop {
            if !text.is_empty() && self.write(body, text).await.is_err() {
                return End::Gone;
            }
            text = match inputs.next().await {
                Some(Input::Changed(updates)) => self.watcher.changed(updates),
                Some(Input::Typing(polled)) => self.watcher.typing(polled),
                Some(Input::Quiet) if self.is_expired() => return End::TokenExpired,
                Some(Input::Quiet) => events::SSE_COMMENT.to_owned(),
                Some(Input::Max) => return End::Max,
                Some(Input::Failed(Error::Unavailable(after_ms))) => return End::Unavailable(after_ms),
                Some(Input::Failed(error)) => {
                    logged(error);
                    return End::Unavailable(0);
                }
                None => return End::Unavailable(0),
            };
        }
    }

    fn is_expired(&self) -> bool {
        self.caller.expires_at.is_some_and(|at| at.saturating_add(LEEWAY_S) <= unix_now())
    }

    /// A reader that does not accept a write within the timeout counts as gone.
    async fn write(&self, body: &mut BodyWriter, text: String) -> Result<(), Gone> {
        match within(self.write_timeout, body.write_all(text.into_bytes())).await {
            Some(unread) if unread.is_empty() => Ok(()),
            Some(_) | None => Err(Gone),
        }
    }
}

/// The reader went away.
struct Gone;

/// The changes, until the feed fails.
fn changes(feed: Option<Feed>) -> LocalBoxStream<'static, Input> {
    let next = |feed: Option<Feed>| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(updates) => Some((Input::Changed(updates), Some(feed))),
            Err(error) => Some((Input::Failed(error), None)),
        }
    };
    stream::unfold(feed, next).boxed_local()
}

fn max(max: Option<Duration>) -> LocalBoxStream<'static, Input> {
    let ended = |max| sleep(max).map(|()| Input::Max);
    stream::iter(max).then(ended).boxed_local()
}

fn quiet() -> LocalBoxStream<'static, Input> {
    let next = |()| async {
        sleep(QUIET).await;
        Some((Input::Quiet, ()))
    };
    stream::unfold((), next).boxed_local()
}
