//! Server-sent events: one way, over plain HTTP, for whoever cannot have a WebSocket.

use std::io;

use rollcall_api::Close;
use rollcall_api::events;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::{Protocol, Received};
use crate::http::write_timeout::WriteTimeoutStream;

/// A stream of events.
pub(super) struct EventStream {
    stream: WriteTimeoutStream,
    waiting: String,
    /// What the client has sent although nobody reads it.
    unread_bytes: usize,
}

/// How much a client may send to a stream that nobody reads: pipelined requests, at most.
const MAX_UNREAD_BYTES: usize = 4096;

impl EventStream {
    pub(super) fn new(stream: WriteTimeoutStream) -> Self {
        Self { stream, waiting: String::new(), unread_bytes: 0 }
    }
}

impl Protocol for EventStream {
    const ANSWERS: bool = false;

    fn put(&mut self, event: &str, id: Option<&str>, _reference: Option<u64>, data: &str) {
        self.waiting.push_str(&events::sse(event, id, data));
    }

    async fn flush(&mut self) -> io::Result<()> {
        // What was told is let go, or a busy moment would be paid for in memory for ever.
        let waiting = std::mem::take(&mut self.waiting);
        self.stream.write_all(waiting.as_bytes()).await
    }

    /// Moves the point from which the client resumes, without an event; and finds out whether anybody is there.
    async fn ping(&mut self, id: &str) -> io::Result<()> {
        self.waiting.push_str(&events::sse_id(id));
        self.flush().await
    }

    /// A client has nothing to say here but that it goes.
    async fn receive(&mut self) -> Received {
        let mut nothing = [0; 64];
        loop {
            match self.stream.read(&mut nothing).await {
                Ok(0) | Err(_) => return Received::Gone,
                Ok(_) if self.unread_bytes > MAX_UNREAD_BYTES => return Received::Unwanted(Close::Policy),
                Ok(count) => self.unread_bytes += count,
            }
        }
    }

    async fn reconnect(&mut self, after_ms: u64) -> io::Result<()> {
        self.waiting.push_str(&events::sse_retry(after_ms));
        self.put(events::RECONNECT, None, None, &events::reconnect(after_ms));
        self.flush().await
    }

    async fn close(&mut self, close: Close) {
        // Whoever is gone does not hear why.
        if close != Close::Restart {
            self.put(events::CLOSE, None, None, &events::close(close));
        }
        let _ = self.flush().await;
        let _ = self.stream.shutdown().await;
    }
}
