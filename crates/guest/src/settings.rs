//! The rules in force, asked for once per call.

use rollcall_core::{Rules, Span};

use crate::wit::settings;

/// The rules in force for this call.
pub fn rules() -> Rules {
    let rules = settings::current();
    let span = |ms: u32| Span(u64::from(ms));
    Rules {
        interval: span(rules.interval_ms),
        tolerance: span(rules.tolerance_ms),
        idle_after: span(rules.idle_after_ms),
        grace: span(rules.grace_ms),
        typing_ttl: span(rules.typing_ttl_ms),
        evict_after: span(rules.evict_after_ms),
        watch_limit: rules.watch_limit,
    }
}
