//! `rollcall watch`: users' states in a terminal as they change, over a WebSocket.
//!
//! Watching sends no heartbeat. A broken connection is made again with exponential backoff and jitter, and resumes, so that
//! only what changed meanwhile is shown.

mod view;

use std::io;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use rollcall_api::{Close, events};
use rollcall_core::{ConversationId, UserId};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, interval, timeout};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::interrupted;
use super::remote::{Remote, RemoteArgs, RemoteError, Socket};
use view::View;

/// The path: watching sends no heartbeat.
const PATH: &str = "/v1/socket?watch_only=true";

/// The first and the longest pause before connecting again. It doubles each time, less up to half as jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Silence after which the host is pinged, and after as much again the connection is closed.
const SILENCE: Duration = Duration::from_secs(20);

/// How often the screen is redrawn without a change, because it shows elapsed times.
const REDRAW: Duration = Duration::from_secs(1);

/// The arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The users to watch
    #[arg(value_name = "USER", required_unless_present = "typing", value_parser = user)]
    pub users: Vec<UserId>,
    /// A conversation whose typists to show; repeatable
    #[arg(long, value_name = "CONVERSATION", value_parser = conversation)]
    pub typing: Vec<ConversationId>,
    /// Print each event as one line of JSON, for scripts
    #[arg(long)]
    pub json: bool,
    /// The host and the caller.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

fn user(text: &str) -> Result<UserId, String> {
    UserId::parse(text).map_err(|invalid| invalid.rule.to_string())
}

fn conversation(text: &str) -> Result<ConversationId, String> {
    ConversationId::parse(text).map_err(|invalid| invalid.rule.to_string())
}

/// Why a connection ended.
enum End {
    /// The host refused or is unavailable.
    RemoteError(RemoteError),
    /// The host stops, and says when to reconnect.
    After(Duration),
    /// Standard output is closed.
    Output(io::Error),
}

impl From<RemoteError> for End {
    fn from(trouble: RemoteError) -> Self {
        Self::RemoteError(trouble)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Watches until a signal arrives or the host refuses.
pub async fn watch(args: &WatchArgs) -> Result<()> {
    let remote = Remote::new(&args.remote)?;
    let mut view = View::open(args).context("cannot write to standard output")?;
    let watched = tokio::select! {
        watched = keep_watching(&remote, args, &mut view) => watched,
        interrupted = interrupted() => interrupted.map_err(anyhow::Error::from),
    };
    // Standard output may be closed.
    let _ = view.close();
    watched
}

async fn keep_watching(remote: &Remote, args: &WatchArgs, view: &mut View) -> Result<()> {
    let (mut since, mut pause) = (None, FIRST_PAUSE);
    loop {
        let (before, wait) = (since.clone(), pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        let wait = match follow(remote, args, &mut since, view).await {
            End::RemoteError(trouble @ RemoteError::Refused(_)) => return Err(trouble.into()),
            End::RemoteError(RemoteError::Unavailable(said)) => {
                view.lost(&said);
                wait
            }
            End::After(after) => {
                view.lost("the host is stopping; reconnecting");
                after
            }
            // A closed pipe is no failure.
            End::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            End::Output(error) => return Err(error).context("cannot write to standard output"),
        };
        pause = if since == before { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        wait_drawing(wait, view).await.context("cannot write to standard output")?;
    }
}

async fn wait_drawing(wait: Duration, view: &mut View) -> io::Result<()> {
    let mut redraw = interval(REDRAW);
    let draw = async {
        loop {
            redraw.tick().await;
            view.draw()?;
        }
    };
    timeout(wait, draw).await.unwrap_or(Ok(()))
}

/// One connection, until it ends.
async fn follow(remote: &Remote, args: &WatchArgs, since: &mut Option<String>, view: &mut View) -> End {
    let mut socket = match remote.socket(PATH).await {
        Ok(socket) => socket,
        Err(trouble) => return trouble.into(),
    };
    let users: Vec<&str> = args.users.iter().map(UserId::as_str).collect();
    let conversations: Vec<&str> = args.typing.iter().map(ConversationId::as_str).collect();
    let mut watch = json!({ "op": "watch", "users": users, "conversations": conversations, "ref": 1 });
    if let (Some(id), Some(fields)) = (&*since, watch.as_object_mut()) {
        fields.insert("since".to_owned(), json!(id));
    }
    if let Err(error) = socket.send(Message::text(watch.to_string())).await {
        return broke(error);
    }
    match listen(&mut socket, since, view).await {
        Ok(end) | Err(end) => end,
    }
}

/// Shows events until the connection ends.
async fn listen(socket: &mut Socket, since: &mut Option<String>, view: &mut View) -> Result<End, End> {
    let mut redraw = interval(REDRAW);
    let mut silence = Silence { since: Instant::now(), asked: false };
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            _ = redraw.tick() => {
                view.draw()?;
                silence.check(socket).await?;
                continue;
            }
        };
        silence = Silence { since: Instant::now(), asked: false };
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Close(frame))) => return Ok(closed(frame.map(|frame| frame.code.into()))),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(broke(error)),
            None => return Err(broke("it was closed without a close frame")),
        };
        let Ok(Value::Object(event)) = serde_json::from_str(&text) else { continue };
        if let Some(end) = take(event, since, view)? {
            return Ok(end);
        }
    }
}

/// Handles an event. Some end the connection.
fn take(mut event: Map<String, Value>, since: &mut Option<String>, view: &mut View) -> Result<Option<End>, End> {
    event.remove("ref");
    if let Some(Value::String(id)) = event.remove("id") {
        *since = Some(id);
    }
    let name = event.get("event").and_then(Value::as_str).unwrap_or_default().to_owned();
    match name.as_str() {
        events::ERROR => return Ok(Some(refused(&Value::Object(event)).into())),
        events::RECONNECT => {
            let after_ms = event.get("after_ms").and_then(Value::as_u64).unwrap_or_default();
            return Ok(Some(End::After(Duration::from_millis(after_ms))));
        }
        events::SNAPSHOT | events::PRESENCE | events::TYPING => view.take(&name, Value::Object(event))?,
        _ => {}
    }
    Ok(None)
}

/// How long nothing was received.
struct Silence {
    since: Instant,
    /// A ping was sent.
    asked: bool,
}

impl Silence {
    /// Pings a silent host, and fails if it stays silent.
    async fn check(&mut self, socket: &mut Socket) -> Result<(), End> {
        match (self.since.elapsed() > SILENCE, self.asked) {
            (false, _) => Ok(()),
            (true, true) => Err(broke("the host does not answer")),
            (true, false) => {
                *self = Self { since: Instant::now(), asked: true };
                socket.send(Message::Ping(Bytes::new())).await.map_err(broke)
            }
        }
    }
}

fn broke(reason: impl std::fmt::Display) -> End {
    End::RemoteError(RemoteError::Unavailable(format!("the connection broke: {reason}")))
}

/// The end after a close frame.
fn closed(code: Option<u16>) -> End {
    if code == Some(Close::TokenExpired.code()) {
        return RemoteError::Refused("the token has expired".to_owned()).into();
    }
    RemoteError::Unavailable("the host closed the connection".to_owned()).into()
}

/// The error of a problem event.
fn refused(problem: &Value) -> RemoteError {
    let status = problem.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    RemoteError::answered(status.unwrap_or(StatusCode::BAD_REQUEST), problem.to_string().as_bytes())
}
