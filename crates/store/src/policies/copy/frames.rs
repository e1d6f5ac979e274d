//! The file of a copy: frames, each with a checksum that continues that of the frame before it.
//!
//! ```text
//! file:    magic, then frames
//! frame:   length of the payload u32, kind u8, checksum u32, payload
//! first:   what is copied: its identity and the cursor of the first page
//! pages:   changes
//! end:     nothing: the snapshot is whole
//! news:    the new cursor, then changes
//! ```
//!
//! All integers are little-endian. A frame that was torn, damaged, or belongs elsewhere does not continue the chain,
//! and ends what counts of the file. What comes before the end frame counts for nothing without it.

use std::io::{self, Read};

use rollcall_core::policy::Change;
use rollcall_functions::capabilities::Cursor;

use crate::policies::wire;

/// What the file begins with: what it is, and the version of this format.
pub(super) const MAGIC: [u8; 16] = *b"rollcall policy1";

/// The bytes before a payload.
pub(super) const HEAD_BYTES: usize = 9;

/// The most that a payload may take: more than any page or answer does, and little enough to be read at once.
const MAX_PAYLOAD: usize = 256 << 20;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    First,
    Page,
    End,
    News,
}

impl Kind {
    fn byte(self) -> u8 {
        match self {
            Self::First => 1,
            Self::Page => 2,
            Self::End => 3,
            Self::News => 4,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        [Self::First, Self::Page, Self::End, Self::News].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// A frame as it was read, and the checksum that the next one continues.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) payload: Vec<u8>,
    pub(super) sum: u32,
}

impl Frame {
    /// How many bytes of the file it takes.
    pub(super) fn bytes(&self) -> u64 {
        (HEAD_BYTES + self.payload.len()) as u64
    }
}

/// A frame's bytes, and the checksum that the next one continues; none if it would be too long.
pub(super) fn written(before: u32, kind: Kind, payload: &[u8]) -> Option<(Vec<u8>, u32)> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length as usize <= MAX_PAYLOAD)?;
    let sum = checksum(before, length, kind.byte(), payload);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.extend(length.to_le_bytes());
    bytes.push(kind.byte());
    bytes.extend(sum.to_le_bytes());
    bytes.extend_from_slice(payload);
    Some((bytes, sum))
}

/// The next frame; none if the file ends before it does, or it does not continue the chain.
pub(super) fn read(from: &mut impl Read, before: u32) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD_BYTES];
    if !filled(from, &mut head)? {
        return Ok(None);
    }
    let [l0, l1, l2, l3, kind, s0, s1, s2, s3] = head;
    let (length, sum) = (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([s0, s1, s2, s3]));
    let Some(known) = Kind::of(kind).filter(|_| length as usize <= MAX_PAYLOAD) else { return Ok(None) };
    // Not allocated in advance: a damaged length must not cost what it says.
    let mut payload = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut payload)?;
    let whole = payload.len() == length as usize && checksum(before, length, kind, &payload) == sum;
    Ok(whole.then_some(Frame { kind: known, payload, sum }))
}

/// The payload of the first frame.
pub(super) fn first(identity: &str, cursor: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_cursor(&mut bytes, cursor);
    bytes.extend_from_slice(identity.as_bytes());
    bytes
}

/// The cursor of a first frame's payload, if it is of a copy of this.
pub(super) fn read_first(mut payload: &[u8], identity: &str) -> Option<Cursor> {
    let cursor = take_cursor(&mut payload)?;
    (payload == identity.as_bytes()).then_some(cursor)
}

/// The payload of a page.
pub(super) fn page(changes: &[Change]) -> Vec<u8> {
    let mut bytes = Vec::new();
    changes.iter().for_each(|change| wire::put(&mut bytes, change));
    bytes
}

/// The payload of news.
pub(super) fn news(changes: &[Change], cursor: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_cursor(&mut bytes, cursor);
    changes.iter().for_each(|change| wire::put(&mut bytes, change));
    bytes
}

/// The cursor after the news.
pub(super) fn cursor_of_news(mut payload: &[u8]) -> Option<Cursor> {
    take_cursor(&mut payload)
}

/// The changes that a frame holds; none if it holds something that is no change.
pub(super) fn changes(frame: &Frame) -> Option<Vec<Change>> {
    let mut payload = frame.payload.as_slice();
    match frame.kind {
        Kind::First | Kind::End => return Some(Vec::new()),
        Kind::Page => {}
        Kind::News => {
            take_cursor(&mut payload)?;
        }
    }
    let mut changes = Vec::new();
    while !payload.is_empty() {
        changes.push(wire::take(&mut payload)?);
    }
    Some(changes)
}

fn put_cursor(bytes: &mut Vec<u8>, cursor: &[u64]) {
    // One number per log of a store: a few dozen.
    bytes.extend((cursor.len() as u32).to_le_bytes());
    cursor.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

fn take_cursor(bytes: &mut &[u8]) -> Option<Cursor> {
    let count = wire::take_bytes(bytes, 4)?.try_into().map(u32::from_le_bytes).ok()?;
    let numbers = wire::take_bytes(bytes, (count as usize).checked_mul(8)?)?;
    Some(numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

/// Fills the buffer; false if the file ends before.
fn filled(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn checksum(before: u32, length: u32, kind: u8, payload: &[u8]) -> u32 {
    let sum = crc(!0, &before.to_le_bytes());
    let sum = crc(crc(sum, &length.to_le_bytes()), &[kind]);
    !crc(sum, payload)
}

/// CRC-32C, eight bytes a step: it finds every single run of up to 32 damaged bits.
fn crc(sum: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(sum, |sum, word| {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(sum);
        TABLES.iter().rev().zip(mixed.to_le_bytes()).fold(0, |sum, (table, byte)| sum ^ at(table, byte))
    });
    let first = |sum: u32, byte: &u8| at(&TABLES[0], sum as u8 ^ byte) ^ (sum >> 8);
    rest.iter().fold(sum, first)
}

#[allow(clippy::indexing_slicing, reason = "a table has an entry for every byte")]
fn at(table: &[u32; 256], byte: u8) -> u32 {
    table[byte as usize]
}

/// The first is the remainder of each byte; each further one that of the byte followed by one more zero byte.
static TABLES: [[u32; 256]; 8] = tables();

#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse it")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[table - 1][byte];
            tables[table][byte] = tables[0][(sum & 0xff) as usize] ^ (sum >> 8);
            byte += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_it_says() {
        assert_eq!(!crc(!0, b"123456789"), 0xe306_9283, "the check value of CRC-32C");
        assert_eq!(!crc(!0, &[0; 32]), 0x8a91_36aa, "RFC 3720, appendix B.4");
        for cut in 0..20 {
            let (one, other) = b"twenty bytes of text".split_at(cut);
            assert_eq!(crc(crc(!0, one), other), crc(!0, b"twenty bytes of text"), "in two parts, cut at {cut}");
        }
    }

    #[test]
    fn a_frame_continues_only_the_one_before_it() {
        let (bytes, sum) = written(7, Kind::Page, b"payload").unwrap_or_default();
        let frame = read(&mut bytes.as_slice(), 7).ok().flatten();
        assert_eq!(frame.map(|frame| (frame.kind, frame.sum, frame.bytes())), Some((Kind::Page, sum, 16)));
        assert!(matches!(read(&mut bytes.as_slice(), 8), Ok(None)));
    }
}
