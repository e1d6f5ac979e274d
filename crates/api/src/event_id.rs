//! The id of an event: how far a watcher has received, and where it resumes.

use std::fmt;
use std::str::FromStr;

/// Hexadecimal digits of a 64-bit digest.
const DIGEST_DIGITS: usize = 16;

/// The rule that a malformed id breaks.
const RULE: &str = "must be an event id such as `1700000000000000` or `1700000000000000-9f3a00c1d2e3f405`";

/// How far a watcher has received. Written `1700000000000000`, or `1700000000000000-9f3a00c1d2e3f405` with a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId {
    /// Everything published up to this version was received.
    pub version: u64,
    /// A digest of what the watcher was shown. It detects what a version cannot: that a user was hidden or shown since.
    pub digest: Option<u64>,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        self.digest.map_or(Ok(()), |digest| write!(f, "-{digest:0DIGEST_DIGITS$x}"))
    }
}

impl FromStr for EventId {
    /// The rule that the text breaks; the caller knows the field.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (version, digest) = match text.split_once('-') {
            Some((version, digest)) => (version, Some(digest)),
            None => (text, None),
        };
        // `parse` would also accept a sign.
        if !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RULE);
        }
        let version = version.parse().map_err(|_| RULE)?;
        let digest = digest.map(parse_digest).transpose()?;
        Ok(EventId { version, digest })
    }
}

fn parse_digest(digits: &str) -> Result<u64, &'static str> {
    if digits.len() != DIGEST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(RULE);
    }
    u64::from_str_radix(digits, 16).map_err(|_| RULE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn format_is_as_documented() {
        let id = EventId { version: 1_700_000_000_000_000, digest: None };
        assert_eq!(id.to_string(), "1700000000000000");
        let with_digest = |digest| EventId { digest: Some(digest), ..id }.to_string();
        assert_eq!(with_digest(0x9f3a_00c1_d2e3_f405), "1700000000000000-9f3a00c1d2e3f405");
        assert_eq!(with_digest(1), "1700000000000000-0000000000000001");
    }

    #[test]
    fn malformed_id_is_refused() {
        for text in
            ["", "-", "x", "+5", "-5", " 5", "5 ", "1.5", "5-", "5-9f3a", "5-9f3a00c1d2e3f40g", "5-9f3a00c1d2e3f4055"]
        {
            assert_eq!(text.parse::<EventId>(), Err(RULE), "{text:?}");
        }
        for text in ["18446744073709551616", "5-+f3a00c1d2e3f405", "5-9f3a00c1d2e3f405-", "٥", "0x5"] {
            assert_eq!(text.parse::<EventId>(), Err(RULE), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_id_parses_back(version in any::<u64>(), digest in any::<Option<u64>>()) {
            let id = EventId { version, digest };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn parsing_never_panics(text in any::<String>(), near in "[0-9a-f-]{0,40}") {
            let _ = (text.parse::<EventId>(), near.parse::<EventId>());
        }
    }
}
