//! Why a configuration is refused. Every message names the setting, what was given, and where.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use rollcall_api::KeyError;
use thiserror::Error;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave it.
    Default,
    /// Nobody gave it, and a preset other than the default was chosen.
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
        /// Who named it.
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
        /// Who gave it.
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
    /// What tokens must say is set, but nothing checks tokens.
    #[error("`{name}` is set, but without a `token_key` no token is looked at: set `token_key`, or leave `{name}` out")]
    Unchecked {
        /// The setting.
        name: &'static str,
    },
    /// Anybody could be anybody, for everybody on the network.
    #[error(
        "`listen`: {listen} is not loopback, and there is no `token_key`: whoever can reach it could act as anybody. \
         Serve on 127.0.0.1 only, or make a key and give it: \
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
        None => "; `rollcall config --example` shows all there are".to_owned(),
    }
}

/// A value fit to be shown: what stands before the `@` of an address may be a password.
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
