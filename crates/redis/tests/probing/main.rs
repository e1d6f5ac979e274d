//! The capabilities on a real Redis: the stores' suites, and what only the capabilities promise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../../store/tests/archive_suite/mod.rs"]
#[allow(dead_code, reason = "the suite is for all archives, and has more for database archives")]
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
#[allow(dead_code, unused_macros, reason = "claims that need a subscription are not tested here")]
mod topics_suite;
mod typing;
