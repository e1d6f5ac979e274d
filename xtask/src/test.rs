//! `cargo xtask test`: everything that has to be built for the tests, then the tests, then what they came to.
//!
//! One suite that fails does not hide the next. The output is cargo's own, as it comes; only the sum at the end is ours.
//! Of the other hosts that the functions are deployed to, Spin cannot be installed by us, and `wasmtime` takes ten minutes
//! to compile. So the tests there are run with `--spin`, which fails where there is no Spin, and with `--wasmtime`; without
//! they are named as not run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::build::{self, Profile};
use crate::web::{self, Came};
use crate::workspace::{Package, Workspace, selection};
use crate::{dist, process, servers, setup};

/// The oldest Spin that speaks WASI 0.3 as it was agreed on.
const SPIN: (u32, u32) = (4, 1);

/// Builds what the tests need and runs those that the arguments select; all of them if there are none.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let (args, elsewhere) = elsewhere(args);
    if elsewhere.spin {
        ensure_spin()?;
    }
    setup::run(workspace)?;
    servers::run()?;
    build::run(workspace, Profile::Dev)?;
    dist::run(workspace)?;
    if elsewhere.wasmtime {
        build::other_hosts(workspace)?;
    }
    let args = elsewhere.added_to(args);
    compile(workspace, &args)?;
    suites(workspace, &args)
}

/// Which of the other hosts are to be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Elsewhere {
    spin: bool,
    wasmtime: bool,
}

/// The arguments for cargo, and which other hosts were among them.
fn elsewhere(args: &[String]) -> (Vec<String>, Elsewhere) {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let elsewhere = Elsewhere { spin: has("--spin"), wasmtime: has("--wasmtime") };
    let others = args.iter().filter(|arg| !["--spin", "--wasmtime"].contains(&arg.as_str()));
    (others.cloned().collect(), elsewhere)
}

impl Elsewhere {
    /// Tests of other hosts, and no others, are ignored unless they are asked for; each has its host in its name.
    fn added_to(self, mut args: Vec<String>) -> Vec<String> {
        let skipped = match self {
            Self { spin: false, wasmtime: false } => return args,
            Self { spin: true, wasmtime: true } => None,
            Self { spin: true, wasmtime: false } => Some("on_wasmtime"),
            Self { spin: false, wasmtime: true } => Some("on_spin"),
        };
        if !args.iter().any(|arg| arg == "--") {
            args.push("--".to_owned());
        }
        args.push("--include-ignored".to_owned());
        args.extend(skipped.into_iter().flat_map(|name| ["--skip".to_owned(), name.to_owned()]));
        args
    }
}

fn ensure_spin() -> Result<()> {
    let advice = "`--spin` runs the tests that need Spin: install Spin 4.1 or newer, so that `spin` is on the PATH";
    let version = process::output(Command::new("spin").arg("--version")).context(advice)?;
    let found = version_of(&version).with_context(|| format!("`spin --version` says {version:?}"))?;
    ensure!(found >= SPIN, "{advice}; this is {}", version.trim());
    Ok(())
}

/// The first two numbers in what a program says of its version: `spin 4.1.0 (94a8fc8)`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Compiles the tests of what is already built: what does not compile is said before anything is run.
pub(crate) fn compile(workspace: &Workspace, args: &[String]) -> Result<()> {
    build::guests(workspace)?;
    for packages in groups(workspace, args) {
        let mut cargo = workspace.cargo();
        cargo.arg("test").args(packages).arg("--no-run").args(own(args));
        process::run(&mut cargo)?;
    }
    Ok(())
}

/// Runs the tests that were compiled.
pub(crate) fn suites(workspace: &Workspace, args: &[String]) -> Result<()> {
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for packages in groups(workspace, args) {
        let mut cargo = workspace.cargo();
        cargo.arg("test").args(packages).arg("--no-fail-fast").args(args);
        process::announce(&process::line(&cargo));
        if !tee(&mut cargo, &mut tally, &mut std::io::stdout())? {
            broken.push(format!("{} failed", process::line(&cargo)));
        }
    }
    if let Some(part) = chosen(args) {
        // A package whose tests did not run to their end does not hide what the others came to.
        for came in web::tests(workspace, part) {
            match came {
                Ok(came) => tally.add(came),
                Err(error) => broken.push(format!("{error:#}")),
            }
        }
    }
    println!("\n{} in {:.1} s", tally.summary(), started.elapsed().as_secs_f64());
    if let Some(what) = broken.first() {
        bail!("{what}");
    }
    ensure!(tally.failed == 0, "{} failed", tally.failed);
    ensure!(tally.passed > 0, "no test ran: nothing matches {}", args.join(" "));
    Ok(())
}

/// Which tests of what is written in TypeScript these arguments choose: a word is part of a name there too, and whatever
/// else is for cargo leaves them out. None: none of them; none inside: all.
fn chosen(args: &[String]) -> Option<Option<&str>> {
    match own(args).collect::<Vec<_>>().as_slice() {
        [] => Some(None),
        [word] if !word.starts_with('-') => Some(Some(word)),
        _ => None,
    }
}

/// The arguments that are cargo's own; what comes after them is for the tests.
fn own(args: &[String]) -> impl Iterator<Item = &str> {
    args.iter().map(String::as_str).take_while(|arg| *arg != "--")
}

/// The packages of each `cargo test`; the arguments choose them if they name any, or a file in a folder of tests.
fn groups<'a>(workspace: &'a Workspace, args: &[String]) -> Vec<Vec<&'a str>> {
    if own(args).any(|arg| arg.starts_with("-p") || arg.starts_with("--package")) {
        return vec![Vec::new()];
    }
    let natives = workspace.natives();
    // Nobody else has such folders.
    if own(args).any(|arg| arg == "--test") {
        return vec![selection(&natives)];
    }
    // This program by itself, as it was built to be run: so what it depends on is there already.
    let (xtask, shared) = workspace.tools().into_iter().partition(|package| package.name == env!("CARGO_PKG_NAME"));
    let groups: [Vec<&Package>; 3] = [natives, shared, xtask];
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
    /// The tests that were not run, by name, with the reason.
    not_run: Vec<String>,
}

impl Tally {
    fn read(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.names.push(name.to_owned());
        }
        if let Some((name, reason)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored")) {
            self.not_run.push(format!("{name}: {}", reason.trim_start_matches([',', ' '])));
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

    fn add(&mut self, came: Came) {
        self.suites += came.files;
        self.passed += came.passed;
        self.failed += came.failed;
        self.ignored += u32::try_from(came.skipped.len()).unwrap_or(u32::MAX);
        self.names.extend(came.names);
        self.not_run.extend(came.skipped);
    }

    fn summary(&self) -> String {
        let mut text = format!("{} suites: {} passed, {} failed", self.suites, self.passed, self.failed);
        if self.ignored > 0 {
            text.push_str(&format!(", {} not run", self.ignored));
        }
        let failures = self.names.iter().map(|name| format!("  failed: {name}\n"));
        let not_run = self.not_run.iter().map(|test| format!("  not run: {test}\n"));
        format!("{}{text}", not_run.chain(failures).collect::<String>())
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
            "test on_spin ... ignored, it needs Spin",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.00s",
            "test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            tally.read(line);
        }
        let lines = "  not run: on_spin: it needs Spin\n  failed: ghost_is_bounded\n";
        assert_eq!(tally.summary(), format!("{lines}2 suites: 42 passed, 1 failed, 2 not run"));
    }

    #[test]
    fn other_hosts_are_asked_for_before_or_after_what_is_for_cargo() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let added = |text: &str| {
            let (args, elsewhere) = elsewhere(&words(text));
            elsewhere.added_to(args).join(" ")
        };
        assert_eq!(added("fleet -- --nocapture"), "fleet -- --nocapture");
        assert_eq!(added("--spin fleet"), "fleet -- --include-ignored --skip on_wasmtime");
        assert_eq!(added("--wasmtime -- --nocapture"), "-- --nocapture --include-ignored --skip on_spin");
        assert_eq!(added("--spin --wasmtime fleet"), "fleet -- --include-ignored");
    }

    #[test]
    fn a_word_chooses_tests_in_both_languages_and_what_is_for_cargo_does_not() {
        let chosen = |words: &[&str]| {
            let args = words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            chosen(&args).map(|part| part.map(str::to_owned))
        };
        assert_eq!(chosen(&[]), Some(None));
        assert_eq!(chosen(&["--", "--include-ignored"]), Some(None));
        assert_eq!(chosen(&["fleet"]), Some(Some("fleet".to_owned())));
        assert_eq!(chosen(&["-p", "rollcall-core"]), None);
        assert_eq!(chosen(&["--test", "fleet"]), None);
    }

    #[test]
    fn a_version_is_read_from_what_programs_say() {
        assert_eq!(version_of("spin 4.1.0-pre0 (94a8fc8 2026-08-21)"), Some((4, 1)));
        assert_eq!(version_of("wasmtime 48.0.8"), Some((48, 0)));
        assert_eq!(version_of("spin"), None);
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
