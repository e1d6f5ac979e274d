//! WebSockets.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use rollcall_api::{Close, MAX_MESSAGE_BYTES, events};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as SocketError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::connection::{Protocol, Received};
use crate::http::write_timeout::WriteTimeoutStream;

/// The read buffer of an idle socket. It grows with a message.
const READ_BUFFER_BYTES: usize = 512;

/// How long the client may take to answer a close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A WebSocket.
pub(super) struct Socket {
    socket: WebSocketStream<WriteTimeoutStream>,
    /// Serialised frames. The library's own buffer would stay as large as the largest write.
    queued: Vec<u8>,
}

impl Socket {
    /// A socket after its handshake; `read` are bytes received after it.
    pub(super) async fn new(stream: WriteTimeoutStream, read: Bytes) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let socket = WebSocketStream::from_partially_read(stream, read.to_vec(), Role::Server, Some(config)).await;
        Self { socket, queued: Vec::new() }
    }

    fn frame(&mut self, frame: Frame) {
        // Writing to memory cannot fail.
        let _ = frame.format(&mut self.queued);
    }
}

impl Protocol for Socket {
    const ANSWERS: bool = true;

    fn put(&mut self, event: &str, id: Option<&str>, reference: Option<u64>, data: &str) {
        let text = events::socket(event, id, reference, data);
        self.frame(Frame::message(text, OpCode::Data(Data::Text), true));
    }

    async fn flush(&mut self) -> io::Result<()> {
        // The library's frames first, such as a pong. Frames are never interleaved.
        self.socket.flush().await.map_err(broken)?;
        let queued = std::mem::take(&mut self.queued);
        self.socket.get_mut().write_all(&queued).await
    }

    async fn ping(&mut self, _id: &str) -> io::Result<()> {
        self.frame(Frame::ping(Bytes::new()));
        self.flush().await
    }

    async fn receive(&mut self) -> Received {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => Received::Text(text.as_str().to_owned()),
            Some(Ok(Message::Binary(_))) => Received::Violation(Close::Unsupported),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Received::Alive,
            Some(Ok(Message::Close(_))) => {
                // The answering close frame is still queued.
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.socket.flush()).await;
                Received::Gone
            }
            None => Received::Gone,
            Some(Err(SocketError::Capacity(CapacityError::MessageTooLong { .. }))) => {
                Received::Violation(Close::TooBig)
            }
            Some(Err(SocketError::Utf8(_))) => Received::Violation(Close::NotText),
            Some(Err(SocketError::Protocol(error))) => match error {
                ProtocolError::ResetWithoutClosingHandshake => Received::Gone,
                _ => Received::Violation(Close::Protocol),
            },
            Some(Err(_)) => Received::Gone,
        }
    }

    async fn reconnect(&mut self, after_ms: u64) -> io::Result<()> {
        self.put(events::RECONNECT, None, None, &events::reconnect(after_ms));
        self.flush().await
    }

    async fn close(&mut self, close: Close) {
        let _ = self.flush().await;
        let frame = CloseFrame { code: CloseCode::from(close.code()), reason: close.reason().into() };
        // A client that is gone or does not answer is not waited for beyond the timeout.
        let closing = async {
            if self.socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }
}

fn broken(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(error) => error,
        error => io::Error::other(error),
    }
}
