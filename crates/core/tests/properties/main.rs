//! Properties of the rules, checked against a naive model.
//!
//! There are two kinds of input: *histories*, lists of events of one user, applied through the rules as a store does;
//! and *sessions* of arbitrary parts, because a stored session need not be one that this code wrote.
//! Times span a few dozen milliseconds, so that the model can check every one.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod histories;
mod model;
mod sessions;
mod typing;

use proptest::test_runner::{Config, RngSeed};
use rollcall_core::settle::Decision;
use rollcall_core::{Rules, Session, Span, Time};

/// Like `Rules::STANDARD`, a thousand times faster and in other proportions.
pub(crate) const RULES: Rules = Rules {
    interval: Span(15),
    tolerance: Span(5),
    idle_after: Span(30),
    grace: Span(8),
    typing_ttl: Span(5),
    evict_after: Span(3),
    watch_limit: 20,
};

/// The seed is fixed, so that a property fails for the change that breaks it. Other cases:
/// `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test -p rollcall-core --test properties`.
pub(crate) fn config(cases: u32) -> Config {
    let default = Config::default();
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(1) } else { default.rng_seed };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    Config { cases, rng_seed, failure_persistence: None, ..default }
}

/// Applies a decision as a store does.
pub(crate) fn apply(session: &mut Session, decision: Decision) {
    session.next = decision.next;
    session.choice = decision.choice.or(session.choice.take());
    session.published = decision.publish.or(session.published.take());
    let by = decision.prune_expired_by;
    session.devices.retain(|device| by == Time(0) || device.expires_at > by);
    session.revision.commits += 1;
}
