//! Strict percent-decoding of paths and queries.
//!
//! The `percent-encoding` crate passes a malformed escape through unchanged; here it is an error. A `+` stays a plus: ids
//! are often e-mail addresses, and `encodeURIComponent` never writes a space as one.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Decodes the text. The error is the rule that it breaks.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if text.split('%').skip(1).any(|rest| !starts_with_hex_pair(rest)) {
        return Err("contains a `%` that is not followed by two hexadecimal digits");
    }
    percent_decode_str(text).decode_utf8().map_err(|_| "is not UTF-8 after percent-decoding")
}

fn starts_with_hex_pair(text: &str) -> bool {
    text.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_decode_once_and_plus_stays() {
        for (text, decoded) in [("bob", "bob"), ("a%2Cb", "a,b"), ("%e2%82%AC", "€"), ("a+b", "a+b"), ("%2541", "%41")]
        {
            assert_eq!(decode(text).as_deref(), Ok(decoded));
        }
    }

    #[test]
    fn malformed_escape_is_refused() {
        for text in ["%", "%4", "%zz", "a%4 b"] {
            assert!(decode(text).is_err_and(|rule| rule.contains("hexadecimal")), "{text}");
        }
        assert!(decode("%ff").is_err_and(|rule| rule.contains("UTF-8")));
    }

    proptest! {
        #[test]
        fn encoded_text_decodes_to_itself(text in any::<String>()) {
            let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let decoded = decode(&escaped);
            prop_assert_eq!(decoded.as_deref(), Ok(text.as_str()));
            let _ = decode(&text);
        }
    }
}
