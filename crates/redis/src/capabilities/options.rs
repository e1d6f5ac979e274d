//! Settings by name. Every setting is text; an invalid one is an error that names it.

use std::str::FromStr;

use crate::keyspace::DEFAULT_SHARDS;
use rollcall_core::{Rules, Span};

/// How many policy changes each log keeps: the host's default.
const POLICY_LOG: u32 = 50_000;

/// The most shards, as in the host's configuration.
const MAX_SHARDS: u32 = 16_384;

/// Options of the capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How many shards there are; at least one. The same for every host and adapter that shares the Redis.
    pub shards: u32,
    /// How long devices have to beat again after Redis was unreachable: one full `d + ε`.
    pub outage_grace: Span,
    /// How many policy changes each log keeps; at least one.
    pub policy_log: u32,
}

impl Options {
    /// The options that follow from these rules, and defaults for the rest.
    pub fn of(rules: &Rules) -> Self {
        Self { shards: DEFAULT_SHARDS, outage_grace: rules.alive_for(), policy_log: POLICY_LOG }
    }
}

/// The rules from the settings; a rule that is not set is as in [`Rules::STANDARD`].
pub fn rules(get: impl Fn(&str) -> Option<String>) -> Result<Rules, String> {
    let span = |name: &str, standard: Span| number(&get, name, standard.0).map(Span);
    let standard = Rules::STANDARD;
    let rules = Rules {
        interval: span("interval_ms", standard.interval)?,
        tolerance: span("tolerance_ms", standard.tolerance)?,
        idle_after: span("idle_after_ms", standard.idle_after)?,
        grace: span("grace_ms", standard.grace)?,
        typing_ttl: span("typing_ttl_ms", standard.typing_ttl)?,
        evict_after: span("evict_after_ms", standard.evict_after)?,
        watch_limit: number(&get, "watch_limit", standard.watch_limit)?,
    };
    match rules.check() {
        Ok(()) => Ok(rules),
        // `watch_limit` is the one rule that is not a time, so its name has no unit.
        Err(invalid) if invalid.field == "watch_limit" => Err(invalid.to_string()),
        Err(invalid) => Err(format!("`{}_ms` {}", invalid.field, invalid.rule)),
    }
}

/// The options under these rules.
pub fn options(get: &impl Fn(&str) -> Option<String>, rules: &Rules) -> Result<Options, String> {
    let options = Options::of(rules);
    let shards = number(get, "shards", options.shards)?;
    if shards == 0 || shards > MAX_SHARDS {
        return Err(format!("`shards` is not between 1 and {MAX_SHARDS}"));
    }
    Ok(Options { shards, ..options })
}

/// A number. If it is unset or empty, the default.
fn number<T: FromStr>(get: impl Fn(&str) -> Option<String>, name: &str, standard: T) -> Result<T, String> {
    match get(name).as_deref().map(str::trim) {
        None | Some("") => Ok(standard),
        Some(text) => text.parse().map_err(|_| format!("`{name}` is not a whole number that fits: {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
    }

    #[test]
    fn unset_settings_use_the_defaults() {
        assert_eq!(rules(|_| None), Ok(Rules::STANDARD));
        assert_eq!(rules(|_| Some(String::new())), Ok(Rules::STANDARD));
        let expected = Options { shards: 256, outage_grace: Span::seconds(45), policy_log: 50_000 };
        assert_eq!(options(&|_: &str| None, &Rules::STANDARD), Ok(expected));
    }

    #[test]
    fn set_values_are_used() {
        let get = with(&[("interval_ms", "15000"), ("tolerance_ms", " 5000 "), ("watch_limit", "7"), ("shards", "16")]);
        let set = rules(&get);
        let expected = Rules { interval: Span(15_000), tolerance: Span(5_000), watch_limit: 7, ..Rules::STANDARD };
        assert_eq!(set, Ok(expected));
        let options = options(&get, &expected).map(|options| (options.shards, options.outage_grace));
        assert_eq!(options, Ok((16, Span(20_000))));
    }

    #[test]
    fn errors_name_the_invalid_setting() {
        let wrong = [("interval_ms", "30s"), ("interval_ms", "1"), ("grace_ms", "-1"), ("watch_limit", "0")];
        for (name, text) in wrong {
            let said = rules(with(&[(name, text)])).err().unwrap_or_default();
            assert!(said.contains(&format!("`{name}`")), "{name} = {text}: {said}");
        }
        for text in ["0", "16385", "many"] {
            let said = options(&with(&[("shards", text)]), &Rules::STANDARD).err().unwrap_or_default();
            assert!(said.contains("`shards`"), "{text}: {said}");
        }
    }
}
