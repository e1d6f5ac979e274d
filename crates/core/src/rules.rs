//! The settings that the functions decide by.

use crate::{Invalid, Span};

/// Intervals, timeouts and limits. `Default` is `STANDARD`; the other presets come from published designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// `d`: how often a device beats.
    pub interval: Span,
    /// `ε`: how late a beat may be.
    pub tolerance: Span,
    /// How long after its last use a live device counts as idle.
    pub idle_after: Span,
    /// How long a device outlives a dropped connection.
    pub grace: Span,
    /// How long a typing signal lasts.
    pub typing_ttl: Span,
    /// How long after going offline a session is archived and dropped from the hot store.
    pub evict_after: Span,
    /// The most users one subscription may watch at once, and the most conversations.
    pub watch_limit: u32,
}

impl Rules {
    /// Beats every 30 s, dead after 45 s: the default.
    pub const STANDARD: Rules = Rules {
        interval: Span::seconds(30),
        tolerance: Span::seconds(15),
        idle_after: Span::seconds(300),
        grace: Span::seconds(30),
        typing_ttl: Span::seconds(5),
        // Long enough that a page reload is not an archive write, and that on Redis a steady beat can rely on its cached
        // deadline: an interval, its tolerance and 3 s (ADR 11). Short enough that killing the embedded store loses little.
        evict_after: Span::seconds(60),
        watch_limit: 20,
    };

    /// Beats every 30 s, dead after 90 s: two beats may be lost.
    pub const LENIENT: Rules = Rules { tolerance: Span::seconds(60), ..Self::STANDARD };

    /// Beats every 15 s, dead after 30 s: fast detection.
    pub const BRISK: Rules = Rules { interval: Span::seconds(15), tolerance: Span::seconds(15), ..Self::STANDARD };

    /// The preset of this name: `standard` (30/45), `lenient` (30/90) or `brisk` (15/30).
    pub fn preset(name: &str) -> Option<Rules> {
        match name {
            "standard" => Some(Self::STANDARD),
            "lenient" => Some(Self::LENIENT),
            "brisk" => Some(Self::BRISK),
            _ => None,
        }
    }

    /// How long one beat keeps its device alive: `d + ε`.
    pub fn alive_for(&self) -> Span {
        self.interval + self.tolerance
    }

    /// Refuses values that cannot work.
    pub fn check(&self) -> Result<(), Invalid> {
        let max = Span::seconds(86_400);
        let bounds = [
            ("interval", self.interval, Span(100)),
            ("tolerance", self.tolerance, Span(50)),
            ("idle_after", self.idle_after, Span(100)),
            ("grace", self.grace, Span(0)),
            ("typing_ttl", self.typing_ttl, Span(100)),
            // With zero, a user who is evicted and back within a millisecond would get the same version twice.
            ("evict_after", self.evict_after, Span(1)),
        ];
        for (field, span, min) in bounds {
            if span < min || span > max {
                return Err(Invalid::new(field, format!("is not between {} ms and 24 h", min.0)));
            }
        }
        if self.watch_limit == 0 || self.watch_limit > 1024 {
            return Err(Invalid::new("watch_limit", "is not between 1 and 1024"));
        }
        Ok(())
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::STANDARD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_reproduce_the_published_designs() {
        let alive = |name| Rules::preset(name).map(|r: Rules| (r.interval.0 / 1000, r.alive_for().0 / 1000));
        assert_eq!(alive("standard"), Some((30, 45)));
        assert_eq!(alive("lenient"), Some((30, 90)));
        assert_eq!(alive("brisk"), Some((15, 30)));
        assert_eq!(alive("none"), None);
        assert_eq!(Rules::default().check(), Ok(()));
    }

    #[test]
    fn invalid_rules_name_the_field() {
        let rules = Rules { interval: Span(10), ..Rules::default() };
        assert_eq!(rules.check().map_err(|e| e.field), Err("interval".to_owned()));
    }
}
