//! Who may see whom.
//!
//! The rule is one function, [`Relation::verdict`]. Everything else here is about answering it millions of times a second
//! from memory: [`PolicyIndex`] holds everything that anybody set, in structures that are exact and small.

mod change;
mod filter;
mod hashing;
mod lines;
mod names;
mod numbers;
mod pairs;
mod policy_index;
mod relation;
mod standing;

pub use change::{Change, Invalidation, Numbers, PAGE_BYTES, PAGE_NUMBERS, number_of};
pub use filter::{BITS_PER_KEY, Filter, FilterStats, Upkeep};
pub use lines::{Lines, false_positive_rate};
pub use policy_index::{Census, PolicyIndex};
pub use relation::{Audience, Privacy, Relation, Ruling, Verdict};

/// The most contacts, and the most blocks, that one person may have: more than anybody needs, and little enough that one
/// person cannot fill everybody's memory.
pub const MAX_LISTED: usize = 10_000;

/// The most subjects of one check.
pub const MAX_SUBJECTS: usize = 10_000;
