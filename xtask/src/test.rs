//! `cargo xtask test`: builds what the tests need, runs them, and prints a summary.
//!
//! Cargo compiles the tests; [`runner`] runs them, several binaries at a time, each as cargo would. Spin cannot be installed
//! from here, and `wasmtime` takes ten minutes to compile. So the tests on those hosts run with `--spin`, which fails where
//! there is no Spin, and with `--wasmtime`; without these options the summary lists them as not run.

mod arguments;
mod runner;
pub(crate) mod summary;

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::build::{self, Profile};
use crate::workspace::{Package, Workspace, selection};
use crate::{compatibility, dist, process, python, servers, setup, web};

use arguments::Arguments;
use runner::{Runner, Suite};
use summary::Summary;

/// The environment variable with the programs of Spin for tests and benchmarks.
pub(crate) const SPINS: &str = "SPINS_UNDER_TEST";

/// The oldest Spin that there are components for.
const SPIN: (u32, u32) = (3, 0);

/// Builds what the tests need and runs those that the arguments select; all of them if there are none.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let args = Arguments::parse(args);
    args.spins.iter().try_for_each(|program| ensure_spin(program))?;
    setup::run(workspace)?;
    servers::run()?;
    python::run(workspace)?;
    build::run(workspace, Profile::Dev)?;
    dist::run(workspace)?;
    if args.wasmtime {
        build::other_hosts(workspace, Profile::Dev)?;
    }
    run_selected(workspace, &args)
}

/// Compiles every test. Everything else is already built.
pub(crate) fn compile_all(workspace: &Workspace) -> Result<()> {
    compile(workspace, &Arguments::default()).map(drop)
}

/// Runs every test except those on other hosts, and checks that the README's table of hosts claims no more. Everything else is
/// already built.
pub(crate) fn run_all(workspace: &Workspace) -> Result<()> {
    run_selected(workspace, &Arguments::default())?;
    compatibility::check(&workspace.root)
}

fn ensure_spin(program: &str) -> Result<()> {
    let advice = "`--spin` runs the tests that need Spin: install Spin 3.0 or newer, so that `spin` is on the PATH, or name \
                  one or several programs: `--spin=PATH`";
    let version = process::output(Command::new(program).arg("--version")).context(advice)?;
    let found = version_of(&version).with_context(|| format!("`spin --version` printed {version:?}"))?;
    ensure!(found >= SPIN, "{advice}; this is {}", version.trim());
    Ok(())
}

/// The first two numbers in what a program prints as its version: `spin 4.1.0 (94a8fc8)`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// Compiles the selected tests and returns their binaries.
fn compile(workspace: &Workspace, args: &Arguments) -> Result<Vec<Suite>> {
    build::guests(workspace)?;
    let mut suites = Vec::new();
    for packages in groups(workspace, args)? {
        let mut cargo = workspace.cargo();
        cargo.arg("test").args(selection(&packages)).args(&args.cargo);
        cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
        let messages = process::output(cargo.stderr(Stdio::inherit()))?;
        suites.extend(messages.lines().filter_map(Suite::parse));
    }
    Ok(suites)
}

/// Compiles the selected tests, runs them and prints the summary.
fn run_selected(workspace: &Workspace, args: &Arguments) -> Result<()> {
    let suites = compile(workspace, args)?;
    compatibility::forget(&workspace.root)?;
    let started = Instant::now();
    let mut summary = Summary::default();
    let is_live = args.shows_output() || suites.len() == 1;
    let runner = Runner::new(workspace, args, is_live)?;
    let mut broken = runner.run(suites, &mut summary)?;
    if args.includes_doc_tests() {
        broken.extend(doc_tests(workspace, args, &mut summary)?);
    }
    if args.includes_web_tests() {
        // A package whose tests do not run to the end does not hide the results of the other.
        for package in web::tests(workspace, &args.names) {
            match package {
                Ok(counts) => summary.add(counts),
                Err(error) => broken.push(format!("{error:#}")),
            }
        }
    }
    println!("\n{} in {:.1} s", summary.text(), started.elapsed().as_secs_f64());
    if let Some(what) = broken.first() {
        bail!("{what}");
    }
    ensure!(summary.failed == 0, "{} failed", summary.failed);
    ensure!(summary.passed > 0, "no test ran: no test name contains {}", args.names.join(" or "));
    Ok(())
}

/// Runs the doc tests of the selected libraries; cargo runs them itself. Returns what went wrong, if not failed tests alone.
fn doc_tests(workspace: &Workspace, args: &Arguments, summary: &mut Summary) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for packages in groups(workspace, args)? {
        let libraries = packages.into_iter().filter(|package| package.has_library).collect::<Vec<_>>();
        if libraries.is_empty() {
            continue;
        }
        let mut cargo = workspace.cargo();
        cargo.arg("test").args(selection(&libraries)).args(&args.cargo).args(["--doc", "--no-fail-fast", "--"]);
        let failed = summary.failed;
        if !runner::cargo_tests(cargo.args(args.for_harness()), summary)? && summary.failed == failed {
            broken.push(format!("{} failed", process::line(&cargo)));
        }
    }
    Ok(broken)
}

/// The packages of each `cargo test`: those of `-p`, or all.
fn groups<'a>(workspace: &'a Workspace, args: &Arguments) -> Result<Vec<Vec<&'a Package>>> {
    if !args.packages.is_empty() {
        let named = args.packages.iter().map(|name| workspace.package(name)).collect::<Result<_>>()?;
        return Ok(vec![named]);
    }
    if args.selects_test_files() {
        return Ok(vec![workspace.natives()]);
    }
    // xtask by itself, as it was built to be run, so that its dependencies are compiled already.
    Ok(vec![workspace.natives(), workspace.xtask()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_program_output() {
        assert_eq!(version_of("spin 4.1.0-pre0 (94a8fc8 2026-08-21)"), Some((4, 1)));
        assert_eq!(version_of("wasmtime 48.0.8"), Some((48, 0)));
        assert_eq!(version_of("spin"), None);
    }
}
