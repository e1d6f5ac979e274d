//! Classifies error replies by what a transport does about them.

/// What to do about an error reply to one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The script is missing: load it and send the command again.
    LoadScripts,
    /// The slot moved for good: refresh the topology and send it there.
    Moved,
    /// This key is elsewhere while its slot moves: send it there once.
    Ask,
    /// Some of the keys are elsewhere while their slot moves: send it again in a moment.
    TryAgain,
    /// The server has no memory left for writes.
    Full,
    /// The server takes no commands at present: it loads its data, is a replica or lost its master, has no disk left,
    /// runs a slow script, or has too many clients.
    NotReady,
    /// Wrong password, or none.
    Refused,
    /// This command is not allowed; others may be.
    Denied,
    /// Another error; sending it again would not help.
    Other,
}

/// What Redis replies when it takes no more connections. It has no code of its own.
const TOO_MANY_CLIENTS: &str = "ERR max number of clients";

impl ErrorClass {
    /// Classifies an error line, such as `NOSCRIPT No matching script`.
    pub(crate) fn of(line: &str) -> Self {
        // Some clients keep the `-` that marks an error line.
        let line = line.trim_start_matches('-');
        match line.split(' ').next().unwrap_or_default() {
            "NOSCRIPT" => Self::LoadScripts,
            "MOVED" => Self::Moved,
            "ASK" => Self::Ask,
            "TRYAGAIN" => Self::TryAgain,
            "OOM" => Self::Full,
            "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS" | "READONLY"
            | "UNKILLABLE" => Self::NotReady,
            "NOAUTH" | "WRONGPASS" => Self::Refused,
            "NOPERM" => Self::Denied,
            _ if line.starts_with(TOO_MANY_CLIENTS) => Self::NotReady,
            _ => Self::Other,
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
            ("MOVED 3999 127.0.0.1:6381", ErrorClass::Moved),
            ("ASK 3999 127.0.0.1:6381", ErrorClass::Ask),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorClass::TryAgain),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorClass::Full),
            ("LOADING Redis is loading the dataset in memory", ErrorClass::NotReady),
            ("-READONLY You can't write against a read only replica.", ErrorClass::NotReady),
            ("ERR max number of clients reached", ErrorClass::NotReady),
            ("WRONGPASS invalid username-password pair", ErrorClass::Refused),
            ("NOPERM this user has no permissions to run the 'zadd' command", ErrorClass::Denied),
            ("ERR unknown command", ErrorClass::Other),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorClass::Other),
            ("", ErrorClass::Other),
        ];
        for (line, class) in lines {
            assert_eq!(ErrorClass::of(line), class, "{line}");
        }
    }
}
