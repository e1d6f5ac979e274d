//! Runs compiled test binaries, several at a time.
//!
//! `cargo test` runs one binary after another. Most of ours wait for real servers and real time, so a machine with two cores
//! is idle for most of such a run. Here one binary runs for each core, up to four. Binaries that load the machine run at the
//! end, alone.
//!
//! The output of a suite is printed in one piece when it ends. A suite that fails does not stop the others, and no test is
//! tried twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{self, announce};
use crate::test::SPINS;
use crate::test::arguments::Arguments;
use crate::test::summary::Summary;
use crate::workspace::Workspace;

/// Suites that use all cores by themselves: simulations, properties, thousands of connections. Beside others they would delay
/// beats that those count on, or be delayed.
const ALONE: [&str; 5] = ["flapping", "gateway_crowds", "gateway_faults", "properties", "simulation"];

/// The most binaries at once. Each runs as many tests at once as there are cores, and a test starts several servers.
const MAX_JOBS: usize = 4;

/// One test binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Suite {
    /// The package and the target: `rollcall-tests presence`.
    name: String,
    /// The folder of the package, which tests expect to run in.
    folder: PathBuf,
    executable: PathBuf,
}

impl Suite {
    /// The suite that a line of `cargo test --no-run --message-format=json` reports, if it reports one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let is_test = message.pointer("/profile/test").and_then(Value::as_bool)?;
        if text("/reason") != Some("compiler-artifact") || !is_test {
            return None;
        }
        let folder = Path::new(text("/manifest_path")?).parent()?;
        let package = folder.file_name()?.to_str()?;
        let name = format!("{package} {}", text("/target/name")?);
        Some(Self { name, folder: folder.to_owned(), executable: text("/executable")?.into() })
    }

    fn is_alone(&self) -> bool {
        self.name.split(' ').next_back().is_some_and(|target| ALONE.contains(&target))
    }
}

/// How test binaries are run.
pub(super) struct Runner {
    args: Vec<String>,
    /// How many run at once.
    jobs: usize,
    /// Whether output is shown as it comes.
    is_live: bool,
    /// The programs of `--spin`, for the tests that need Spin.
    spins: Vec<String>,
    /// Where cargo builds, which tests find the `rollcall` binary by.
    target: PathBuf,
    /// Where output is shown.
    screen: fn() -> Box<dyn Write>,
}

/// The result of one suite.
struct Outcome {
    summary: Summary,
    /// Why the run as a whole failed, if not by failed tests alone.
    broken: Option<String>,
}

impl Runner {
    /// A runner that hands these arguments to every binary. `jobs` limits how many run at once.
    pub(super) fn new(workspace: &Workspace, args: &Arguments, is_live: bool) -> Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let jobs = if is_live { 1 } else { args.jobs()?.unwrap_or(cores.min(MAX_JOBS)).max(1) };
        let (target, spins) = (workspace.target.clone(), args.spins.clone());
        let screen: fn() -> Box<dyn Write> = || Box::new(std::io::stdout());
        Ok(Self { args: args.for_harness(), jobs, is_live, spins, target, screen })
    }

    /// Runs all suites. Adds up their results; returns other failures.
    pub(super) fn run(&self, suites: Vec<Suite>, summary: &mut Summary) -> Result<Vec<String>> {
        let timed = suites.first().is_some_and(|suite| self.can_time(suite));
        let (alone, together): (Vec<_>, Vec<_>) = suites.into_iter().partition(Suite::is_alone);
        // Taken from the end. The end-to-end tests come last in cargo's order and take longest, so they start first.
        let mut broken = self.pool(together, self.jobs, timed, summary)?;
        broken.extend(self.pool(alone, 1, timed, summary)?);
        Ok(broken)
    }

    /// Runs these suites, `jobs` at a time.
    fn pool(&self, suites: Vec<Suite>, jobs: usize, timed: bool, summary: &mut Summary) -> Result<Vec<String>> {
        let queue = Mutex::new(suites);
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let done = Mutex::new((summary, Vec::new()));
        thread::scope(|scope| {
            let work = || -> Result<()> {
                while let Some(suite) = next() {
                    let outcome = self.suite(&suite, timed)?;
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.0.add(outcome.summary);
                    done.1.extend(outcome.broken);
                }
                Ok(())
            };
            let workers = (0..jobs).map(|_| scope.spawn(work)).collect::<Vec<_>>();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(_) => bail!("a thread that runs tests panicked"),
            })
        })?;
        Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).1)
    }

    fn suite(&self, suite: &Suite, timed: bool) -> Result<Outcome> {
        announce(&format!("test: {}", suite.name));
        let mut command = self.command(suite);
        command.args(&self.args);
        if timed {
            report_times(&mut command);
        }
        let mut screen = if self.is_live { (self.screen)() } else { Box::new(std::io::sink()) };
        let (output, is_success) = captured(&mut command, &mut screen)?;
        if !self.is_live {
            // In one call, so that two suites do not mix.
            let text = format!("\n     Running {}\n{output}", suite.name);
            (self.screen)().write_all(text.as_bytes())?;
        }
        let mut summary = Summary::default();
        output.lines().for_each(|line| summary.read(&suite.name, line));
        // Failed tests are in the summary. A binary that crashed has written none.
        let broken = (!is_success && summary.failed == 0).then(|| format!("{} did not run to its end", suite.name));
        Ok(Outcome { summary, broken })
    }

    /// The binary in its folder, with what cargo sets for a test at run time.
    fn command(&self, suite: &Suite) -> Command {
        let mut command = Command::new(&suite.executable);
        command.current_dir(&suite.folder);
        process::without_package_variables(&mut command);
        command.env("CARGO_MANIFEST_DIR", &suite.folder).env("CARGO_TARGET_DIR", &self.target);
        command.env(SPINS, self.spins.join(":"));
        command
    }

    /// Whether the harness reports the time of each test. Its option is unstable, so it may be gone one day.
    fn can_time(&self, suite: &Suite) -> bool {
        let mut command = self.command(suite);
        report_times(&mut command);
        command.arg("--list").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Has the harness report the time of each test. The variable admits unstable options in a stable harness; it is set only
/// where compiled tests run, not where anything is compiled.
fn report_times(command: &mut Command) {
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--report-time"]);
}

/// Runs the command to its end, copies what it prints to the screen as it comes, and returns it together with whether the
/// command succeeded.
fn captured(command: &mut Command, screen: &mut dyn Write) -> Result<(String, bool)> {
    let (reader, writer) = std::io::pipe()?;
    let (stdout, stderr) = (writer.try_clone()?, writer);
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    let mut child = child.with_context(|| format!("could not start {}", process::line(command)))?;
    // The command holds the writing ends. As long as it has them, reading does not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut lines = BufReader::new(reader);
    let (mut output, mut line) = (Vec::new(), Vec::new());
    while lines.by_ref().read_until(b'\n', &mut line)? > 0 {
        screen.write_all(&line)?;
        screen.flush()?;
        output.append(&mut line);
    }
    Ok((String::from_utf8_lossy(&output).into_owned(), child.wait()?.success()))
}

/// Runs doc tests, or whatever else cargo runs by itself; shows every line as it comes and counts it. Returns whether it
/// succeeded.
pub(super) fn cargo_tests(cargo: &mut Command, summary: &mut Summary) -> Result<bool> {
    announce(&process::line(cargo));
    let (output, is_success) = captured(cargo, &mut std::io::stdout())?;
    output.lines().for_each(|line| summary.read("doc tests", line));
    Ok(is_success)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(test: bool, executable: &Value) -> String {
        json!({
            "reason": "compiler-artifact",
            "manifest_path": "/repo/tests/Cargo.toml",
            "target": { "name": "presence" },
            "profile": { "test": test },
            "executable": executable,
        })
        .to_string()
    }

    #[test]
    fn only_compiled_tests_are_suites() {
        let executable = json!("/repo/target/debug/deps/presence-1");
        let suite = Suite::parse(&message(true, &executable));
        assert_eq!(suite.as_ref().map(|suite| suite.name.as_str()), Some("tests presence"));
        assert_eq!(suite.map(|suite| suite.folder), Some(PathBuf::from("/repo/tests")));
        for other in [message(false, &executable), message(true, &Value::Null), "warning: text".to_owned()] {
            assert_eq!(Suite::parse(&other), None);
        }
    }

    fn script(name: &str, text: &str) -> Suite {
        let script = "/bin/sh".into();
        let folder = std::env::temp_dir().join(format!("rollcall-xtask-{}-{name}", std::process::id()));
        let _ = (std::fs::create_dir_all(&folder), std::fs::write(folder.join("script"), text));
        Suite { name: name.to_owned(), folder, executable: script }
    }

    fn run(scripts: &[(&str, &str)]) -> Result<(Summary, Vec<String>)> {
        let suites = scripts.iter().map(|(name, text)| script(name, text)).collect::<Vec<_>>();
        let folders = suites.iter().map(|suite| suite.folder.clone()).collect::<Vec<_>>();
        let (args, target) = (vec!["script".to_owned()], PathBuf::from("target"));
        // Not on the real screen: a wrapper that counts test output would count the failures in these scripts.
        let runner =
            Runner { args, jobs: 2, is_live: false, spins: Vec::new(), target, screen: || Box::new(std::io::sink()) };
        let mut summary = Summary::default();
        let broken = runner.run(suites, &mut summary)?;
        folders.iter().try_for_each(std::fs::remove_dir_all)?;
        Ok((summary, broken))
    }

    #[test]
    fn failing_suite_does_not_hide_the_next() -> Result<()> {
        let (summary, broken) = run(&[
            ("a", "echo 'test result: ok. 1 passed; 0 failed'"),
            ("b", "echo 'test x ... FAILED'; echo 'test result: FAILED. 2 passed; 1 failed'; exit 101"),
            ("flapping", "echo 'test result: ok. 4 passed; 0 failed' >&2"),
        ])?;
        assert_eq!((summary.suites, summary.passed, summary.failed), (3, 7, 1));
        assert_eq!((summary.failures, broken.len()), (vec!["x".to_owned()], 0));
        Ok(())
    }

    #[test]
    fn crashed_suite_is_named() -> Result<()> {
        let (summary, broken) =
            run(&[("crash", "kill -9 $$"), ("other", "echo 'test result: ok. 1 passed; 0 failed'")])?;
        assert_eq!((summary.passed, broken), (1, vec!["crash did not run to its end".to_owned()]));
        Ok(())
    }
}
