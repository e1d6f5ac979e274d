//! Why a configuration is refused. Every message names the setting, the value and its source.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use rollcall_api::KeyError;
use thiserror::Error;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was not given.
    Default,
    /// It was not given, and comes from a preset other than the default.
    Preset,
    /// The file.
    File {
        /// Which.
        path: PathBuf,
        /// Where in it, from 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag, with its dashes.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset => f.write_str("preset"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why a configuration is refused.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config file {path} ({origin}): {error}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What named it.
        origin: Origin,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{origin}: is not TOML: {message}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// Why.
        message: String,
    },
    /// The file has a key that is no setting.
    #[error("{origin}: there is no setting `{name}`{}", hint(.meant.as_deref()))]
    UnknownKey {
        /// The key.
        name: String,
        /// Where.
        origin: Origin,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// A variable has our prefix and is no setting.
    #[error("environment: there is no setting `{name}`{}", hint(.meant.as_deref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// A value breaks a rule.
    #[error("`{name}`: `{value}` ({origin}) {rule}")]
    BadValue {
        /// The setting.
        name: &'static str,
        /// The value, without passwords.
        value: String,
        /// Its source.
        origin: Origin,
        /// The rule, as a clause.
        rule: String,
    },
    /// The key file cannot be read.
    #[error("`token_key`: cannot read {path}: {error}")]
    KeyUnreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The key file holds no key for this purpose.
    #[error("`token_key`: {path}: {error}")]
    Key {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: KeyError,
    },
    /// A claim is required, but there is no key to check tokens with.
    #[error("`{name}` is set, but tokens are not checked without a `token_key`: set `token_key`, or remove `{name}`")]
    Unchecked {
        /// The setting.
        name: &'static str,
    },
    /// Any client on the network could act as any user.
    #[error(
        "`listen`: {listen} is not loopback, and there is no `token_key`: every client could act as any user. \
         Listen on 127.0.0.1 only, or create a key and pass it: \
         `openssl rand -hex 32 > token.key`, then `--token-key token.key`"
    )]
    Exposed {
        /// The address.
        listen: SocketAddr,
    },
}

fn hint(meant: Option<&str>) -> String {
    match meant {
        Some(name) => format!("; did you mean `{name}`?"),
        None => "; `rollcall config --example` lists all settings".to_owned(),
    }
}

/// A value without the credentials of a URL.
pub(super) fn shown(value: &str) -> String {
    let Some((scheme, rest)) = value.split_once("://") else { return value.to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@').and_then(|at| rest.get(at..)) {
        Some(from_at) => format!("{scheme}://…{from_at}"),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(shown("redis://me:secret@host:6379/0"), "redis://…@host:6379/0");
        assert_eq!(shown("redis://:s@cret@host"), "redis://…@host");
        assert_eq!(shown("redis://host/a@b"), "redis://host/a@b");
        assert_eq!(shown("memory"), "memory");
    }
}
