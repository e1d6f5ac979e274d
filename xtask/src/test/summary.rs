//! The result of a test run: counts, failures, tests that were not run, and the slowest tests.

use std::time::Duration;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// The sum of all suites. A suite is one test binary, the doc tests of one crate, or one test file in TypeScript.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) suites: u32,
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) ignored: u32,
    /// The names of the tests that failed.
    pub(crate) failures: Vec<String>,
    /// The names of the tests that were not run, each with the reason.
    pub(crate) not_run: Vec<String>,
    /// How long each test took.
    pub(crate) times: Vec<(Duration, String)>,
}

impl Summary {
    /// Counts one line of the output of libtest. `suite` is the prefix of the names in the list of the slowest tests.
    pub(crate) fn read(&mut self, suite: &str, line: &str) {
        if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let (outcome, time) = split_time(outcome);
            if outcome == "FAILED" {
                self.failures.push(name.to_owned());
            }
            if let Some(reason) = outcome.strip_prefix("ignored") {
                self.not_run.push(format!("{name}: {}", reason.trim_start_matches([',', ' '])));
            }
            self.times.extend(time.map(|time| (time, format!("{suite}: {name}"))));
        }
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        self.suites += 1;
        for count in counts.split("; ") {
            match count.split_once(' ').map(|(number, what)| (number.parse::<u32>(), what)) {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                Some((Ok(number), "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds the counts of another summary.
    pub(crate) fn add(&mut self, other: Self) {
        self.suites += other.suites;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend(other.failures);
        self.not_run.extend(other.not_run);
        self.times.extend(other.times);
    }

    /// The slowest tests, the tests that were not run, the failures, and as the last line the counts.
    pub(crate) fn text(&self) -> String {
        let not_run = self.not_run.iter().map(|test| format!("  not run: {test}\n"));
        let failures = self.failures.iter().map(|name| format!("  failed: {name}\n"));
        let mut text = self.slowest().chain(not_run).chain(failures).collect::<String>();
        text.push_str(&format!("{} suites: {} passed, {} failed", self.suites, self.passed, self.failed));
        if self.ignored > 0 {
            text.push_str(&format!(", {} not run", self.ignored));
        }
        text
    }

    fn slowest(&self) -> impl Iterator<Item = String> {
        let mut times = self.times.iter().collect::<Vec<_>>();
        times.sort_by(|one, other| other.cmp(one));
        times
            .into_iter()
            .take(SLOWEST)
            .map(|(time, name)| format!("  slowest: {:>6.1} s  {name}\n", time.as_secs_f64()))
    }
}

/// Splits `ok <1.250s>` into the outcome and the time.
fn split_time(outcome: &str) -> (&str, Option<Duration>) {
    let Some((word, time)) = outcome.strip_suffix("s>").and_then(|rest| rest.rsplit_once(" <")) else {
        return (outcome, None);
    };
    match time.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => (word, Some(time)),
        None => (outcome, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Summary {
        let mut summary = Summary::default();
        lines.iter().for_each(|line| summary.read("suite", line));
        summary
    }

    #[test]
    fn lines_of_all_suites_add_up() {
        let summary = read(&[
            "running 3 tests",
            "test late_beat_beats_the_sweep ... ok",
            "test ghost_is_bounded ... FAILED",
            "test on_spin ... ignored, it needs Spin",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s",
            "test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ]);
        let lines = "  not run: on_spin: it needs Spin\n  failed: ghost_is_bounded\n";
        assert_eq!(summary.text(), format!("{lines}2 suites: 42 passed, 1 failed, 2 not run"));
    }

    #[test]
    fn slowest_tests_come_first() {
        let summary = read(&["test a ... ok <0.002s>", "test b ... FAILED <12.300s>", "test c - should panic ... ok"]);
        let slowest = "  slowest:   12.3 s  suite: b\n  slowest:    0.0 s  suite: a\n";
        assert_eq!(summary.text(), format!("{slowest}  failed: b\n0 suites: 0 passed, 0 failed"));
    }

    #[test]
    fn slowest_tests_are_at_most_ten() {
        let lines = (0..20).map(|number| format!("test t{number} ... ok <{number}.000s>")).collect::<Vec<_>>();
        let lines = lines.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(read(&lines).text().matches("slowest").count(), SLOWEST);
    }
}
