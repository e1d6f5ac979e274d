//! Server-sent events: one way, over plain HTTP, for clients without WebSockets.

use std::io;

use rollcall_api::Close;
use rollcall_api::events;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::{Protocol, Received};
use crate::http::write_timeout::WriteTimeoutStream;

/// An event stream.
pub(super) struct EventStream {
    stream: WriteTimeoutStream,
    queued: String,
    /// How much the client has sent, which is ignored.
    unread_bytes: usize,
}

/// How much ignored data a client may send: pipelined requests, at most.
const MAX_UNREAD_BYTES: usize = 4096;

impl EventStream {
    pub(super) fn new(stream: WriteTimeoutStream) -> Self {
        Self { stream, queued: String::new(), unread_bytes: 0 }
    }
}

impl Protocol for EventStream {
    const ANSWERS: bool = false;

    fn put(&mut self, event: &str, id: Option<&str>, _reference: Option<u64>, data: &str) {
        self.queued.push_str(&events::sse(event, id, data));
    }

    async fn flush(&mut self) -> io::Result<()> {
        // The buffer is freed, or one busy moment would cost memory for good.
        let queued = std::mem::take(&mut self.queued);
        self.stream.write_all(queued.as_bytes()).await
    }

    /// Sends the resume id without an event. The write also detects a dead client.
    async fn ping(&mut self, id: &str) -> io::Result<()> {
        self.queued.push_str(&events::sse_id(id));
        self.flush().await
    }

    /// A client can only close this stream.
    async fn receive(&mut self) -> Received {
        let mut nothing = [0; 64];
        loop {
            match self.stream.read(&mut nothing).await {
                Ok(0) | Err(_) => return Received::Gone,
                Ok(_) if self.unread_bytes > MAX_UNREAD_BYTES => return Received::Violation(Close::Policy),
                Ok(count) => self.unread_bytes += count,
            }
        }
    }

    async fn reconnect(&mut self, after_ms: u64) -> io::Result<()> {
        self.queued.push_str(&events::sse_retry(after_ms));
        self.put(events::RECONNECT, None, None, &events::reconnect(after_ms));
        self.flush().await
    }

    async fn close(&mut self, close: Close) {
        // A restart is announced by `reconnect`.
        if close != Close::Restart {
            self.put(events::CLOSE, None, None, &events::close(close));
        }
        let _ = self.flush().await;
        let _ = self.stream.shutdown().await;
    }
}
