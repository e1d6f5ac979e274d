//! All policy in memory: restrictions, blocks, contacts and privacy, in exact and compact structures.
//!
//! [`PolicyIndex`] answers the rule of [`rollcall_core::policy`] millions of times a second. A Bloom filter is in front of
//! the exact tables. A miss means default privacy and no block; a hit is confirmed in the tables.
//!
//! Deliberately absent: the rule itself, which is in `rollcall-core`; I/O; and limits, which the store enforces.

mod bloom;
mod filter;
mod hashing;
mod interner;
mod number_set;
mod pair_set;
mod policy_index;
mod user_flags;

pub use bloom::{BloomFilter, false_positive_rate};
pub use filter::{BITS_PER_KEY, FilterStats, ShardedFilter, Upkeep};
pub use policy_index::{Counts, PolicyIndex};
