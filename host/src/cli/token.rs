//! Minting tokens, for experiments and scripts. A service mints them in its own backend.

use std::path::PathBuf;

use clap::Args;
use rollcall_api::{Grant, KeyError, Scope, SigningKey, mint};
use rollcall_core::{ConversationId, Span, UserId};
use thiserror::Error;

use super::flags::AccessFlags;
use crate::config::{Config, Value};

/// Why no token was made.
#[derive(Debug, Error)]
pub enum TokenError {
    /// There is nothing to sign with.
    #[error("there is no key to sign with: give `--key FILE`, or set `token_key` if that is a secret")]
    NoKey,
    /// The key file cannot be read.
    #[error("cannot read the key {path}: {error}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file holds no key that signs.
    #[error("the key {path}: {error}")]
    Key {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: KeyError,
    },
}

/// The arguments of `token`.
#[derive(Debug, Clone, Args)]
pub struct TokenArgs {
    /// The user of the token
    #[arg(long, value_name = "USER", value_parser = |text: &str| UserId::parse(text).map_err(|invalid| invalid.rule))]
    pub user: UserId,
    /// What it allows beyond acting as the user: `service` acts for any user, `admin` restricts accounts and reads all users'
    /// devices, choices (also invisibility), notes and last seen; repeatable
    #[arg(long = "scope", value_name = "service|admin", value_parser = |text: &str| text.parse::<Scope>().map_err(|invalid| invalid.rule))]
    pub scopes: Vec<Scope>,
    /// A conversation in which the user may type and see typists; `*` is any; repeatable
    #[arg(long = "conversation", value_name = "ID", value_parser = |text: &str| ConversationId::parse(text).map_err(|invalid| invalid.rule))]
    pub conversations: Vec<ConversationId>,
    /// How long it is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    pub ttl: Span,
    /// The file with the secret or private key to sign with; without it, token_key, if that is a secret
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The settings of tokens: issuer and audience go into the token.
    #[command(flatten)]
    pub settings: AccessFlags,
}

impl TokenArgs {
    /// Makes the token at `now` in Unix seconds.
    pub fn mint(&self, config: &Config, now: u64) -> Result<String, TokenError> {
        let path = self.key.as_ref().or(config.token_key.as_ref()).ok_or(TokenError::NoKey)?;
        let fault = |error| TokenError::Key { path: path.clone(), error };
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| TokenError::Unreadable { path: path.clone(), error })?;
        let key = SigningKey::from_text(&text).map_err(fault)?;
        let scopes = self.scopes.iter().copied().collect();
        let grant = Grant {
            conversations: self.conversations.iter().cloned().collect(),
            expect: config.expect(),
            ..Grant::new(self.user.clone(), scopes, self.ttl.0.div_ceil(1000))
        };
        mint(&key, &grant, now).map_err(fault)
    }
}

fn lifetime(text: &str) -> Result<Span, String> {
    let span = Span::parse(text)?;
    if span.0 == 0 { Err("must be longer than zero".to_owned()) } else { Ok(span) }
}
