//! Reads the lines of a file that may not be text: length-limited, numbered, each an id or the rule it breaks.

use std::io::{self, BufRead};

use rollcall_core::UserId;

/// Longer than any id, and than any comment written by hand.
const MAX_LINE_BYTES: usize = 4096;

/// Some editors put it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The line number; the first is 1.
    pub(super) number: u64,
    /// Its bytes in the file, line ending included.
    pub(super) bytes: u64,
    /// The id, or the rule it breaks; `None` if the line is blank or a comment.
    pub(super) id: Result<Option<UserId>, String>,
}

pub(super) struct Lines<R> {
    reader: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, number: 0, text: Vec::new() }
    }

    /// Reads to the end of the line and keeps as much of it as the limit allows. Returns how many bytes it read.
    fn read_line(&mut self) -> io::Result<u64> {
        self.text.clear();
        let mut bytes = 0;
        loop {
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let part = buffer.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
            let ended = part.is_empty() || part.ends_with(b"\n");
            // One byte beyond the limit shows that the line is too long.
            let room = (MAX_LINE_BYTES + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(part.get(..room).unwrap_or(part));
            let length = part.len();
            bytes += length as u64;
            self.reader.consume(length);
            if ended {
                return Ok(bytes);
            }
        }
    }

    fn id(&self) -> Result<Option<UserId>, String> {
        if self.text.len() > MAX_LINE_BYTES {
            return Err(format!("is longer than {MAX_LINE_BYTES} bytes"));
        }
        let mark = if self.number == 1 { BYTE_ORDER_MARK } else { &[] };
        let text = self.text.strip_prefix(mark).unwrap_or(&self.text);
        let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8".to_owned())?.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        UserId::parse(text).map(Some).map_err(|invalid| invalid.rule)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = match self.read_line() {
            Ok(0) => return None,
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        self.number += 1;
        Some(Ok(Line { number: self.number, bytes, id: self.id() }))
    }
}

/// Whether an id that is written as a line is read back unchanged.
pub(super) fn expressible(id: &str) -> bool {
    id.trim() == id && !id.starts_with(['#', '\u{feff}'])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn ids(text: &[u8]) -> Vec<Result<Option<String>, String>> {
        // A buffer of three bytes, so that lines are cut at every position.
        let reader = io::BufReader::with_capacity(3, text);
        let lines: Vec<Line> = Lines::new(reader).map(Result::unwrap).collect();
        assert_eq!(lines.iter().map(|line| line.bytes).sum::<u64>(), text.len() as u64);
        assert!((1..).zip(&lines).all(|(number, line)| line.number == number));
        lines.into_iter().map(|line| line.id.map(|id| id.map(UserId::into_string))).collect()
    }

    #[test]
    fn line_endings_blanks_and_comments_are_ignored() {
        let text = "\u{feff}bob\r\n\n  # a comment\n\t7 \r\n\r\nan id with spaces\n名前";
        let id = |text: &str| Ok(Some(text.to_owned()));
        let none = || Ok(None);
        assert_eq!(
            ids(text.as_bytes()),
            [id("bob"), none(), none(), id("7"), none(), id("an id with spaces"), id("名前")]
        );
        assert_eq!(ids(b""), []);
        assert_eq!(ids(b"x"), [id("x")]);
    }

    #[test]
    fn invalid_line_gives_its_rule() {
        let long = [b"x".repeat(5000), b"\nok\n".to_vec()].concat();
        assert_eq!(ids(&long), [Err("is longer than 4096 bytes".to_owned()), Ok(Some("ok".to_owned()))]);
        let found = ids(&[b"a\x00b\n\xff\n".to_vec(), b"y".repeat(129), b"\nok".to_vec()].concat());
        let rules = ["contains a control character", "is not UTF-8", "is longer than 128 bytes"];
        assert_eq!(found[..3], rules.map(|rule| Err(rule.to_owned())));
        assert_eq!(found[3], Ok(Some("ok".to_owned())));
    }

    #[test]
    fn expressible_ids_are_those_read_back() {
        for id in ["bob", " bob", "bob ", "#1", "a#1", " ", "\u{feff}x", "x\u{feff}", "\u{a0}x", "名 前", "007"] {
            let back = ids(format!("{id}\n").as_bytes());
            let id = UserId::parse(id).unwrap();
            assert_eq!(back == [Ok(Some(id.as_str().to_owned()))], expressible(id.as_str()), "{id:?}");
        }
    }
}
