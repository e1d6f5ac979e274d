//! Many ids packed into one string.
//!
//! A list of strings crosses a component boundary with one allocation, one call and one copy per string, which costs more
//! than everything a heartbeat decides. One long string crosses as cheaply as a short one.

use std::marker::PhantomData;

use crate::Invalid;
use crate::id::{Id, is_plain};

/// Checked ids of one kind, concatenated, and the length of each in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids<I> {
    text: String,
    lengths: Vec<u8>,
    kind: PhantomData<I>,
}

/// Packed ids of which at least one is invalid, as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidIds {
    text: String,
    lengths: Vec<u8>,
}

impl<I: Id> Ids<I> {
    /// An empty batch with room for `count` ids.
    pub fn with_capacity(count: usize) -> Self {
        /// The length of a UUID.
        const USUAL_BYTES: usize = 36;
        Self { text: String::with_capacity(count * USUAL_BYTES), lengths: Vec::with_capacity(count), kind: PhantomData }
    }

    /// Checks all ids. If one is invalid, everything is returned so that the caller can check them one by one.
    pub fn parse(text: String, lengths: Vec<u8>) -> Result<Self, InvalidIds> {
        let fit = if is_plain(text.as_bytes()) {
            // In ASCII every byte is a character boundary.
            lengths.iter().all(|&length| I::fits(usize::from(length))) && total(&lengths) == text.len()
        } else {
            Pieces::of(&text, &lengths).is_ok_and(|mut pieces| pieces.all(|piece| I::check(piece).is_ok()))
        };
        if fit { Ok(Self { text, lengths, kind: PhantomData }) } else { Err(InvalidIds { text, lengths }) }
    }

    /// Appends an id.
    pub fn push(&mut self, id: &I) {
        self.text.push_str(id.as_str());
        // An id has at most 128 bytes.
        self.lengths.push(id.as_str().len() as u8);
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The ids, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        Pieces { text: &self.text, lengths: self.lengths.iter() }
    }

    /// Those ids whose index is to be kept, in order.
    pub fn filtered(&self, mut keep: impl FnMut(usize, &str) -> bool) -> Self {
        let mut kept = Self::with_capacity(self.len());
        for (index, id) in self.iter().enumerate() {
            if keep(index, id) {
                kept.text.push_str(id);
                // An id has at most 128 bytes.
                kept.lengths.push(id.len() as u8);
            }
        }
        kept
    }

    /// The text and the lengths.
    pub fn into_parts(self) -> (String, Vec<u8>) {
        (self.text, self.lengths)
    }
}

impl<'a, I: Id + 'a> FromIterator<&'a I> for Ids<I> {
    fn from_iter<T: IntoIterator<Item = &'a I>>(ids: T) -> Self {
        let ids = ids.into_iter();
        let mut packed = Self::with_capacity(ids.size_hint().0);
        ids.for_each(|id| packed.push(id));
        packed
    }
}

impl<I: Id> FromIterator<I> for Ids<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let ids = ids.into_iter();
        let mut packed = Self::with_capacity(ids.size_hint().0);
        ids.for_each(|id| packed.push(&id));
        packed
    }
}

impl<I: Id, const N: usize> From<[I; N]> for Ids<I> {
    fn from(ids: [I; N]) -> Self {
        ids.into_iter().collect()
    }
}

impl InvalidIds {
    /// The ids, unchecked; an error if the lengths do not match the text.
    pub fn pieces(&self) -> Result<impl ExactSizeIterator<Item = &str>, Invalid> {
        Pieces::of(&self.text, &self.lengths)
    }
}

fn total(lengths: &[u8]) -> usize {
    lengths.iter().map(|&length| usize::from(length)).sum()
}

#[derive(Clone)]
struct Pieces<'a> {
    text: &'a str,
    lengths: std::slice::Iter<'a, u8>,
}

impl<'a> Pieces<'a> {
    fn of(text: &'a str, lengths: &'a [u8]) -> Result<Self, Invalid> {
        let mut end = 0;
        let whole = lengths.iter().all(|&length| {
            end += usize::from(length);
            text.is_char_boundary(end)
        });
        if !whole || end != text.len() {
            return Err(Invalid::new("lengths", "do not cut the text into whole ids"));
        }
        Ok(Self { text, lengths: lengths.iter() })
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let length = usize::from(*self.lengths.next()?);
        let (piece, rest) = self.text.split_at_checked(length)?;
        self.text = rest;
        Some(piece)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.lengths.size_hint()
    }
}

impl ExactSizeIterator for Pieces<'_> {}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use crate::UserId;

    fn packed(ids: &[&str]) -> (String, Vec<u8>) {
        (ids.concat(), ids.iter().map(|id| id.len() as u8).collect())
    }

    #[test]
    fn packed_ids_unpack_in_order() {
        for ids in [&["bob", "alice", "名前@例.jp", "x"][..], &["a"], &[], &["bob", "bob"]] {
            let (text, lengths) = packed(ids);
            let parsed = Ids::<UserId>::parse(text.clone(), lengths.clone()).unwrap();
            assert_eq!(parsed.iter().collect::<Vec<_>>(), ids);
            assert_eq!(parsed.len(), ids.len());
            let pushed: Ids<UserId> =
                ids.iter().map(|id| UserId::parse(*id).unwrap()).collect::<Vec<_>>().iter().collect();
            assert_eq!(pushed.into_parts(), (text, lengths));
        }
    }

    #[test]
    fn one_invalid_id_returns_the_batch() {
        let long = "x".repeat(129);
        for bad in ["", "a\nb", "a\u{7f}", "é\u{85}", long.as_str()] {
            let ids = ["bob", bad, "é"];
            let (text, lengths) = packed(&ids);
            let invalid = Ids::<UserId>::parse(text, lengths).unwrap_err();
            assert_eq!(invalid.pieces().unwrap().collect::<Vec<_>>(), ids);
        }
    }

    #[test]
    fn mismatched_lengths_are_refused() {
        for (text, lengths) in [("bob", vec![2]), ("bob", vec![4]), ("bob", vec![]), ("é", vec![1, 1]), ("", vec![1])]
        {
            let invalid = Ids::<UserId>::parse(text.to_owned(), lengths).unwrap_err();
            assert!(invalid.pieces().is_err());
        }
    }
}
