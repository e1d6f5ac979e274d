//! Why a call failed, by what the caller can do about it. The same five cases as in the contract.

use thiserror::Error as ThisError;

/// Why a call, or one item of a batch, failed.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The input breaks a rule: correct it.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A batch has more items than this: split it.
    #[error("more than {0} at once")]
    TooMany(u32),
    /// The store is unavailable: retry after this many milliseconds.
    #[error("the store is unavailable; retry in {0} ms")]
    Unavailable(u32),
    /// The caller may not do this.
    #[error("not allowed")]
    Denied,
    /// Anything else; the text is for a log.
    #[error("{0}")]
    Other(String),
}

/// Which field breaks which rule.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("`{field}` {rule}")]
pub struct Invalid {
    /// The field, as the contract names it.
    pub field: String,
    /// The rule, as a clause: "is empty".
    pub rule: String,
}

impl Invalid {
    /// A broken rule about a field.
    pub fn new(field: &str, rule: impl Into<String>) -> Self {
        Self { field: field.to_owned(), rule: rule.into() }
    }
}
