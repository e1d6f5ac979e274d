//! `cargo xtask test`: everything that has to be built for the tests, then the tests, then what they came to.
//!
//! One suite that fails does not hide the next. The output is cargo's own, as it comes; only the sum at the end is ours.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::build::{self, Profile};
use crate::workspace::{Workspace, selection};
use crate::{process, servers, setup};

/// Builds what the tests need and runs those that the arguments select; all of them if there are none.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    setup::run(workspace)?;
    servers::run()?;
    build::run(workspace, Profile::Dev)?;
    suites(workspace, args)
}

/// Runs the tests of what is already built.
pub(crate) fn suites(workspace: &Workspace, args: &[String]) -> Result<()> {
    build::guests(workspace)?;
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for packages in groups(workspace, args) {
        let mut cargo = workspace.cargo();
        cargo.arg("test").args(packages).arg("--no-fail-fast").args(args);
        process::announce(&process::line(&cargo));
        if !tee(&mut cargo, &mut tally, &mut std::io::stdout())? {
            broken.push(process::line(&cargo));
        }
    }
    println!("\n{} in {:.1} s", tally.summary(), started.elapsed().as_secs_f64());
    if let Some(command) = broken.first() {
        bail!("{command} failed");
    }
    ensure!(tally.failed == 0, "{} failed", tally.failed);
    ensure!(tally.passed > 0, "no test ran: nothing matches {}", args.join(" "));
    Ok(())
}

/// The packages of each `cargo test`; the arguments choose them if they name any.
fn groups<'a>(workspace: &'a Workspace, args: &[String]) -> Vec<Vec<&'a str>> {
    let own = args.iter().take_while(|arg| *arg != "--");
    if own.into_iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package")) {
        return vec![Vec::new()];
    }
    let groups = [workspace.natives(), workspace.tools()];
    groups.iter().filter(|packages| !packages.is_empty()).map(|packages| selection(packages)).collect()
}

/// Runs the command, shows every line of its stdout on the screen as it comes and counts it; answers whether it succeeded.
fn tee(command: &mut Command, tally: &mut Tally, screen: &mut impl Write) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("could not start cargo")?;
    let mut lines = BufReader::new(child.stdout.take().context("cargo has no stdout")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        screen.write_all(&line)?;
        screen.flush()?;
        tally.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

/// What the suites came to, added up from the lines that each prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    suites: u32,
    passed: u32,
    failed: u32,
    ignored: u32,
    /// The tests that failed, by name.
    names: Vec<String>,
}

impl Tally {
    fn read(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.names.push(name.to_owned());
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

    fn summary(&self) -> String {
        let mut text = format!("{} suites: {} passed, {} failed", self.suites, self.passed, self.failed);
        if self.ignored > 0 {
            text.push_str(&format!(", {} ignored", self.ignored));
        }
        let failures = self.names.iter().map(|name| format!("  failed: {name}\n")).collect::<String>();
        format!("{failures}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_suites_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test late_beat_beats_the_sweep ... ok",
            "test ghost_is_bounded ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s",
            "test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.summary(), "  failed: ghost_is_bounded\n2 suites: 42 passed, 1 failed, 2 ignored");
    }

    #[test]
    fn failing_command_is_told_from_a_successful_one() -> Result<()> {
        let (mut tally, mut screen) = (Tally::default(), Vec::new());
        assert!(!tee(Command::new("sh").args(["-c", "echo; exit 1"]), &mut tally, &mut screen)?);
        let line = "test result: ok. 1 passed; 0 failed\n";
        assert!(tee(Command::new("printf").arg(line), &mut tally, &mut screen)?);
        assert_eq!((tally.suites, tally.passed, String::from_utf8(screen)?), (1, 1, format!("\n{line}")));
        Ok(())
    }
}
