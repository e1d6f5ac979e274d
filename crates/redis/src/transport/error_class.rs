//! What an error of the server means for whoever asked.

/// What to do about an error in answer to one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The script is not there: load it and say it again.
    LoadScripts,
    /// The server is of no use at present: its caller may come back later.
    Later,
    /// It will be no better next time: somebody has to do something about it.
    Never,
}

/// The first words of errors that pass: the server loads its data, follows a master or lost it, has no memory or no disk
/// left, is busy with somebody's script, or has too many clients.
const PASSING: [&str; 10] = [
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

/// What Redis says, with no word of its own, when it takes no more connections.
const TOO_MANY_CLIENTS: &str = "ERR max number of clients";

impl ErrorClass {
    /// What this error line means.
    pub(crate) fn of(line: &str) -> Self {
        // Some clients keep the sign by which an error is told from other lines.
        let line = line.trim_start_matches('-');
        match line.split(' ').next().unwrap_or_default() {
            "NOSCRIPT" => Self::LoadScripts,
            code if PASSING.contains(&code) || line.starts_with(TOO_MANY_CLIENTS) => Self::Later,
            _ => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_what_helps() {
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
        for (line, verdict) in lines {
            assert_eq!(ErrorClass::of(line), verdict, "{line}");
        }
    }
}
