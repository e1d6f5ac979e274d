//! Replies as every client can provide them: flat lists of nulls, integers and bytes.

use thiserror::Error as ThisError;

/// One piece of a reply. An array is its pieces in order; a status is its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Null.
    Nil,
    /// An integer.
    Int(i64),
    /// Bytes.
    Bytes(&'a [u8]),
}

/// A reply this code cannot have written: other data under our keys, or damaged data.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("unexpected data in Redis: {0}")]
pub struct BadReply(pub &'static str);

impl<'a> Piece<'a> {
    /// Bytes as text; `None` for null.
    pub(crate) fn text(self, what: &'static str) -> Result<Option<&'a str>, BadReply> {
        match self {
            Self::Nil => Ok(None),
            Self::Int(_) => Err(BadReply(what)),
            Self::Bytes(bytes) => std::str::from_utf8(bytes).map(Some).map_err(|_| BadReply(what)),
        }
    }

    /// An integer, also as text.
    pub(crate) fn number(self, what: &'static str) -> Result<i64, BadReply> {
        match self {
            Self::Int(number) => Ok(number),
            Self::Bytes(_) => self.text(what)?.and_then(|text| text.parse().ok()).ok_or(BadReply(what)),
            Self::Nil => Err(BadReply(what)),
        }
    }
}
