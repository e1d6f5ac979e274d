//! Up to where a watcher has heard: what every event's id says, and what resumes from there.

use std::fmt;
use std::str::FromStr;

/// How long a digest is in hexadecimal digits: 64 bits.
const DIGEST_DIGITS: usize = 16;

/// The rule that a text breaks which is no such id.
const RULE: &str = "is not an id of an event, such as `1700000000000000` or `1700000000000000-9f3a00c1d2e3f405`";

/// Up to where a watcher has heard. Written `1700000000000000`, or `1700000000000000-9f3a00c1d2e3f405` with a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Since {
    /// Everything published up to this version has been heard.
    pub version: u64,
    /// A digest of what the watcher was shown, which tells apart what a version cannot: whether somebody was hidden or
    /// shown meanwhile.
    pub digest: Option<u64>,
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        self.digest.map_or(Ok(()), |digest| write!(f, "-{digest:0DIGEST_DIGITS$x}"))
    }
}

impl FromStr for Since {
    /// The rule that the text breaks; whoever asks knows the field.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (version, digest) = match text.split_once('-') {
            Some((version, digest)) => (version, Some(digest)),
            None => (text, None),
        };
        // The parsers of the standard library also take a sign, which nobody writes here.
        if !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RULE);
        }
        let version = version.parse().map_err(|_| RULE)?;
        let digest = digest.map(parse_digest).transpose()?;
        Ok(Since { version, digest })
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
    fn it_is_written_as_documented() {
        let since = Since { version: 1_700_000_000_000_000, digest: None };
        assert_eq!(since.to_string(), "1700000000000000");
        let with_digest = |digest| Since { digest: Some(digest), ..since }.to_string();
        assert_eq!(with_digest(0x9f3a_00c1_d2e3_f405), "1700000000000000-9f3a00c1d2e3f405");
        assert_eq!(with_digest(1), "1700000000000000-0000000000000001");
    }

    #[test]
    fn what_was_never_an_id_is_refused() {
        for text in
            ["", "-", "x", "+5", "-5", " 5", "5 ", "1.5", "5-", "5-9f3a", "5-9f3a00c1d2e3f40g", "5-9f3a00c1d2e3f4055"]
        {
            assert_eq!(text.parse::<Since>(), Err(RULE), "{text:?}");
        }
        for text in ["18446744073709551616", "5-+f3a00c1d2e3f405", "5-9f3a00c1d2e3f405-", "٥", "0x5"] {
            assert_eq!(text.parse::<Since>(), Err(RULE), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(version in any::<u64>(), digest in any::<Option<u64>>()) {
            let since = Since { version, digest };
            prop_assert_eq!(since.to_string().parse(), Ok(since));
        }

        #[test]
        fn reading_never_panics(text in any::<String>(), near in "[0-9a-f-]{0,40}") {
            let _ = (text.parse::<Since>(), near.parse::<Since>());
        }
    }
}
