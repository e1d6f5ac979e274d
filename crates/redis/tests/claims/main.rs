//! The capabilities on a real Redis: every claim that the stores are held to, and what only they promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../../store/tests/archive_suite/mod.rs"]
#[allow(dead_code, reason = "the suite is for all archives, and has more for those of a database")]
mod archive_suite;
mod connection;
mod mixed;
mod outages;
#[path = "../../../store/tests/policy_suite/mod.rs"]
#[allow(dead_code, reason = "as above")]
mod policy_suite;
mod probed;
#[path = "../remote/mod.rs"]
#[allow(dead_code, reason = "as above")]
mod remote;
#[path = "../../../store/tests/suite/mod.rs"]
#[allow(dead_code, reason = "as above")]
mod suite;
mod suites;
mod time_probe;
#[path = "../../../store/tests/topics_suite/mod.rs"]
#[allow(dead_code, unused_macros, reason = "what nobody can hear without listening is not claimed here")]
mod topics_suite;
mod typing;
