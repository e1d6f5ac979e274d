//! What Redis stores, and how: key names, fields, scripts, commands and decoding of replies.
//!
//! There is no I/O here, no clock and no client library. A transport sends [`Commands`] and passes the replies back,
//! each flattened to [`Piece`]s: nulls, integers and bytes, which every client library can produce. `docs/KEYSPACE.md`
//! lists every key; a test compares it with this code.

mod command;
mod commit;
mod due_scan;
mod fields;
mod keys;
mod last_seen;
mod membership;
mod payload;
mod policy;
mod queues;
mod record;
mod reply;
mod script;
mod session;
mod slot;
mod time_probe;
mod touch;
mod typing;
mod watchers;

pub use command::{Command, Commands};
pub use commit::{Publishing, Stamped, decode_outcome};
pub use due_scan::{DueScan, PageRequest, Queue};
pub use fields::FIELDS;
pub use keys::{BadPrefix, Channel, KEYS, Key, Keyspace};
pub use membership::{MISSED_AFTER, decode_hosts};
pub use payload::{decode_payload, encode_payload};
pub use policy::{
    BUCKETS, ChangeKey, Changed, Entry, Logging, POLICY_FIELDS, Part, Read, Slice, changes_of, decode_blocks,
    decode_bucket, decode_changed, decode_end, decode_log, decode_numbers, decode_pages, decode_restricted,
    decode_settings, decode_slice, decode_subject_side, pages_of,
};
pub use queues::{decode_member_scores, decode_score};
pub use record::{decode_alive, decode_published, decode_record};
pub use reply::{BadReply, Piece};
pub use rollcall_core::{DEFAULT_SHARDS, shard_of};
pub use script::Script;
pub use session::{RecordGrace, decode_outage_grace, decode_session};
pub use slot::{SLOTS, slot_of};
pub use time_probe::{ProbeReply, TimeProbe, decode_probe};
pub use touch::{Deadline, Sent, TouchReply, Touching, decode_prior};
pub use typing::{TypingWrite, decode_typing, decode_typists, decode_wait};
pub use watchers::decode_count;
