//! A blocking WebSocket client, with a thread that reads and answers pings.

use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::mpsc::Sender;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::{IntoClientRequest, client};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::watcher::{Ending, EventQueue, Incoming, ResumePoint, WatchEvent};
use crate::{Answer, Host};

/// A socket. Dropping it breaks the connection without a close frame.
#[derive(Debug)]
pub struct Socket {
    events: EventQueue,
    /// Only writes; the thread has a second one that reads, and answers pings and closes.
    writer: WebSocket<TcpStream>,
    references: u64,
}

impl Socket {
    /// Opens a socket as this user, with a query such as `device=tab&watch_only=true`.
    pub fn open(host: &Host, user: &str, query: &str) -> Self {
        let opened = Self::get(host.address(), &format!("/v1/socket?{query}"), &[("Rollcall-User", user)]);
        opened.unwrap_or_else(|answer| panic!("{user} may not open a socket: {} {}", answer.status, answer.text))
    }

    /// Opens a socket at a path with these headers, or returns the refusal.
    pub fn get(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<Self, Answer> {
        let mut request = format!("ws://{address}{path}").into_client_request().expect("a request");
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let stream = TcpStream::connect(address).expect("a host that listens");
        stream.set_nodelay(true).expect("a socket");
        let reader = match client(request, stream) {
            Ok((reader, _)) => reader,
            Err(HandshakeError::Failure(Error::Http(refusal))) => return Err(refused(*refusal)),
            Err(error) => panic!("{path}: {error}"),
        };
        let stream = reader.get_ref().try_clone().expect("a socket");
        let (sender, resume_point, events) = EventQueue::new();
        std::thread::spawn(move || {
            let ending = follow(reader, &sender, &resume_point);
            let _ = sender.send(Incoming::Ended(ending));
        });
        Ok(Self { events, writer: WebSocket::from_raw_socket(stream, Role::Client, None), references: 0 })
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        self.say(Message::text(message.to_string()));
    }

    /// Sends any frame. Errors are ignored: the host may have closed the connection.
    pub fn say(&mut self, message: Message) {
        let _ = self.writer.send(message);
    }

    /// Sends a message and waits for its answer.
    pub fn ask(&mut self, message: &Value) -> WatchEvent {
        self.references += 1;
        let mut message = message.clone();
        message["ref"] = json!(self.references);
        self.send(&message);
        self.events.answer(self.references)
    }

    /// Sends a message that must be answered with `done`.
    pub fn done(&mut self, message: &Value) {
        let answer = self.ask(message);
        assert_eq!((answer.event.as_str(), &answer.data), ("done", &json!({})), "{message}");
    }

    /// Sends a message that must be answered with `error`; returns the error.
    pub fn refused(&mut self, message: &Value) -> Value {
        let answer = self.ask(message);
        assert_eq!(answer.event, "error", "{message}: {answer:?}");
        answer.data
    }
}

fn refused(refusal: tokio_tungstenite::tungstenite::http::Response<Option<Vec<u8>>>) -> Answer {
    let headers = refusal.headers().iter();
    let headers = headers.map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_owned())).collect();
    let body = refusal.body().clone().unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status: refusal.status().as_u16(), json, text, headers }
}

fn follow(mut reader: WebSocket<TcpStream>, incoming: &Sender<Incoming>, resume_point: &Mutex<ResumePoint>) -> Ending {
    let mut ending = Ending::Broken;
    loop {
        match reader.read() {
            Ok(Message::Text(text)) => {
                let event = parse(&text);
                if event.id.is_some() {
                    resume_point.lock().expect("a lock").last_id.clone_from(&event.id);
                }
                // The receiver may be gone.
                let _ = incoming.send(Incoming::Event(event));
            }
            Ok(Message::Close(Some(frame))) => {
                ending = Ending::Closed { code: frame.code.into(), reason: frame.reason.to_string() };
            }
            Ok(_) => {}
            Err(_) => return ending,
        }
    }
}

/// Parses an event: its name, its id and the `ref` it answers are fields beside those of its object.
fn parse(text: &str) -> WatchEvent {
    let mut data: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let fields = data.as_object_mut().unwrap_or_else(|| panic!("no object: {text}"));
    let event = fields.remove("event").unwrap_or_else(|| panic!("no event: {text}"));
    let (id, reference) = (fields.remove("id"), fields.remove("ref"));
    let (id, reference) = (id.as_ref().and_then(Value::as_str), reference.as_ref().and_then(Value::as_u64));
    WatchEvent::new(event.as_str().expect("a name"), id, reference, data)
}

impl Deref for Socket {
    type Target = EventQueue;

    fn deref(&self) -> &EventQueue {
        &self.events
    }
}

impl DerefMut for Socket {
    fn deref_mut(&mut self) -> &mut EventQueue {
        &mut self.events
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.writer.get_ref().shutdown(Shutdown::Both);
    }
}
