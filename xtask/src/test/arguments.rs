//! The arguments of `cargo xtask test`: which are for cargo, which choose tests by name, which are for the test harness.

use anyhow::{Context, Result};

/// Options of `cargo test` that take their value from the next argument.
const WITH_VALUE: [&str; 15] = [
    "--exclude",
    "--test",
    "--bin",
    "--example",
    "--bench",
    "-F",
    "--features",
    "--profile",
    "--target",
    "--target-dir",
    "--manifest-path",
    "-j",
    "--jobs",
    "--color",
    "--config",
];

/// Options that select targets. Cargo runs doc tests only when none of them is given.
const TARGETS: [&str; 10] = [
    "--lib",
    "--bins",
    "--bin",
    "--examples",
    "--example",
    "--tests",
    "--test",
    "--benches",
    "--bench",
    "--all-targets",
];

/// The command line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arguments {
    /// The packages of `-p`; all if there are none.
    pub(super) packages: Vec<String>,
    /// Other options for cargo: `--test presence`.
    pub(super) cargo: Vec<String>,
    /// Parts of test names. A test runs if its name contains one of them; all run if there are none.
    pub(super) names: Vec<String>,
    /// What follows `--`, for the test harness: `--nocapture`.
    pub(super) harness: Vec<String>,
    /// `--spin`, `--spin=PATH`: run the tests that need Spin, on each of these programs.
    pub(super) spins: Vec<String>,
    /// `--wasmtime`: run the tests that need `wasmtime serve`.
    pub(super) wasmtime: bool,
}

impl Arguments {
    /// Reads the arguments after `cargo xtask test`.
    pub(super) fn parse(args: &[String]) -> Self {
        let mut parsed = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => parsed.harness.extend(words.by_ref().cloned()),
                "--spin" => parsed.spins.push("spin".to_owned()),
                option if option.starts_with("--spin=") => {
                    parsed.spins.extend(option.split_once('=').map(|(_, program)| program.to_owned()));
                }
                "--wasmtime" => parsed.wasmtime = true,
                "-p" | "--package" => parsed.packages.extend(words.next().cloned()),
                option if option.starts_with("--package=") => {
                    parsed.packages.extend(option.split_once('=').map(|(_, name)| name.to_owned()));
                }
                option if option.starts_with('-') => {
                    parsed.cargo.push(word.clone());
                    if WITH_VALUE.contains(&option) {
                        parsed.cargo.extend(words.next().cloned());
                    }
                }
                _ => parsed.names.push(word.clone()),
            }
        }
        parsed
    }

    /// Whether cargo is told which test file to run; only native packages have them.
    pub(super) fn selects_test_files(&self) -> bool {
        self.cargo.iter().any(|arg| option(arg) == "--test")
    }

    /// Whether the doc tests are part of the run.
    pub(super) fn includes_doc_tests(&self) -> bool {
        !self.cargo.iter().any(|arg| TARGETS.contains(&option(arg)))
    }

    /// Whether the tests in TypeScript are part of the run: unless an option is given, because options are for cargo.
    pub(super) fn includes_web_tests(&self) -> bool {
        self.packages.is_empty() && self.cargo.is_empty()
    }

    /// How many test binaries may run at once, if `-j` limits it.
    pub(super) fn jobs(&self) -> Result<Option<usize>> {
        let next = |name: &&str| *name == "-j" || *name == "--jobs";
        let mut words = self.cargo.iter().map(String::as_str);
        let Some(_) = words.find(next) else { return Ok(None) };
        let number = words.next().context("`-j` needs a number")?;
        Ok(Some(number.parse().with_context(|| format!("`-j {number}` is not a number"))?))
    }

    /// Whether tests print as they go, so that their output must not be held back.
    pub(super) fn shows_output(&self) -> bool {
        self.harness.iter().any(|arg| arg == "--nocapture" || arg == "--no-capture")
    }

    /// The arguments of a test binary. Tests of other hosts are ignored unless they are asked for; each has its host in its
    /// name.
    pub(super) fn for_harness(&self) -> Vec<String> {
        let mut args = self.names.clone();
        args.extend(self.harness.iter().cloned());
        let skipped = match (!self.spins.is_empty(), self.wasmtime) {
            (false, false) => return args,
            (true, true) => None,
            (true, false) => Some("on_wasmtime"),
            (false, true) => Some("on_spin"),
        };
        args.push("--include-ignored".to_owned());
        args.extend(skipped.into_iter().flat_map(|name| ["--skip".to_owned(), name.to_owned()]));
        args
    }
}

/// The option without the value that may follow it: `--test=presence` is `--test`.
fn option(arg: &str) -> &str {
    arg.split('=').next().unwrap_or(arg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Arguments {
        Arguments::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_names_and_harness_arguments_are_separated() {
        let parsed = parse("-p rollcall-core second_device --profile x --package=xtask -- --nocapture --exact");
        assert_eq!(
            (parsed.packages.join(" ").as_str(), parsed.cargo.join(" ").as_str()),
            ("rollcall-core xtask", "--profile x")
        );
        assert_eq!(parsed.names, ["second_device"]);
        assert_eq!(parsed.harness, ["--nocapture", "--exact"]);
        assert!(parsed.shows_output());
    }

    #[test]
    fn other_hosts_run_only_on_request() {
        let harness = |text: &str| parse(text).for_harness().join(" ");
        assert_eq!(harness("topology -- --nocapture"), "topology --nocapture");
        assert_eq!(
            harness("--spin=/opt/spin-4.0/spin --spin topology"),
            "topology --include-ignored --skip on_wasmtime"
        );
        assert_eq!(harness("--wasmtime -- --nocapture"), "--nocapture --include-ignored --skip on_spin");
        assert_eq!(harness("--spin --wasmtime topology"), "topology --include-ignored");
    }

    #[test]
    fn options_for_cargo_leave_out_web_tests() {
        assert!(parse("").includes_web_tests() && parse("-- --include-ignored").includes_web_tests());
        assert!(parse("topology").includes_web_tests());
        assert!(!parse("-p rollcall-core").includes_web_tests() && !parse("--test topology").includes_web_tests());
    }

    #[test]
    fn target_selection_leaves_out_doc_tests() {
        assert!(parse("-p rollcall-core topology").includes_doc_tests());
        for text in ["--lib", "--test topology", "--test=topology", "--all-targets"] {
            assert!(!parse(text).includes_doc_tests(), "{text}");
        }
    }

    #[test]
    fn jobs_are_limited_by_cargos_option() -> Result<()> {
        assert_eq!(
            (parse("").jobs()?, parse("-j 1").jobs()?, parse("--jobs 3 topology").jobs()?),
            (None, Some(1), Some(3))
        );
        assert!(parse("-j").jobs().is_err() && parse("-j many").jobs().is_err());
        Ok(())
    }
}
