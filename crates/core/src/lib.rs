//! The rules of presence: states, merging, transitions, deadlines and visibility.
//!
//! Everything here is a pure function of its arguments. There is no I/O, no clock and no async: `now` is always an
//! argument, in the store's time. [`derive`] computes a user's state, [`deadline`] when it can change by itself, and
//! [`settle`] and [`choose`] what to commit.
//!
//! Deliberately absent: serialisation (the edge owns its formats) and storage (`crates/redis` owns the keys).

mod error;
mod id;
mod ids;
mod record;
mod rules;
mod session;
mod shard;
mod time;

pub mod choose;
pub mod deadline;
pub mod derive;
pub mod heartbeat;
pub mod policy;
pub mod settle;
pub mod typing;
pub mod visibility;

pub use error::{Error, Invalid};
pub use id::{ConversationId, DeviceId, Id, MAX_ID_BYTES, UserId};
pub use ids::{Ids, InvalidIds};
pub use record::{DeadlineState, Record};
pub use rules::Rules;
pub use session::{
    Choice, Device, DeviceKind, MAX_DEVICES, Moment, Next, Note, OutageGrace, Published, Revision, Session, Stance,
    State,
};
pub use shard::{DEFAULT_SHARDS, shard_of};
pub use time::{Span, Time};
