//! A minimal parser of HTTP responses, server-sent events and WebSocket frames. It never blocks, and buffers only an
//! incomplete frame.

use crate::watcher::Protocol;

/// Any valid key: the accept header is not checked.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// No masking: there is no proxy.
const MASK: [u8; 4] = [0; 4];

/// A parsed piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The status of the response.
    Head(u16),
    /// An event, with its framing.
    Event(&'a str),
    /// A ping, to be answered with the same payload.
    Ping(&'a [u8]),
    /// A close frame, with its code.
    Close(u16),
}

/// Parses the bytes of one connection.
#[derive(Debug)]
pub struct Reader {
    protocol: Protocol,
    begun: bool,
    rest: Vec<u8>,
}

impl Reader {
    /// A parser at the start of the response.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, begun: false, rest: Vec::new() }
    }

    /// Whether the response head has arrived.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Adds bytes and passes on every complete piece.
    pub fn take(&mut self, bytes: &[u8], mut piece: impl FnMut(Piece<'_>)) {
        let mut whole = std::mem::take(&mut self.rest);
        let bytes = if whole.is_empty() {
            bytes
        } else {
            whole.extend_from_slice(bytes);
            &whole
        };
        let mut from = 0;
        while let Some(length) = self.one(&bytes[from..], &mut piece) {
            from += length;
        }
        self.rest = bytes[from..].to_vec();
    }

    /// Parses one piece and returns its length; `None` if it is incomplete.
    fn one(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Option<usize> {
        if !self.begun {
            let length = end_of(bytes, b"\r\n\r\n")?;
            self.begun = true;
            let head = String::from_utf8_lossy(&bytes[..length]);
            piece(Piece::Head(head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)));
            return Some(length);
        }
        match self.protocol {
            Protocol::Events => {
                let length = end_of(bytes, b"\n\n")?;
                let text = std::str::from_utf8(&bytes[..length]).expect("text");
                if text.contains("data: ") {
                    piece(Piece::Event(text));
                }
                Some(length)
            }
            Protocol::Socket => {
                let (code, payload, length) = frame(bytes)?;
                match code {
                    1 => piece(Piece::Event(std::str::from_utf8(payload).expect("text"))),
                    8 => piece(Piece::Close(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)))),
                    9 => piece(Piece::Ping(payload)),
                    _ => {}
                }
                Some(length)
            }
        }
    }
}

/// The first frame of a server: opcode, payload and total length; `None` if it is incomplete.
pub fn frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (length, at) = match second {
        126 => (u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize, 4),
        127 => (u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?) as usize, 10),
        length => (length as usize, 2),
    };
    let payload = bytes.get(at..at + length)?;
    Some((first & 15, payload, at + length))
}

/// A client's frame.
pub fn masked(code: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | code];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload);
    frame
}

/// The request that opens a connection.
pub fn opening(protocol: Protocol, address: &str, path: &str) -> String {
    let upgrade = match protocol {
        Protocol::Events => String::new(),
        Protocol::Socket => format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
        ),
    };
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{upgrade}\r\n")
}

/// Where the first of these ends.
fn end_of(bytes: &[u8], end: &[u8]) -> Option<usize> {
    bytes.windows(end.len()).position(|window| window == end).map(|at| at + end.len())
}

/// The event's name, in either framing.
pub(super) fn word(text: &str) -> &str {
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest);
    match text.strip_prefix(r#"{"event":""#) {
        Some(rest) => rest.split('"').next().unwrap_or_default(),
        None => after("event: ").and_then(|rest| rest.lines().next()).unwrap_or_default(),
    }
}

/// The last number that follows this.
pub(super) fn number(text: &str, mark: &str) -> Option<u64> {
    let rest = &text[text.rfind(mark)? + mark.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(protocol: Protocol, bytes: &[u8], step: usize) -> Vec<String> {
        let mut reader = Reader::new(protocol);
        let mut pieces = Vec::new();
        for part in bytes.chunks(step) {
            reader.take(part, |piece| pieces.push(format!("{piece:?}")));
        }
        assert!(reader.rest.is_empty() && reader.has_begun());
        pieces
    }

    #[test]
    fn split_input_parses_like_whole_input() {
        let events = b"HTTP/1.1 200 OK\r\na: b\r\n\r\nevent: presence\nid: 1\ndata: {\"version\":7}\n\nid: 2\n\n:\n\n";
        let mut frames = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x02{}\x89\x01x".to_vec();
        frames.extend([0x81, 126, 1, 0]);
        frames.extend([b'y'; 256]);
        frames.extend([0x88, 2, 0x03, 0xf4]);
        for (protocol, bytes) in [(Protocol::Events, &events[..]), (Protocol::Socket, &frames[..])] {
            let whole = pieces(protocol, bytes, bytes.len());
            assert_eq!(whole.len(), if protocol == Protocol::Events { 2 } else { 5 }, "{whole:?}");
            for step in 1..10 {
                assert_eq!(pieces(protocol, bytes, step), whole);
            }
        }
    }

    #[test]
    fn names_and_numbers_parse_in_both_framings() {
        let (sse, socket) = ("event: typing\nid: 1\ndata: {}\n\n", r#"{"event":"presence","id":"9","version":12}"#);
        assert_eq!((word(sse), word(socket)), ("typing", "presence"));
        assert_eq!((number(sse, "\"version\":"), number(socket, "\"version\":")), (None, Some(12)));
    }
}
