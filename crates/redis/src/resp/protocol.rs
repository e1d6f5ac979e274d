//! RESP2, the protocol of Redis: encodes commands, and parses replies into flat pieces.
//!
//! Bytes come in chunks of any size. The parsed part of a reply is kept, so that a long reply is not parsed again with
//! every chunk.

use crate::keyspace::Commands;
use crate::transport::{CommandReply, OwnedPiece};
use thiserror::Error as ThisError;

/// The longest line; error lines are far shorter.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The longest single value: ours are below a megabyte, and an instance has to hold it.
const MAX_VALUE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that are not RESP.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("it does not speak RESP: {0}")]
pub(crate) struct ProtocolError(&'static str);

/// Encoded commands and the number of replies they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    pub(crate) answers: usize,
}

impl Request {
    pub(crate) fn of(commands: &Commands) -> Self {
        // A beat's commands have four to eight arguments, each with about six bytes of framing.
        let mut bytes = Vec::with_capacity(commands.iter().map(|command| command.bytes() + 48).sum());
        for command in commands.iter() {
            let args = command.args();
            head(&mut bytes, b'*', args.len());
            for arg in args {
                head(&mut bytes, b'$', arg.len());
                bytes.extend_from_slice(arg);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        Self { bytes, answers: commands.len() }
    }
}

fn head(bytes: &mut Vec<u8>, sort: u8, count: usize) {
    bytes.push(sort);
    bytes.extend_from_slice(count.to_string().as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

/// Parses replies.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    bytes: Vec<u8>,
    /// How many of the bytes were parsed.
    read: usize,
    reply: Option<Unfinished>,
}

/// A reply that is not complete yet.
#[derive(Debug)]
struct Unfinished {
    pieces: Vec<OwnedPiece>,
    /// The first error in it, which replaces the whole reply.
    error: Option<String>,
    /// How many values are missing.
    missing: usize,
}

/// One value, or the head of an array.
enum Value<'a> {
    Piece(OwnedPiece),
    Error(&'a [u8]),
    Several(usize),
}

impl Parser {
    /// Takes more bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next reply; `None` if more bytes are needed. After an error nothing that follows can be parsed.
    pub(crate) fn next(&mut self) -> Result<Option<CommandReply>, ProtocolError> {
        loop {
            let rest = self.bytes.get(self.read..).unwrap_or_default();
            let Some((value, length)) = value(rest)? else { return Ok(None) };
            self.read += length;
            let mut reply = self.reply.take().unwrap_or(Unfinished { pieces: Vec::new(), error: None, missing: 1 });
            reply.missing = reply.missing.saturating_sub(1);
            match value {
                Value::Piece(piece) => reply.pieces.push(piece),
                Value::Error(text) => {
                    reply.error.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
                }
                Value::Several(count) => {
                    let missing = reply.missing.checked_add(count);
                    reply.missing = missing.ok_or(ProtocolError("an array that is too long"))?;
                }
            }
            if reply.missing == 0 {
                return Ok(Some(reply.error.map_or(CommandReply::Pieces(reply.pieces), CommandReply::Error)));
            }
            self.reply = Some(reply);
        }
    }
}

/// The first value in the bytes and its length; `None` if it is incomplete.
fn value(bytes: &[u8]) -> Result<Option<(Value<'_>, usize)>, ProtocolError> {
    let Some((line, after)) = line(bytes)? else { return Ok(None) };
    let Some((sort, text)) = line.split_first() else { return Err(ProtocolError("an empty line")) };
    let whole = |value| Ok(Some((value, after)));
    match sort {
        b'+' => whole(Value::Piece(OwnedPiece::Bytes(text.to_vec()))),
        b'-' => whole(Value::Error(text)),
        b':' => whole(Value::Piece(OwnedPiece::Int(number(text)?))),
        b'*' => match number(text)? {
            -1 => whole(Value::Piece(OwnedPiece::Nil)),
            count => whole(Value::Several(
                usize::try_from(count).map_err(|_| ProtocolError("an array with a negative length"))?,
            )),
        },
        b'$' => match number(text)? {
            -1 => whole(Value::Piece(OwnedPiece::Nil)),
            length => bulk(bytes, after, length),
        },
        _ => Err(ProtocolError("a value of an unknown type")),
    }
}

/// A value of this length that starts at this place.
fn bulk(bytes: &[u8], start: usize, length: i64) -> Result<Option<(Value<'_>, usize)>, ProtocolError> {
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_VALUE_BYTES);
    let end = start + length.ok_or(ProtocolError("a value with a negative or too large length"))?;
    let (Some(value), Some(ending)) = (bytes.get(start..end), bytes.get(end..end + 2)) else { return Ok(None) };
    if ending != b"\r\n" {
        return Err(ProtocolError("a value longer than its length"));
    }
    Ok(Some((Value::Piece(OwnedPiece::Bytes(value.to_vec())), end + 2)))
}

/// The first line in the bytes and where the next one starts; `None` if it is incomplete.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, ProtocolError> {
    let near = bytes.get(..MAX_LINE_BYTES).unwrap_or(bytes);
    match near.windows(2).position(|two| two == b"\r\n") {
        Some(end) => Ok(near.get(..end).map(|line| (line, end + 2))),
        None if near.len() == MAX_LINE_BYTES => Err(ProtocolError("a line that is too long")),
        None => Ok(None),
    }
}

fn number(text: &[u8]) -> Result<i64, ProtocolError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or(ProtocolError("an invalid number"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn bytes(text: &str) -> OwnedPiece {
        OwnedPiece::Bytes(text.as_bytes().to_vec())
    }

    /// One reply of every kind, and the parsed form.
    fn everything() -> (Vec<u8>, Vec<CommandReply>) {
        let sent = b"+OK\r\n:-7\r\n$-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*-1\r\n*0\r\n-NOSCRIPT No matching script\r\n\
            *3\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n+y\r\n*2\r\n:1\r\n-ERR inside\r\n+end\r\n";
        let pieces = |pieces: &[OwnedPiece]| CommandReply::Pieces(pieces.to_vec());
        let meant = vec![
            pieces(&[bytes("OK")]),
            pieces(&[OwnedPiece::Int(-7)]),
            pieces(&[OwnedPiece::Nil]),
            pieces(&[bytes("")]),
            pieces(&[bytes("a\r\nb")]),
            pieces(&[OwnedPiece::Nil]),
            pieces(&[]),
            CommandReply::Error("NOSCRIPT No matching script".to_owned()),
            pieces(&[OwnedPiece::Int(1), bytes("x"), OwnedPiece::Nil, bytes("y")]),
            CommandReply::Error("ERR inside".to_owned()),
            pieces(&[bytes("end")]),
        ];
        (sent.to_vec(), meant)
    }

    fn read(parser: &mut Parser) -> Vec<CommandReply> {
        std::iter::from_fn(|| parser.next().unwrap()).collect()
    }

    #[test]
    fn commands_encode_as_arrays_of_bytes() {
        let mut commands = Commands::default();
        commands.begin("PING");
        commands.begin("SET").text("k").arg(b"\r\n\0");
        let question = Request::of(&commands);
        assert_eq!(question.answers, 2);
        assert_eq!(question.bytes, b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n\r\n\0\r\n");
    }

    #[test]
    fn replies_are_flat() {
        let (sent, meant) = everything();
        let mut parser = Parser::default();
        parser.feed(&sent);
        assert_eq!(read(&mut parser), meant);
    }

    #[test]
    fn chunk_size_does_not_change_replies() {
        let (sent, meant) = everything();
        for size in 1..sent.len() {
            let mut parser = Parser::default();
            let mut replies = Vec::new();
            for part in sent.chunks(size) {
                parser.feed(part);
                replies.extend(read(&mut parser));
            }
            assert_eq!(replies, meant, "in parts of {size}");
        }
    }

    #[test]
    fn invalid_bytes_are_refused_at_once() {
        let long = vec![b'+'; MAX_LINE_BYTES];
        for bad in [
            &b"\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\n",
            b":x\r\n",
            b":99999999999999999999\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$1\r\nabc",
            b"*-3\r\n",
            b"*x\r\n",
            b"%1\r\n",
            b"*2\r\n*9223372036854775807\r\n*9223372036854775807\r\n*9223372036854775807\r\n",
            &long,
        ] {
            let mut parser = Parser::default();
            parser.feed(bad);
            assert!(parser.next().is_err(), "{:?}", String::from_utf8_lossy(bad).get(..20));
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        // A small generator of its own: many inputs, and the same ones each time.
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut parser = Parser::default();
            let noise: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let pick = (state >> 33) as usize;
                    *b"+-:$*\r\n\r\n0123-1x".get(pick % 16).unwrap()
                })
                .collect();
            for part in noise.chunks(5) {
                parser.feed(part);
                while let Ok(Some(_)) = parser.next() {}
            }
        }
    }
}
