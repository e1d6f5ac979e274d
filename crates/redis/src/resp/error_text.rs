//! Finds the server's error in the text that Spin makes of it.
//!
//! Spin passes on every failure as text: the `Display` of its client library's error. An error line of the server is in
//! it, with its first word replaced by the name of a kind. Any other text is a failed connection.

/// How the client library introduces an error of a known kind.
const SIGNALLED: &str = "An error was signalled by the server";

/// The known kinds and the words they stand for. In the library's next major version some names are shorter.
const KINDS: [(&str, &str); 17] = [
    ("ResponseError", "ERR"),
    ("ExecAbortError", "EXECABORT"),
    ("ExecAbort", "EXECABORT"),
    ("BusyLoadingError", "LOADING"),
    ("BusyLoading", "LOADING"),
    ("NoScriptError", "NOSCRIPT"),
    ("NoScript", "NOSCRIPT"),
    ("Moved", "MOVED"),
    ("Ask", "ASK"),
    ("TryAgain", "TRYAGAIN"),
    ("ClusterDown", "CLUSTERDOWN"),
    ("CrossSlot", "CROSSSLOT"),
    ("MasterDown", "MASTERDOWN"),
    ("ReadOnly", "READONLY"),
    ("NotBusy", "NOTBUSY"),
    ("NoSub", "NOSUB"),
    ("NoPerm", "NOPERM"),
];

/// The server's error line, such as `NOSCRIPT No matching script`; `None` if it is not an error of the server.
pub fn server_line(text: &str) -> Option<String> {
    let said = text.strip_prefix(SIGNALLED).map_or(text, |rest| rest.trim_start_matches([' ', '-']));
    let (kind, detail) = said.split_once(": ").unwrap_or((said, ""));
    let kind = kind.trim_matches('"');
    let word = match KINDS.iter().find(|(name, _)| *name == kind) {
        Some((_, word)) => word,
        // A word that the library does not know is passed on as it is: `OOM: command not allowed`.
        None if is_word(kind) && kind.len() < said.len() => kind,
        None => return None,
    };
    Some(format!("{word} {detail}").trim_end().to_owned())
}

/// Whether this looks like the first word of a server's error.
fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_error_line_is_found() {
        for (text, line) in [
            (
                "An error was signalled by the server - NoScriptError: No matching script. Please use EVAL.",
                "NOSCRIPT No matching script. Please use EVAL.",
            ),
            (
                "An error was signalled by the server - ResponseError: wrong number of arguments: 2",
                "ERR wrong number of arguments: 2",
            ),
            ("An error was signalled by the server- ReadOnly", "READONLY"),
            (
                "OOM: command not allowed when used memory > 'maxmemory'.",
                "OOM command not allowed when used memory > 'maxmemory'.",
            ),
            ("NOPERM: this user has no permissions", "NOPERM this user has no permissions"),
            ("NoScript: No matching script.", "NOSCRIPT No matching script."),
            ("\"WRONGPASS\": invalid username-password pair", "WRONGPASS invalid username-password pair"),
        ] {
            assert_eq!(server_line(text).as_deref(), Some(line), "{text}");
        }
    }

    #[test]
    fn other_failures_have_no_server_line() {
        for text in [
            "",
            "broken pipe",
            "Connection refused (os error 111)",
            "timed out",
            "Could not convert Redis response - TypeError: Redis Map type is not supported",
            "query result exceeds limit of 134217728 bytes",
            "could not find connection for resource",
            "EOF",
        ] {
            assert_eq!(server_line(text), None, "{text}");
        }
    }
}
