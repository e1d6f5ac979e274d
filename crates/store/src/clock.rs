//! The clock of a store in this process. It must never go backwards while the process runs:
//! a beat would be older than the one before it, and a deadline would pass twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rollcall_core::{Span, Time};

/// A clock. Clones share their source.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The wall clock, read once, plus the monotonic time since. If the wall clock is set forward or back while the
    /// process runs, devices neither expire at once nor stay alive.
    System { started_at: Time, started: Instant },
    /// The time that a test set.
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Source::System { started_at: Time(wall.as_millis() as u64), started: Instant::now() })
    }

    /// A clock that only [`Self::advance`] moves, for tests.
    pub fn manual(now: Time) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now.0))))
    }

    /// The current time.
    pub fn now(&self) -> Time {
        match &self.0 {
            Source::System { started_at, started } => *started_at + Span(started.elapsed().as_millis() as u64),
            Source::Manual(now) => Time(now.load(Ordering::SeqCst)),
        }
    }

    /// Advances a manual clock; has no effect on the system clock.
    pub fn advance(&self, span: Span) {
        if let Source::Manual(now) = &self.0 {
            now.fetch_add(span.0, Ordering::SeqCst);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_never_goes_back() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let clock = Clock::system();
        let mut last = clock.now();
        assert!(last.0 >= wall && last.0 < wall + 60_000);
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn clones_share_a_manual_clock() {
        let clock = Clock::manual(Time(5));
        clock.clone().advance(Span(7));
        assert_eq!(clock.now(), Time(12));
    }
}
