//! Ids: opaque, bounded, printable. An id that exists has been checked.

use std::fmt;

use crate::Invalid;

/// Room for a UUID, an e-mail address or a prefixed key, while a batch of 1,024 stays under 300 KB.
pub const MAX_ID_BYTES: usize = 128;

fn check(field: &str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "is empty"));
    }
    if text.len() > MAX_ID_BYTES {
        return Err(Invalid::new(field, format!("is longer than {MAX_ID_BYTES} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "contains a control character"));
    }
    Ok(())
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
                check($field, &text)?;
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
    /// Names a person.
    UserId,
    "user"
);
id!(
    /// Names one of a person's devices or tabs, unique within that person.
    DeviceId,
    "device"
);
id!(
    /// Names a conversation in which people type.
    ConversationId,
    "conversation"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_bounded_and_printable() {
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
