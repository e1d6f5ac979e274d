//! A minimal RESP client: commands out, replies in. No client library, so that a test does not see Redis through the one under
//! test.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A string of any kind, or an error.
    Text(String),
    /// A number.
    Number(i64),
    /// An array.
    List(Vec<Reply>),
    /// Null.
    Nil,
}

impl Reply {
    /// The text; none if it is something else.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::List(_) | Self::Nil => None,
        }
    }
}

/// Sends one command.
pub(crate) fn send(stream: &mut TcpStream, words: &[&str]) -> Result<()> {
    let mut packed = format!("*{}\r\n", words.len());
    for word in words {
        packed.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(packed.as_bytes())
}

/// Reads the next reply.
pub(crate) fn receive(reader: &mut BufReader<TcpStream>) -> Result<Reply> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
    match kind {
        "+" | "-" => Ok(Reply::Text(rest.to_owned())),
        ":" => Ok(Reply::Number(number(rest)?)),
        "$" => match usize::try_from(number(rest)?) {
            Ok(length) => bulk(reader, length),
            Err(_) => Ok(Reply::Nil),
        },
        "*" => (0..number(rest)?).map(|_| receive(reader)).collect::<Result<_>>().map(Reply::List),
        _ => Err(Error::new(ErrorKind::InvalidData, format!("unknown reply type: {line}"))),
    }
}

fn bulk(reader: &mut BufReader<TcpStream>, length: usize) -> Result<Reply> {
    let mut bytes = vec![0; length + "\r\n".len()];
    reader.read_exact(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map(Reply::Text).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

fn number(text: &str) -> Result<i64> {
    text.parse().map_err(|_| Error::new(ErrorKind::InvalidData, format!("not a number: {text}")))
}
