//! The conversion between the types of `wit/` and the types of `rollcall-core` and `rollcall-functions`: the only one.
//!
//! This folder is compiled once for each set of bindings (`guest`, `host`), which have the same names and fields. `From`
//! where every value converts; `TryFrom` where ids are checked, because what arrives from another component is foreign
//! input. Every `match` lists all cases: a new one in the contract stops the build here and nowhere else.

/// Both directions of an enum whose cases have the same names.
macro_rules! same_cases {
    ($wit:ty, $core:ty, [$($case:ident),+]) => {
        impl From<$wit> for $core {
            fn from(value: $wit) -> Self {
                match value {
                    $(<$wit>::$case => Self::$case,)+
                }
            }
        }

        impl From<$core> for $wit {
            fn from(value: $core) -> Self {
                match value {
                    $(<$core>::$case => Self::$case,)+
                }
            }
        }
    };
}

mod functions;
mod policy;
mod sessions;
mod types;

pub use types::views;

use rollcall_core::{Error, Invalid, Span};

use super::wit;

/// A duration in the 32 bits of the contract, which hold 49 days. A longer one is cut.
fn ms(span: Span) -> u32 {
    u32::try_from(span.0).unwrap_or(u32::MAX)
}

fn span(ms: u32) -> Span {
    Span(u64::from(ms))
}

/// Converts every item, or fails with the first that is invalid.
pub fn all<W, T: TryFrom<W, Error = Invalid>>(items: Vec<W>) -> Result<Vec<T>, Invalid> {
    items.into_iter().map(T::try_from).collect()
}

/// Converts items that are always valid.
pub fn each<W, T: From<W>>(items: Vec<W>) -> Vec<T> {
    items.into_iter().map(T::from).collect()
}

/// The answer to a batch, from a function or a capability.
pub fn answers<W, T: From<W>>(
    answers: Result<Vec<Result<W, wit::types::Error>>, wit::types::Error>,
) -> Result<Vec<Result<T, Error>>, Error> {
    Ok(answers?.into_iter().map(|answer| Ok(answer?.into())).collect())
}

/// The same, for answers that contain ids.
pub fn checked_answers<W, T: TryFrom<W, Error = Invalid>>(
    answers: Result<Vec<Result<W, wit::types::Error>>, wit::types::Error>,
) -> Result<Vec<Result<T, Error>>, Error> {
    Ok(answers?.into_iter().map(|answer| Ok(T::try_from(answer?)?)).collect())
}

/// The answer to a batch, for the caller.
pub fn replies<T, W: From<T>>(answers: Vec<Result<T, Error>>) -> Vec<Result<W, wit::types::Error>> {
    answers.into_iter().map(|answer| answer.map(W::from).map_err(Into::into)).collect()
}

#[cfg(test)]
mod tests;
