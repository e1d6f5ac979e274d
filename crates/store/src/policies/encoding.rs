//! The binary encoding of a change of policy: a byte for its kind, then its fields, each with its length before it.
//!
//! Nothing is compressed or aligned. Bytes that [`encode`] did not write are refused. A checksum is the caller's to add.

use rollcall_core::UserId;
use rollcall_core::policy::{Audience, Numbers, PolicyChange, Privacy};

const RESTRICT: u8 = 1;
const UNRESTRICT: u8 = 2;
const RESTRICT_MANY: u8 = 3;
const UNRESTRICT_MANY: u8 = 4;
const BLOCK: u8 = 5;
const UNBLOCK: u8 = 6;
const ADD_CONTACT: u8 = 7;
const REMOVE_CONTACT: u8 = 8;
const SET_PRIVACY: u8 = 9;

/// Appends a change to the bytes.
pub(crate) fn encode(bytes: &mut Vec<u8>, change: &PolicyChange) {
    match change {
        PolicyChange::Restrict(user) => put_ids(bytes, RESTRICT, &[user]),
        PolicyChange::Unrestrict(user) => put_ids(bytes, UNRESTRICT, &[user]),
        PolicyChange::RestrictMany(numbers) => put_numbers(bytes, RESTRICT_MANY, numbers),
        PolicyChange::UnrestrictMany(numbers) => put_numbers(bytes, UNRESTRICT_MANY, numbers),
        PolicyChange::Block(owner, other) => put_ids(bytes, BLOCK, &[owner, other]),
        PolicyChange::Unblock(owner, other) => put_ids(bytes, UNBLOCK, &[owner, other]),
        PolicyChange::AddContact(owner, other) => put_ids(bytes, ADD_CONTACT, &[owner, other]),
        PolicyChange::RemoveContact(owner, other) => put_ids(bytes, REMOVE_CONTACT, &[owner, other]),
        PolicyChange::SetPrivacy(user, privacy) => {
            put_ids(bytes, SET_PRIVACY, &[user]);
            bytes.extend([audience_byte(privacy.presence), audience_byte(privacy.last_seen)]);
        }
    }
}

/// Takes a change from the front of the bytes; `None` if [`encode`] did not write it.
pub(crate) fn decode(bytes: &mut &[u8]) -> Option<PolicyChange> {
    Some(match take_byte(bytes)? {
        RESTRICT => PolicyChange::Restrict(take_id(bytes)?),
        UNRESTRICT => PolicyChange::Unrestrict(take_id(bytes)?),
        RESTRICT_MANY => PolicyChange::RestrictMany(take_numbers(bytes)?),
        UNRESTRICT_MANY => PolicyChange::UnrestrictMany(take_numbers(bytes)?),
        BLOCK => PolicyChange::Block(take_id(bytes)?, take_id(bytes)?),
        UNBLOCK => PolicyChange::Unblock(take_id(bytes)?, take_id(bytes)?),
        ADD_CONTACT => PolicyChange::AddContact(take_id(bytes)?, take_id(bytes)?),
        REMOVE_CONTACT => PolicyChange::RemoveContact(take_id(bytes)?, take_id(bytes)?),
        SET_PRIVACY => {
            let user = take_id(bytes)?;
            let (presence, last_seen) =
                (audience_from_byte(take_byte(bytes)?)?, audience_from_byte(take_byte(bytes)?)?);
            PolicyChange::SetPrivacy(user, Privacy { presence, last_seen })
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

/// The audience of a byte; `None` if there is none.
pub(crate) fn audience_from_byte(byte: u8) -> Option<Audience> {
    [Audience::Everyone, Audience::Contacts, Audience::Nobody].get(usize::from(byte)).copied()
}

/// Takes `count` bytes from the front.
fn take_bytes<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn put_ids(bytes: &mut Vec<u8>, kind: u8, ids: &[&UserId]) {
    bytes.push(kind);
    for id in ids {
        // A user id has at most 128 bytes.
        bytes.push(id.as_str().len() as u8);
        bytes.extend_from_slice(id.as_str().as_bytes());
    }
}

fn put_numbers(bytes: &mut Vec<u8>, kind: u8, numbers: &Numbers) {
    bytes.push(kind);
    // `Numbers` has a page below 65,536 and at most 8,192 bytes.
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
    struct Rng(u64);

    impl Rng {
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
            audience_from_byte(self.below(3) as u8).unwrap()
        }

        fn change(&mut self) -> PolicyChange {
            match self.below(9) {
                0 => PolicyChange::Restrict(self.user()),
                1 => PolicyChange::Unrestrict(self.user()),
                2 => PolicyChange::RestrictMany(self.numbers()),
                3 => PolicyChange::UnrestrictMany(self.numbers()),
                4 => PolicyChange::Block(self.user(), self.user()),
                5 => PolicyChange::Unblock(self.user(), self.user()),
                6 => PolicyChange::AddContact(self.user(), self.user()),
                7 => PolicyChange::RemoveContact(self.user(), self.user()),
                _ => {
                    let (presence, last_seen) = (self.audience(), self.audience());
                    PolicyChange::SetPrivacy(self.user(), Privacy { presence, last_seen })
                }
            }
        }
    }

    #[test]
    fn decoding_inverts_encoding() {
        for seed in 0..200 {
            let mut rng = Rng(seed);
            let changes: Vec<PolicyChange> = (0..20).map(|_| rng.change()).collect();
            let mut bytes = Vec::new();
            changes.iter().for_each(|change| encode(&mut bytes, change));
            let mut rest = bytes.as_slice();
            let read: Vec<PolicyChange> = std::iter::from_fn(|| decode(&mut rest)).collect();
            assert_eq!(read, changes, "seed {seed}");
            assert!(rest.is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn audiences_map_to_distinct_bytes() {
        for audience in [Audience::Everyone, Audience::Contacts, Audience::Nobody] {
            assert_eq!(audience_from_byte(audience_byte(audience)), Some(audience));
        }
        assert_eq!(audience_from_byte(3), None);
    }

    #[test]
    fn truncated_and_foreign_bytes_are_refused() {
        let mut rng = Rng(7);
        for _ in 0..200 {
            let mut bytes = Vec::new();
            encode(&mut bytes, &rng.change());
            let cut = rng.below(bytes.len() as u64) as usize;
            assert_eq!(decode(&mut &bytes[..cut]), None);
            let noise: Vec<u8> = (0..rng.below(64)).map(|_| rng.below(256) as u8).collect();
            let mut rest = noise.as_slice();
            while decode(&mut rest).is_some() {}
        }
        for unfit in [&[1, 0][..], &[1, 1, b'\n'], &[1, 1, 0xff], &[9, 1, b'x', 0, 3], &[3, 0, 0, 1, 0x20], &[0], &[10]]
        {
            assert_eq!(decode(&mut &*unfit), None, "{unfit:?}");
        }
    }
}
