//! Visibility: the rule, [`Relation::verdict`], and the changes that can be made to what it depends on.
//!
//! `rollcall-policy` answers the rule from memory.

mod change;
mod relation;

pub use change::{Invalidation, Numbers, PAGE_BYTES, PAGE_NUMBERS, PolicyChange, number_of};
pub use relation::{Audience, OwnSettings, Privacy, Relation, Ruling, Verdict};

/// The most contacts, and the most blocks, of one user: more than anyone needs, and few enough that one user cannot fill
/// the memory of every host.
pub const MAX_LISTED: usize = 10_000;

/// The most subjects of one check.
pub const MAX_SUBJECTS: usize = 10_000;
