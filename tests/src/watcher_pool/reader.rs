//! Just enough HTTP, server-sent events and WebSocket to be told something. Nothing here waits, and nothing is kept but the
//! beginning of what has not come as a whole.

use crate::watcher::Transport;

/// Any key does: nobody here checks that it was understood.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Any mask does: it is for proxies, and there is none.
const MASK: [u8; 4] = [0; 4];

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The status of the answer.
    Head(u16),
    /// An event, as it is framed.
    Event(&'a str),
    /// A ping, to be answered with the same.
    Ping(&'a [u8]),
    /// The host's closed, by its code.
    Close(u16),
}

/// Reads what comes on one connection.
#[derive(Debug)]
pub struct Reader {
    transport: Transport,
    begun: bool,
    rest: Vec<u8>,
}

impl Reader {
    /// One that waits for the answer's head.
    pub fn new(transport: Transport) -> Self {
        Self { transport, begun: false, rest: Vec::new() }
    }

    /// Whether the head has come.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Takes bytes and hands on what is whole.
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

    /// Takes one piece, and answers how long it was; none: it is not there yet.
    fn one(&mut self, bytes: &[u8], piece: &mut impl FnMut(Piece<'_>)) -> Option<usize> {
        if !self.begun {
            let length = end_of(bytes, b"\r\n\r\n")?;
            self.begun = true;
            let head = String::from_utf8_lossy(&bytes[..length]);
            piece(Piece::Head(head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)));
            return Some(length);
        }
        match self.transport {
            Transport::Events => {
                let length = end_of(bytes, b"\n\n")?;
                let text = std::str::from_utf8(&bytes[..length]).expect("text");
                if text.contains("data: ") {
                    piece(Piece::Event(text));
                }
                Some(length)
            }
            Transport::Socket => {
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

/// The first frame of a server: what it is, what is in it, and how long it is as a whole; none: it is not there yet.
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

/// The request by which a connection is opened.
pub fn opening(transport: Transport, address: &str, path: &str) -> String {
    let upgrade = match transport {
        Transport::Events => String::new(),
        Transport::Socket => format!(
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

    fn pieces(transport: Transport, bytes: &[u8], step: usize) -> Vec<String> {
        let mut reader = Reader::new(transport);
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
        for (transport, bytes) in [(Transport::Events, &events[..]), (Transport::Socket, &frames[..])] {
            let whole = pieces(transport, bytes, bytes.len());
            assert_eq!(whole.len(), if transport == Transport::Events { 2 } else { 5 }, "{whole:?}");
            for step in 1..10 {
                assert_eq!(pieces(transport, bytes, step), whole);
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
