//! Ids: opaque, bounded, printable. Every value of these types has been checked.

use std::fmt;

use crate::Invalid;

/// Room for a UUID, an e-mail address or a prefixed key, while a batch of 1,024 stays under 300 KB.
pub const MAX_ID_BYTES: usize = 128;

/// A kind of id.
pub trait Id: Sized {
    /// The name of the field in the contract.
    const FIELD: &'static str;

    /// The id as text.
    fn as_str(&self) -> &str;

    /// Whether an id may have this many bytes.
    fn fits(bytes: usize) -> bool {
        (1..=MAX_ID_BYTES).contains(&bytes)
    }

    /// Checks a text; the error names the field.
    fn check(text: &str) -> Result<(), Invalid> {
        if text.is_empty() {
            return Err(Invalid::new(Self::FIELD, "is empty"));
        }
        if !Self::fits(text.len()) {
            return Err(Invalid::new(Self::FIELD, format!("is longer than {MAX_ID_BYTES} bytes")));
        }
        if !is_plain(text.as_bytes()) && text.chars().any(char::is_control) {
            return Err(Invalid::new(Self::FIELD, "contains a control character"));
        }
        Ok(())
    }
}

/// Whether all bytes are printable ASCII, as in most ids. Checks eight bytes at a time.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    // The high bit of each byte is set if the byte is not ASCII, is below a space, or is 0x7f: adding one carries into it.
    let odd = words.iter().map(|word| u64::from_le_bytes(*word)).fold(0, |odd, word| {
        odd | word | (word.wrapping_sub(ONES * u64::from(b' ')) & !word) | (word & !HIGH).wrapping_add(ONES)
    });
    odd & HIGH == 0 && rest.iter().all(|byte| (b' '..0x7f).contains(byte))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks an id; the error names the field `
            #[doc = $field]
            /// `.
            pub fn parse(text: impl Into<String>) -> Result<Self, Invalid> {
                let text = text.into();
                Self::check(&text)?;
                Ok(Self(text))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The id as owned text.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl Id for $name {
            const FIELD: &'static str = $field;

            fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// Names a user.
    UserId,
    "user"
);
id!(
    /// Names one of a user's devices or tabs, unique within that user.
    DeviceId,
    "device"
);
id!(
    /// Names a conversation in which users type.
    ConversationId,
    "conversation"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_means_printable_ascii_at_every_position() {
        for byte in 0..=u8::MAX {
            for place in 0..17 {
                let mut bytes = *b"a~ Zb~ Yc~ Xd~ W0";
                bytes.iter_mut().skip(place).take(1).for_each(|placed| *placed = byte);
                assert_eq!(is_plain(&bytes), (b' '..0x7f).contains(&byte), "{byte} at {place}");
            }
        }
        assert!(is_plain(b""));
    }

    #[test]
    fn ids_are_bounded_and_printable() {
        assert!(UserId::parse("bob").is_ok());
        assert!(UserId::parse("名前@例.jp").is_ok());
        assert!(UserId::parse("x".repeat(MAX_ID_BYTES)).is_ok());
        for (text, rule) in [
            (String::new(), "is empty"),
            ("x".repeat(MAX_ID_BYTES + 1), "is longer than 128 bytes"),
            ("a\nb".to_owned(), "contains a control character"),
            ("a\u{7f}".to_owned(), "contains a control character"),
            ("a\u{85}".to_owned(), "contains a control character"),
        ] {
            assert_eq!(DeviceId::parse(text), Err(Invalid::new("device", rule)));
        }
    }
}
