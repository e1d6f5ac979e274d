//! What can be changed about who may see whom.

use super::Privacy;
use crate::{Invalid, UserId};

/// How many numbers a page has.
pub const PAGE_NUMBERS: u32 = 1 << 16;

/// A page's bytes, at one bit a number.
pub const PAGE_BYTES: usize = PAGE_NUMBERS as usize / 8;

/// Many accounts at once whose ids are numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    page: u32,
    bits: Vec<u8>,
}

impl Numbers {
    /// These of the page, one bit each: the first is the highest bit of the first byte, as Redis counts them.
    pub fn new(page: u32, bits: Vec<u8>) -> Result<Self, Invalid> {
        if page >= PAGE_NUMBERS {
            return Err(Invalid::new("page", "is beyond the last, 65535"));
        }
        if bits.len() > PAGE_BYTES {
            return Err(Invalid::new("bits", "are more than 8192 bytes"));
        }
        Ok(Self { page, bits })
    }

    /// Which page.
    pub fn page(&self) -> u32 {
        self.page
    }

    /// The bits, perhaps without zeros at the end.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// The bits, as owned bytes.
    pub fn into_bits(self) -> Vec<u8> {
        self.bits
    }
}

/// A change of policy: what is so from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An administrator restricts an account.
    Restrict(UserId),
    /// An administrator lifts the restriction.
    Unrestrict(UserId),
    /// An administrator restricts all of these.
    RestrictMany(Numbers),
    /// An administrator lifts the restriction of all of these.
    UnrestrictMany(Numbers),
    /// The first person blocks the second.
    Block(UserId, UserId),
    /// The first person takes that back.
    Unblock(UserId, UserId),
    /// The first person lists the second as a contact.
    AddContact(UserId, UserId),
    /// The first person takes that back.
    RemoveContact(UserId, UserId),
    /// A person sets what others may see.
    SetPrivacy(UserId, Privacy),
}

/// Whose relations may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Invalidation {
    /// What anybody may see of this person.
    Subject(UserId),
    /// What these two may see of each other.
    Pair(UserId, UserId),
    /// What anybody may see of those whose ids are numbers of this page.
    Numbers(u32),
    /// Anything.
    Everybody,
}

impl Change {
    /// Whose relations may change by it.
    pub fn invalidation(&self) -> Invalidation {
        match self {
            Self::Restrict(user) | Self::Unrestrict(user) | Self::SetPrivacy(user, _) => {
                Invalidation::Subject(user.clone())
            }
            Self::Block(one, other)
            | Self::Unblock(one, other)
            | Self::AddContact(one, other)
            | Self::RemoveContact(one, other) => Invalidation::Pair(one.clone(), other.clone()),
            Self::RestrictMany(numbers) | Self::UnrestrictMany(numbers) => Invalidation::Numbers(numbers.page()),
        }
    }
}

/// The number that an id is, if it is one: a canonical decimal below 2^32. `007` is a name, and so is `4294967296`.
pub fn number_of(id: &str) -> Option<u32> {
    let bytes = id.as_bytes();
    let canonical = match bytes {
        [b'0'] => true,
        [b'1'..=b'9', ..] => bytes.len() <= 10,
        _ => false,
    };
    if !canonical {
        return None;
    }
    let digit = |number: u64, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'));
    bytes.iter().try_fold(0, digit).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_canonical_decimal_is_a_number() {
        for (id, number) in [("0", 0), ("7", 7), ("4294967295", u32::MAX), ("523234320", 523_234_320)] {
            assert_eq!(number_of(id), Some(number));
        }
        for name in ["", "007", "00", "+7", "-1", " 7", "7 ", "1e3", "4294967296", "99999999999", "٧", "bob"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn pages_out_of_bounds_are_refused() {
        assert!(Numbers::new(65_535, vec![0; 8192]).is_ok());
        assert!(Numbers::new(65_536, Vec::new()).is_err());
        assert!(Numbers::new(0, vec![0; 8193]).is_err());
    }
}
