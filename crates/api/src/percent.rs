//! Undoing percent-escapes, in paths and queries.
//!
//! A `+` stays a plus: ids are often e-mail addresses, and `encodeURIComponent` never writes a space as one.

use std::borrow::Cow;

/// The text with its percent-escapes undone; the error is the rule that it breaks.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = hex(bytes.next()).zip(hex(bytes.next()));
            let (high, low) = digits.ok_or("contains a `%` that is not followed by two hexadecimal digits")?;
            decoded.push(high << 4 | low);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| "is not UTF-8 once its percent-escapes are undone")
}

fn hex(digit: Option<u8>) -> Option<u8> {
    match digit? {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        digit @ b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_undone_once_and_a_plus_stays_a_plus() {
        for (text, decoded) in [("bob", "bob"), ("a%2Cb", "a,b"), ("%e2%82%AC", "€"), ("a+b", "a+b"), ("%2541", "%41")]
        {
            assert_eq!(decode(text).as_deref(), Ok(decoded));
        }
    }

    #[test]
    fn a_broken_escape_is_refused() {
        for text in ["%", "%4", "%zz", "a%4 b"] {
            assert!(decode(text).is_err_and(|rule| rule.contains("hexadecimal")), "{text}");
        }
        assert!(decode("%ff").is_err_and(|rule| rule.contains("UTF-8")));
    }

    proptest! {
        #[test]
        fn what_was_escaped_comes_back(text in any::<String>()) {
            let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let decoded = decode(&escaped);
            prop_assert_eq!(decoded.as_deref(), Ok(text.as_str()));
            let _ = decode(&text);
        }
    }
}
