//! Changes of policy, and what each of them invalidates.

use super::Privacy;
use crate::{Invalid, UserId};

/// The numbers in a page.
pub const PAGE_NUMBERS: u32 = 1 << 16;

/// The bytes of a page, at one bit per number.
pub const PAGE_BYTES: usize = PAGE_NUMBERS as usize / 8;

/// A set of accounts whose ids are numbers, all in one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    page: u32,
    bits: Vec<u8>,
}

impl Numbers {
    /// The numbers of a page, one bit each. The first is the highest bit of the first byte, as in a Redis bitmap.
    pub fn new(page: u32, bits: Vec<u8>) -> Result<Self, Invalid> {
        if page >= PAGE_NUMBERS {
            return Err(Invalid::new("page", "is greater than 65535"));
        }
        if bits.len() > PAGE_BYTES {
            return Err(Invalid::new("bits", "are more than 8192 bytes"));
        }
        Ok(Self { page, bits })
    }

    /// The page.
    pub fn page(&self) -> u32 {
        self.page
    }

    /// The bits; zeros at the end may be missing.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// The bits, as owned bytes.
    pub fn into_bits(self) -> Vec<u8> {
        self.bits
    }
}

/// A change of policy. It states the new value, so that applying it twice is the same as once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyChange {
    /// An administrator restricts an account.
    Restrict(UserId),
    /// An administrator lifts the restriction.
    Unrestrict(UserId),
    /// An administrator restricts many accounts.
    RestrictMany(Numbers),
    /// An administrator lifts the restriction of many accounts.
    UnrestrictMany(Numbers),
    /// The first user blocks the second.
    Block(UserId, UserId),
    /// The first user unblocks the second.
    Unblock(UserId, UserId),
    /// The first user lists the second as a contact.
    AddContact(UserId, UserId),
    /// The first user removes the second from their contacts.
    RemoveContact(UserId, UserId),
    /// A user sets their privacy.
    SetPrivacy(UserId, Privacy),
}

/// Cached visibility that a change of policy makes unusable.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Invalidation {
    /// What any viewer may see of this user.
    Subject(UserId),
    /// What these two users may see of each other.
    Pair(UserId, UserId),
    /// What any viewer may see of the accounts in this page of numbers.
    Numbers(u32),
    /// Everything.
    All,
}

impl PolicyChange {
    /// What this change invalidates.
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

/// The number of an id that is a canonical decimal below 2^32. `007` and `4294967296` are names.
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
    fn only_canonical_decimals_are_numbers() {
        for (id, number) in [("0", 0), ("7", 7), ("4294967295", u32::MAX), ("523234320", 523_234_320)] {
            assert_eq!(number_of(id), Some(number));
        }
        for name in ["", "007", "00", "+7", "-1", " 7", "7 ", "1e3", "4294967296", "99999999999", "٧", "bob"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }

    #[test]
    fn out_of_range_pages_are_refused() {
        assert!(Numbers::new(65_535, vec![0; 8192]).is_ok());
        assert!(Numbers::new(65_536, Vec::new()).is_err());
        assert!(Numbers::new(0, vec![0; 8193]).is_err());
    }
}
