//! Classifies error replies by what the caller should do.

/// What to do about an error reply to one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The script is missing: load it and send the command again.
    LoadScripts,
    /// The server cannot be used at present: retry later.
    Later,
    /// Retrying does not help: an operator has to act.
    Never,
}

/// The first words of temporary errors: the server loads its data, is a replica or lost its master, has no memory or no
/// disk left, runs a slow script, or has too many clients.
const TEMPORARY: [&str; 10] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
];

/// What Redis replies when it takes no more connections. It has no first word of its own.
const TOO_MANY_CLIENTS: &str = "ERR max number of clients";

impl ErrorClass {
    /// Classifies an error line.
    pub(crate) fn of(line: &str) -> Self {
        // Some clients keep the `-` that marks an error line.
        let line = line.trim_start_matches('-');
        match line.split(' ').next().unwrap_or_default() {
            "NOSCRIPT" => Self::LoadScripts,
            code if TEMPORARY.contains(&code) || line.starts_with(TOO_MANY_CLIENTS) => Self::Later,
            _ => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_remedy() {
        let lines = [
            ("NOSCRIPT No matching script. Please use EVAL.", ErrorClass::LoadScripts),
            ("LOADING Redis is loading the dataset in memory", ErrorClass::Later),
            ("-READONLY You can't write against a read only replica.", ErrorClass::Later),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorClass::Later),
            ("ERR max number of clients reached", ErrorClass::Later),
            ("ERR unknown command", ErrorClass::Never),
            ("NOPERM this user has no permissions to run the 'zadd' command", ErrorClass::Never),
            ("WRONGPASS invalid username-password pair", ErrorClass::Never),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorClass::Never),
            ("", ErrorClass::Never),
        ];
        for (line, class) in lines {
            assert_eq!(ErrorClass::of(line), class, "{line}");
        }
    }
}
