//! Why a server cannot be used, in words that say what to do.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DownReason {
    /// No connection, or a broken one.
    Unreachable(String),
    /// It accepts connections and does not answer in time.
    Silent,
    /// Wrong password, or a Redis user without the needed permissions.
    Refused(String),
    /// It has no memory left for writes.
    Full,
    /// It answers but takes no writes for another reason: it loads its data, is a replica, or lost its disk.
    Unwilling(String),
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be reached: {why}"),
            Self::Silent => write!(f, "it does not answer in time"),
            Self::Refused(why) => write!(f, "it refuses us, see docs/OPERATIONS.md for what must be allowed: {why}"),
            Self::Full => write!(f, "its memory is full: raise `maxmemory`, or store less in it"),
            Self::Unwilling(why) => write!(f, "it takes no writes: {why}"),
        }
    }
}

impl DownReason {
    /// Classifies a failed or broken connection.
    pub(super) fn of(error: &RedisError) -> Self {
        let text = || error.to_string();
        match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => Self::Refused(text()),
            _ if error.is_timeout() => Self::Silent,
            ErrorKind::Server(_) | ErrorKind::Extension => match error.code() {
                Some("NOAUTH" | "WRONGPASS") => Self::Refused(text()),
                Some("OOM") => Self::Full,
                _ => Self::Unwilling(text()),
            },
            _ => Self::Unreachable(text()),
        }
    }
}

/// Classifies an error reply to one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ErrorClass {
    /// The script is missing: load it and send the command again.
    LoadScripts,
    /// The slot moved for good: refresh the topology and send it there.
    Moved,
    /// This key is elsewhere while its slot moves: send it there once.
    Ask(String),
    /// Some of the keys are elsewhere while their slot moves: send it again in a moment.
    TryAgain,
    /// The server cannot be used at present.
    Server(DownReason),
    /// This command is not allowed; others may be.
    Denied(String),
    /// Another error; sending it again would not help.
    Other(String),
}

impl ErrorClass {
    pub(super) fn of(error: &ServerError) -> Self {
        let text = || format!("{} {}", error.code(), error.details().unwrap_or_default());
        let target = || error.details().and_then(|details| details.split(' ').nth(1)).unwrap_or_default().to_owned();
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Self::LoadScripts,
            Some(ServerErrorKind::Moved) => Self::Moved,
            Some(ServerErrorKind::Ask) => Self::Ask(target()),
            Some(ServerErrorKind::TryAgain) => Self::TryAgain,
            Some(ServerErrorKind::NoPerm) => Self::Denied(text()),
            Some(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly,
            ) => Self::Server(DownReason::Unwilling(text())),
            Some(_) => Self::Other(text()),
            None => match error.code() {
                "OOM" => Self::Server(DownReason::Full),
                "NOAUTH" | "WRONGPASS" => Self::Server(DownReason::Refused(text())),
                "MISCONF" | "NOREPLICAS" | "BUSY" => Self::Server(DownReason::Unwilling(text())),
                _ => Self::Other(text()),
            },
        }
    }
}
