//! Why a server cannot be used, in words that say what to do.

use std::fmt;

use redis::{ErrorKind, RedisError, ServerError};

use crate::transport::ErrorClass;

/// Why a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DownReason {
    /// No connection, or a broken one.
    Unreachable(String),
    /// It accepts connections but does not reply within the timeout.
    TimedOut,
    /// Wrong password, or a Redis user without the needed permissions.
    Refused(String),
    /// It has no memory left for writes.
    Full,
    /// It replies but accepts no writes for another reason: it loads its data, is a replica, or lost its disk.
    NotReady(String),
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be reached: {why}"),
            Self::TimedOut => write!(f, "no reply within the timeout"),
            Self::Refused(why) => write!(f, "authentication or permission refused (see docs/OPERATIONS.md): {why}"),
            Self::Full => write!(f, "its memory is full: raise `maxmemory`, or store less in it"),
            Self::NotReady(why) => write!(f, "it accepts no writes: {why}"),
        }
    }
}

impl DownReason {
    /// Classifies a failed or broken connection.
    pub(super) fn of(error: &RedisError) -> Self {
        let text = || error.to_string();
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Refused(text()),
            _ if error.is_timeout() => Self::TimedOut,
            ErrorKind::Server(_) | ErrorKind::Extension => {
                Self::of_class(ErrorClass::of(error.code().unwrap_or_default()), text())
            }
            _ => Self::Unreachable(text()),
        }
    }

    /// What an error reply of this class says about its server, if the server is to blame.
    pub(super) fn of_class(class: ErrorClass, text: String) -> Self {
        match class {
            ErrorClass::Refused | ErrorClass::Denied => Self::Refused(text),
            ErrorClass::Full => Self::Full,
            _ => Self::NotReady(text),
        }
    }
}

/// The line of an error reply, as the server sent it.
pub(super) fn error_line(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}
