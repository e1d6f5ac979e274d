//! A client of server-sent events on a plain TCP stream, like a browser's `EventSource`.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::time::Duration;

use serde_json::Value;

use crate::watcher::{Ending, EventQueue, Incoming, ResumePoint, WatchEvent};
use crate::{Answer, Host};

/// Deadline for the response head.
const ANSWER: Duration = Duration::from_secs(20);

/// A subscription. Dropping it breaks its connection.
#[derive(Debug)]
pub struct Stream {
    events: EventQueue,
    socket: TcpStream,
}

impl Stream {
    /// Subscribes as this user, with a query such as `users=bob,carol`.
    pub fn subscribe(host: &Host, user: &str, query: &str) -> Self {
        Self::try_subscribe(host, user, query)
            .unwrap_or_else(|answer| panic!("{user} may not subscribe to {query}: {} {}", answer.status, answer.text))
    }

    /// Subscribes as this user, or returns the refusal.
    pub fn try_subscribe(host: &Host, user: &str, query: &str) -> std::result::Result<Self, Answer> {
        Self::get(host.address(), &format!("/v1/subscribe?{query}"), &[("Rollcall-User", user)])
    }

    /// Requests a path with these headers; an answer that is no event stream is a refusal.
    pub fn get(address: &str, path: &str, headers: &[(&str, &str)]) -> std::result::Result<Self, Answer> {
        Self::ask(address, path, headers).unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    fn ask(address: &str, path: &str, headers: &[(&str, &str)]) -> Result<std::result::Result<Self, Answer>> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(ANSWER))?;
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").as_bytes())?;
        let mut reader = BufReader::new(socket.try_clone()?);
        let answer = head(&mut reader)?;
        if answer.header("content-type") != Some("text/event-stream") {
            return Ok(Err(with_body(answer, &mut reader)?));
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        socket.set_read_timeout(None)?;
        let (sender, resume_point, events) = EventQueue::new();
        std::thread::spawn(move || {
            let _ = follow(&mut reader, &sender, &resume_point);
            let _ = sender.send(Incoming::Ended(Ending::Broken));
        });
        Ok(Ok(Self { events, socket }))
    }
}

/// The status and the headers.
fn head(reader: &mut impl BufRead) -> Result<Answer> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("no status: {line:?}")))?;
    let mut answer = Answer { status, json: Value::Null, text: String::new(), headers: Vec::new() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => answer.headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Ok(answer),
        }
    }
}

fn with_body(mut answer: Answer, reader: &mut impl Read) -> Result<Answer> {
    let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    answer.text = String::from_utf8_lossy(&bytes).into_owned();
    answer.json = serde_json::from_str(&answer.text).unwrap_or(Value::Null);
    Ok(answer)
}

/// Reads events as the HTML standard defines them, to the end of the stream.
fn follow(reader: &mut impl BufRead, incoming: &Sender<Incoming>, resume_point: &Mutex<ResumePoint>) -> Result<()> {
    let (mut event, mut data) = (String::new(), String::new());
    for line in reader.lines() {
        let line = line?;
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut event),
            "data" => data.push_str(value),
            "id" => resume_point.lock().expect("a lock").last_id = Some(value.to_owned()),
            "retry" => resume_point.lock().expect("a lock").retry_ms = value.parse().ok(),
            "" if line.is_empty() && !data.is_empty() => {
                let id = resume_point.lock().expect("a lock").last_id.clone();
                let json = serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
                // The receiver may be gone.
                let _ = incoming.send(Incoming::Event(WatchEvent::new(&event, id.as_deref(), None, json)));
                event.clear();
                data.clear();
            }
            _ => {}
        }
    }
    Ok(())
}

impl Deref for Stream {
    type Target = EventQueue;

    fn deref(&self) -> &EventQueue {
        &self.events
    }
}

impl DerefMut for Stream {
    fn deref_mut(&mut self) -> &mut EventQueue {
        &mut self.events
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
