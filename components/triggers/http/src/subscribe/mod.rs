//! The trigger to `subscribe`: a stream of server-sent events, and a heartbeat for as long as somebody reads it.
//!
//! It begins with a snapshot, which is what a feed begins with, so that nothing falls between the two. Then three things
//! go on side by side until one of them ends the stream: what changes is told, the device is kept alive, and whoever types
//! is looked for once a second, because no function feeds that.
//!
//! Deliberately absent: renewing a token, since nothing can be said on such a stream, and asking anew what the viewer may
//! see while nothing changes. A client that vanishes without a word is here until its host gives the connection up: what
//! is sent to nobody is taken by the network for a while.

mod attendance;
mod feed;
mod watcher;

use std::pin::pin;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::future::{Either, FutureExt, Shared, join3, select};
use futures::stream::{self, LocalBoxStream, StreamExt, select_all};
use http::{HeaderValue, Response, header};
use rollcall_api::call::{self, Call, Connect, Reason};
use rollcall_api::{Caller, Close, Function, LEEWAY_S, events};
use rollcall_core::{ConversationId, Error, UserId};
use wasip3::wit_bindgen::StreamWriter;

use crate::clock::{any_of, unix_now, wait};
use crate::codec::Update;
use crate::typing::{Room, typists};
use crate::wire::within;
use crate::{Answer, Setup, Streaming, Trigger, astray, logged};
use attendance::{Attending, attend};
use feed::Feed;
use watcher::Watcher;

/// A browser keeps to the last such time that it was told, also when nobody answers: so never a very short one.
const RETRY_MS: std::ops::RangeInclusive<u64> = 1000..=3000;

/// How often something is written, if only to find out that nobody reads any more.
const QUIET: Duration = Duration::from_secs(3);

/// How often it is asked who types. A sign of typing lasts for several times that.
const LOOK: Duration = Duration::from_secs(1);

/// No stream is given up sooner than this because its reader is slow, however short the beats.
const MIN_PATIENCE: Duration = Duration::from_secs(5);

/// The trigger to `subscribe`.
#[derive(Debug)]
pub enum Subscribe {}

impl Trigger for Subscribe {
    fn leads_to(function: Function<'_>) -> bool {
        matches!(function, Function::Subscribe)
    }

    async fn call(setup: &Setup, call: Call) -> Result<Answer, Error> {
        let Call::Subscribe(asked) = call else { return Err(astray()) };
        open(setup, asked).await
    }
}

/// When a browser whose stream broke comes back: each at another moment, or all would come at once.
pub(crate) fn retry_ms() -> u64 {
    any_of(RETRY_MS)
}

/// Lets in somebody who subscribes, or says why not.
async fn open(setup: &Setup, asked: call::Subscribe) -> Result<Answer, Error> {
    let call::Subscribe { connect, users, conversations, since } = asked;
    let limit = setup.rules.watch_limit;
    // Of people the function says so itself.
    if conversations.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
        return Err(Error::TooMany(limit));
    }
    let (feed, people) = match users.as_slice() {
        [] => (None, Vec::new()),
        users => {
            let (feed, people) = Feed::begin(connect.viewer.as_ref(), users).await?;
            (Some(feed), people)
        }
    };
    let rooms = Rooms { viewer: connect.viewer.clone(), conversations };
    let typing = rooms.look().await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (watcher, snapshot) =
        Watcher::new(people, rooms.conversations.iter().cloned().zip(typing), since, &setup.rules);
    let interval = Duration::from_millis(setup.rules.interval.0);
    let Connect { caller, device, kind, beats, active, .. } = connect;
    let attending = beats.then(|| Attending::new(caller.user.clone(), device, kind, active, interval)).flatten();
    let telling = Telling {
        feed,
        watcher,
        caller,
        first: events::sse_retry(retry_ms()) + &snapshot,
        patience: interval.max(MIN_PATIENCE),
    };
    Ok(Answer::Stream(response(Box::new(move |body| Box::pin(serve(telling, rooms, attending, body))))))
}

fn response(streaming: Streaming) -> Response<Streaming> {
    let mut response = Response::new(streaming);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // For nginx, which would otherwise keep events until there are enough of them.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Resolves when the stream has ended, with how its device leaves; none: without a word.
///
/// What goes on beside the telling ends by this and is not dropped, because a call that was made is waited for: a beat
/// that is still on its way must not come after the farewell.
type Ending = Shared<oneshot::Receiver<Option<Reason>>>;

async fn serve(telling: Telling, rooms: Rooms, attending: Option<Attending>, body: StreamWriter<u8>) {
    let (ended, ending) = oneshot::channel();
    let ending: Ending = ending.shared();
    let (heard, typing) = mpsc::channel(1);
    let tell = async {
        let farewell = telling.run(typing, body).await;
        // Where nobody attends, nobody listens to it.
        let _ = ended.send(farewell);
    };
    let keep = async {
        if let Some(attending) = attending {
            attend(attending, ending.clone()).await;
        }
    };
    join3(tell, keep, rooms.follow(heard, ending.clone())).await;
}

/// The conversations of a stream, and through whose eyes they are seen.
struct Rooms {
    viewer: Option<UserId>,
    conversations: Vec<ConversationId>,
}

impl Rooms {
    /// Who types now, in the order of the conversations.
    async fn look(&self) -> Result<Vec<Room>, Error> {
        if self.conversations.is_empty() {
            return Ok(Vec::new());
        }
        typists(self.viewer.as_ref(), &self.conversations).await
    }

    /// Looks again and again, until the stream ends.
    async fn follow(&self, mut heard: mpsc::Sender<Vec<(ConversationId, Room)>>, mut ending: Ending) {
        if self.conversations.is_empty() {
            return;
        }
        while let Either::Right(_) = select(&mut ending, pin!(wait(LOOK))).await {
            // What cannot be had now, or not be told yet, is asked again in a moment.
            if let Ok(rooms) = self.look().await {
                let _ = heard.try_send(self.conversations.iter().cloned().zip(rooms).collect());
            }
        }
    }
}

/// The telling of one stream.
struct Telling {
    feed: Option<Feed>,
    watcher: Watcher,
    caller: Caller,
    /// What it begins with.
    first: String,
    /// How long a reader may take for what was written.
    patience: Duration,
}

/// What a stream has to deal with.
enum Happening {
    /// People changed.
    Changed(Vec<Update>),
    /// Who types now.
    Typing(Vec<(ConversationId, Room)>),
    /// The changes ended, and could not be had again.
    Failed(Error),
    /// Nothing else happened, perhaps.
    Quiet,
}

/// Why a stream ends.
enum End {
    /// Nobody reads it.
    Gone,
    /// The token did.
    TokenExpired,
    /// The store is away: come back after so many milliseconds at the earliest.
    Away(u32),
}

impl Telling {
    /// Tells until the end, and says it. Answers how the device leaves; none: without a word.
    async fn run(
        mut self,
        typing: mpsc::Receiver<Vec<(ConversationId, Room)>>,
        mut body: StreamWriter<u8>,
    ) -> Option<Reason> {
        match self.tell(typing, &mut body).await {
            End::Gone => Some(Reason::Dropped),
            End::TokenExpired => {
                let close = events::sse(events::CLOSE, None, &events::close(Close::TokenExpired));
                let _ = self.write(&mut body, close).await;
                Some(Reason::Dropped)
            }
            // It is not the client that went: its device has all its time to come back.
            End::Away(after_ms) => {
                let after_ms = u64::from(after_ms).saturating_add(retry_ms());
                let reconnect = events::sse(events::RECONNECT, None, &events::reconnect(after_ms));
                let _ = self.write(&mut body, events::sse_retry(after_ms) + &reconnect).await;
                None
            }
        }
    }

    async fn tell(&mut self, typing: mpsc::Receiver<Vec<(ConversationId, Room)>>, body: &mut StreamWriter<u8>) -> End {
        let mut happenings =
            select_all([changes(self.feed.take()), typing.map(Happening::Typing).boxed_local(), quiet()]);
        let mut text = std::mem::take(&mut self.first);
        loop {
            if !text.is_empty() && self.write(body, text).await.is_err() {
                return End::Gone;
            }
            text = match happenings.next().await {
                Some(Happening::Changed(updates)) => self.watcher.changed(updates),
                Some(Happening::Typing(rooms)) => self.watcher.typing(rooms),
                Some(Happening::Quiet) if self.is_expired() => return End::TokenExpired,
                Some(Happening::Quiet) => events::SSE_COMMENT.to_owned(),
                Some(Happening::Failed(Error::Unavailable(after_ms))) => return End::Away(after_ms),
                Some(Happening::Failed(error)) => {
                    logged(error);
                    return End::Away(0);
                }
                None => return End::Away(0),
            };
        }
    }

    fn is_expired(&self) -> bool {
        self.caller.expires_at.is_some_and(|at| at.saturating_add(LEEWAY_S) <= unix_now())
    }

    /// Whoever takes nothing for so long is as good as gone.
    async fn write(&self, body: &mut StreamWriter<u8>, text: String) -> Result<(), Gone> {
        match within(self.patience, body.write_all(text.into_bytes())).await {
            Some(unread) if unread.is_empty() => Ok(()),
            Some(_) | None => Err(Gone),
        }
    }
}

/// Nobody reads any more.
struct Gone;

/// What changes, until it cannot be had any more.
fn changes(feed: Option<Feed>) -> LocalBoxStream<'static, Happening> {
    let next = |feed: Option<Feed>| async move {
        let mut feed = feed?;
        match feed.next().await {
            Ok(updates) => Some((Happening::Changed(updates), Some(feed))),
            Err(error) => Some((Happening::Failed(error), None)),
        }
    };
    stream::unfold(feed, next).boxed_local()
}

fn quiet() -> LocalBoxStream<'static, Happening> {
    let next = |()| async {
        wait(QUIET).await;
        Some((Happening::Quiet, ()))
    };
    stream::unfold((), next).boxed_local()
}
