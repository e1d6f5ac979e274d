//! Minting tokens. What a real service does in its own backend, for trying out and for scripts.

use std::path::PathBuf;

use clap::Args;
use rollcall_api::{Grant, KeyError, Scope, SigningKey, mint};
use rollcall_core::{ConversationId, Span, UserId};
use thiserror::Error;

use super::flags::AccessFlags;
use crate::config::{Config, Value};

/// Why no token was made.
#[derive(Debug, Error)]
pub enum TokenFault {
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

/// What a token is to say, and with what to sign it.
#[derive(Debug, Clone, Args)]
pub struct TokenArgs {
    /// Whom the token names
    #[arg(long, value_name = "USER", value_parser = |text: &str| UserId::parse(text).map_err(|invalid| invalid.rule))]
    pub user: UserId,
    /// What it allows beyond being oneself: `service` acts for anybody, `admin` restricts accounts and reads everybody's
    /// devices, choices (also invisibility), notes and last seen; repeatable
    #[arg(long = "scope", value_name = "service|admin", value_parser = |text: &str| text.parse::<Scope>().map_err(|invalid| invalid.rule))]
    pub scopes: Vec<Scope>,
    /// A conversation in which the user takes part, so that they may type in it and see who does; `*` is any; repeatable
    #[arg(long = "conversation", value_name = "ID", value_parser = |text: &str| ConversationId::parse(text).map_err(|invalid| invalid.rule))]
    pub conversations: Vec<ConversationId>,
    /// For how long it holds
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    pub ttl: Span,
    /// The file with the secret or private key to sign with; without it, token_key, if that is a secret
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The settings about tokens: issuer and audience go into the token.
    #[command(flatten)]
    pub settings: AccessFlags,
}

impl TokenArgs {
    /// Makes the token at `now` in Unix seconds.
    pub fn mint(&self, config: &Config, now: u64) -> Result<String, TokenFault> {
        let path = self.key.as_ref().or(config.token_key.as_ref()).ok_or(TokenFault::NoKey)?;
        let fault = |error| TokenFault::Key { path: path.clone(), error };
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| TokenFault::Unreadable { path: path.clone(), error })?;
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
    if span.0 == 0 { Err("is no time at all".to_owned()) } else { Ok(span) }
}
