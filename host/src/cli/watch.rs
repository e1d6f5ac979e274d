//! `rollcall watch`: states in a terminal, as they change, by a WebSocket.
//!
//! Looking makes nobody online. A connection that breaks is made again, each time a little later and never at the same
//! moment as everybody else's, and goes on from where it was, so that what changed meanwhile is told and nothing else is.

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
use super::remote::{Remote, RemoteArgs, Socket, Trouble};
use view::View;

/// The path: looking is no sign of life.
const PATH: &str = "/v1/socket?watch_only=true";

/// The first pause before connecting again, and the longest; each is twice the one before, less up to half of it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Silence after which the host is asked whether it is there, and after as much again given up.
const SILENCE: Duration = Duration::from_secs(20);

/// How often what is on a screen is drawn anew although nothing changed: it says how long ago.
const REDRAW: Duration = Duration::from_secs(1);

/// Whom to watch, and how to tell of it.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Whom to watch
    #[arg(value_name = "USER", required_unless_present = "typing", value_parser = user)]
    pub users: Vec<UserId>,
    /// A conversation in which to see who types; repeatable
    #[arg(long, value_name = "CONVERSATION", value_parser = conversation)]
    pub typing: Vec<ConversationId>,
    /// Print each event as one line of JSON, for scripts
    #[arg(long)]
    pub json: bool,
    /// Which host, and who looks.
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
    /// The host refused, or was lost.
    Trouble(Trouble),
    /// The host goes, and says when to come back.
    After(Duration),
    /// Nobody reads what is printed any more.
    Unheard(io::Error),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Unheard(error)
    }
}

/// Watches until the process is told to end, or the host refuses.
pub async fn watch(args: &WatchArgs) -> Result<()> {
    let remote = Remote::new(&args.remote)?;
    let mut view = View::open(args).context("cannot write to standard output")?;
    let watched = tokio::select! {
        watched = keep_watching(&remote, args, &mut view) => watched,
        interrupted = interrupted() => interrupted.map_err(anyhow::Error::from),
    };
    // Whoever read what was printed may have gone: then there is nobody to tell.
    let _ = view.close();
    watched
}

async fn keep_watching(remote: &Remote, args: &WatchArgs, view: &mut View) -> Result<()> {
    let (mut since, mut pause) = (None, FIRST_PAUSE);
    loop {
        let (before, wait) = (since.clone(), pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        let wait = match follow(remote, args, &mut since, view).await {
            End::Trouble(trouble @ Trouble::Refused(_)) => return Err(trouble.into()),
            End::Trouble(Trouble::Away(said)) => {
                view.lost(&said);
                wait
            }
            End::After(after) => {
                view.lost("the host goes, and is asked again in a moment");
                after
            }
            // As with any program whose output is cut off, that is no failure.
            End::Unheard(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            End::Unheard(error) => return Err(error).context("cannot write to standard output"),
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

/// One connection, from its beginning to its end.
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

/// Tells what is heard, until the connection ends.
async fn listen(socket: &mut Socket, since: &mut Option<String>, view: &mut View) -> Result<End, End> {
    let mut redraw = interval(REDRAW);
    let mut silence = Silence { since: Instant::now(), asked: false };
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            _ = redraw.tick() => {
                view.draw()?;
                silence.endure(socket).await?;
                continue;
            }
        };
        silence = Silence { since: Instant::now(), asked: false };
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Close(frame))) => return Ok(closed(frame.map(|frame| frame.code.into()))),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(broke(error)),
            None => return Err(broke("without a word")),
        };
        let Ok(Value::Object(event)) = serde_json::from_str(&text) else { continue };
        if let Some(end) = take(event, since, view)? {
            return Ok(end);
        }
    }
}

/// Takes an event. Some end the connection.
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

/// How long nothing was heard.
struct Silence {
    since: Instant,
    /// The host was asked whether it is there.
    asked: bool,
}

impl Silence {
    /// Asks a host that says nothing for long whether it is there, and gives it up if it says nothing to that either.
    async fn endure(&mut self, socket: &mut Socket) -> Result<(), End> {
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
    End::Trouble(Trouble::Away(format!("the connection broke: {reason}")))
}

/// What the host's last word means.
fn closed(code: Option<u16>) -> End {
    if code == Some(Close::TokenExpired.code()) {
        return Trouble::Refused("the token has expired".to_owned()).into();
    }
    Trouble::Away("the host closed the connection".to_owned()).into()
}

/// What a problem in place of an answer means.
fn refused(problem: &Value) -> Trouble {
    let status = problem.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    Trouble::answered(status.unwrap_or(StatusCode::BAD_REQUEST), problem.to_string().as_bytes())
}
