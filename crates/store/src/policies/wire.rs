//! How a change of policy is written down: a byte for its kind, then its fields, each with its length before it.
//!
//! Nothing here is compressed or aligned. What was written is read back as it was, and what was not written by this is
//! refused rather than guessed at; whether bytes were damaged on the way is for the checksum around them.

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Change, Numbers, Privacy};

const RESTRICT: u8 = 1;
const UNRESTRICT: u8 = 2;
const RESTRICT_MANY: u8 = 3;
const UNRESTRICT_MANY: u8 = 4;
const BLOCK: u8 = 5;
const UNBLOCK: u8 = 6;
const ADD_CONTACT: u8 = 7;
const REMOVE_CONTACT: u8 = 8;
const SET_PRIVACY: u8 = 9;

/// Adds a change to the bytes.
pub(crate) fn put(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Restrict(user) => put_ids(bytes, RESTRICT, &[user]),
        Change::Unrestrict(user) => put_ids(bytes, UNRESTRICT, &[user]),
        Change::RestrictMany(numbers) => put_numbers(bytes, RESTRICT_MANY, numbers),
        Change::UnrestrictMany(numbers) => put_numbers(bytes, UNRESTRICT_MANY, numbers),
        Change::Block(owner, other) => put_ids(bytes, BLOCK, &[owner, other]),
        Change::Unblock(owner, other) => put_ids(bytes, UNBLOCK, &[owner, other]),
        Change::AddContact(owner, other) => put_ids(bytes, ADD_CONTACT, &[owner, other]),
        Change::RemoveContact(owner, other) => put_ids(bytes, REMOVE_CONTACT, &[owner, other]),
        Change::SetPrivacy(user, privacy) => {
            put_ids(bytes, SET_PRIVACY, &[user]);
            bytes.extend([audience_byte(privacy.presence), audience_byte(privacy.last_seen)]);
        }
    }
}

/// Takes the next change from the front of the bytes; none if what is there was not written by [`put`].
pub(crate) fn take(bytes: &mut &[u8]) -> Option<Change> {
    Some(match take_byte(bytes)? {
        RESTRICT => Change::Restrict(take_id(bytes)?),
        UNRESTRICT => Change::Unrestrict(take_id(bytes)?),
        RESTRICT_MANY => Change::RestrictMany(take_numbers(bytes)?),
        UNRESTRICT_MANY => Change::UnrestrictMany(take_numbers(bytes)?),
        BLOCK => Change::Block(take_id(bytes)?, take_id(bytes)?),
        UNBLOCK => Change::Unblock(take_id(bytes)?, take_id(bytes)?),
        ADD_CONTACT => Change::AddContact(take_id(bytes)?, take_id(bytes)?),
        REMOVE_CONTACT => Change::RemoveContact(take_id(bytes)?, take_id(bytes)?),
        SET_PRIVACY => {
            let user = take_id(bytes)?;
            let (presence, last_seen) = (audience_of(take_byte(bytes)?)?, audience_of(take_byte(bytes)?)?);
            Change::SetPrivacy(user, Privacy { presence, last_seen })
        }
        _ => return None,
    })
}

/// An audience as one byte.
pub(crate) fn audience_byte(audience: Audience) -> u8 {
    match audience {
        Audience::Everyone => 0,
        Audience::Contacts => 1,
        Audience::Nobody => 2,
    }
}

/// The audience that a byte stands for.
pub(crate) fn audience_of(byte: u8) -> Option<Audience> {
    [Audience::Everyone, Audience::Contacts, Audience::Nobody].get(usize::from(byte)).copied()
}

/// Takes so many bytes from the front.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn put_ids(bytes: &mut Vec<u8>, kind: u8, ids: &[&UserId]) {
    bytes.push(kind);
    for id in ids {
        // An id that exists is no longer than 128 bytes.
        bytes.push(id.as_str().len() as u8);
        bytes.extend_from_slice(id.as_str().as_bytes());
    }
}

fn put_numbers(bytes: &mut Vec<u8>, kind: u8, numbers: &Numbers) {
    bytes.push(kind);
    // Numbers that exist are of a page below 65,536 and take no more than 8,192 bytes.
    bytes.extend_from_slice(&(numbers.page() as u16).to_le_bytes());
    bytes.extend_from_slice(&(numbers.bits().len() as u16).to_le_bytes());
    bytes.extend_from_slice(numbers.bits());
}

fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    take_bytes(bytes, 1)?.first().copied()
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    take_bytes(bytes, 2)?.try_into().map(u16::from_le_bytes).ok()
}

fn take_id(bytes: &mut &[u8]) -> Option<UserId> {
    let length = take_byte(bytes)?;
    let text = std::str::from_utf8(take_bytes(bytes, usize::from(length))?).ok()?;
    UserId::parse(text).ok()
}

fn take_numbers(bytes: &mut &[u8]) -> Option<Numbers> {
    let (page, length) = (take_u16(bytes)?, take_u16(bytes)?);
    let bits = take_bytes(bytes, usize::from(length))?.to_vec();
    Numbers::new(u32::from(page), bits).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    /// SplitMix64: the same changes for the same seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) % bound
        }

        fn user(&mut self) -> UserId {
            let letters = ["a", "Z", "7", " ", "#", "é", "名", "{", "*", "\\", "🙂"];
            let mut text = String::new();
            for _ in 0..=self.below(31) {
                text.push_str(letters[self.below(letters.len() as u64) as usize]);
            }
            UserId::parse(text).unwrap()
        }

        fn numbers(&mut self) -> Numbers {
            let length = [0, 1, 8191, 8192, self.below(8193)][self.below(5) as usize];
            let bits = (0..length).map(|_| self.below(256) as u8).collect();
            let page = [0, 65_535, self.below(65_536)][self.below(3) as usize];
            Numbers::new(page as u32, bits).unwrap()
        }

        fn audience(&mut self) -> Audience {
            audience_of(self.below(3) as u8).unwrap()
        }

        fn change(&mut self) -> Change {
            match self.below(9) {
                0 => Change::Restrict(self.user()),
                1 => Change::Unrestrict(self.user()),
                2 => Change::RestrictMany(self.numbers()),
                3 => Change::UnrestrictMany(self.numbers()),
                4 => Change::Block(self.user(), self.user()),
                5 => Change::Unblock(self.user(), self.user()),
                6 => Change::AddContact(self.user(), self.user()),
                7 => Change::RemoveContact(self.user(), self.user()),
                _ => {
                    let (presence, last_seen) = (self.audience(), self.audience());
                    Change::SetPrivacy(self.user(), Privacy { presence, last_seen })
                }
            }
        }
    }

    #[test]
    fn what_was_written_is_read_back_as_it_was() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let changes: Vec<Change> = (0..20).map(|_| dice.change()).collect();
            let mut bytes = Vec::new();
            changes.iter().for_each(|change| put(&mut bytes, change));
            let mut rest = bytes.as_slice();
            let read: Vec<Change> = std::iter::from_fn(|| take(&mut rest)).collect();
            assert_eq!(read, changes, "seed {seed}");
            assert!(rest.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn every_audience_has_a_byte_of_its_own() {
        for audience in [Audience::Everyone, Audience::Contacts, Audience::Nobody] {
            assert_eq!(audience_of(audience_byte(audience)), Some(audience));
        }
        assert_eq!(audience_of(3), None);
    }

    #[test]
    fn bytes_that_end_early_are_refused_and_no_bytes_panic() {
        let mut dice = Dice(7);
        for _ in 0..200 {
            let mut bytes = Vec::new();
            put(&mut bytes, &dice.change());
            let cut = dice.below(bytes.len() as u64) as usize;
            assert_eq!(take(&mut &bytes[..cut]), None);
            let noise: Vec<u8> = (0..dice.below(64)).map(|_| dice.below(256) as u8).collect();
            let mut rest = noise.as_slice();
            while take(&mut rest).is_some() {}
        }
        for unfit in [&[1, 0][..], &[1, 1, b'\n'], &[1, 1, 0xff], &[9, 1, b'x', 0, 3], &[3, 0, 0, 1, 0x20], &[0], &[10]]
        {
            assert_eq!(take(&mut &*unfit), None, "{unfit:?}");
        }
    }
}
