//! `cargo xtask ci`: all that must be green before a change goes in, the cheap checks first.
//!
//! It stops at the first step that fails: what comes after would cost minutes and say less.
//!
//! All but the functions is linted while it is compiled, not before: `cargo clippy` would go through wasmtime and everything else that
//! we depend on a second time, which on a fresh machine takes longer than all the tests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build::{self, Profile, WASM_TARGET};
use crate::workspace::{Workspace, selection};
use crate::{dist, infra, process, publish, servers, setup, test, tidy, web};

/// A step's name and what it does.
type Step<'a> = (&'a str, &'a dyn Fn() -> Result<()>);

/// Runs every step and prints how long each took.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let workspace = &workspace.linted();
    let steps: [Step<'_>; 12] = [
        ("setup", &|| setup::run(workspace).and_then(|()| servers::run())),
        ("fmt", &|| process::run(process::cargo(&workspace.root).args(["fmt", "--all", "--check"]))),
        ("tidy: files", &|| tidy::files(workspace)),
        ("web", &|| web::build(workspace).and_then(|()| web::check(workspace))),
        ("build", &|| build::run(workspace, Profile::Dev)),
        ("dist", &|| dist::run(workspace).and_then(|()| build::yardsticks(workspace))),
        ("tidy: example config", &|| tidy::example(workspace)),
        ("clippy: functions", &|| clippy_functions(workspace)),
        ("tests: compile", &|| test::compile(workspace, &[])),
        ("infra", &|| infra::run(workspace)),
        ("publish: dry run", &|| publish::run(workspace, true, None)),
        ("tests", &|| test::suites(workspace, &[])),
    ];
    let mut times = Vec::new();
    let outcome = steps.iter().try_for_each(|(name, step)| timed(name, step, &mut times));
    println!("\n{}", table(&times));
    outcome
}

fn timed(name: &str, step: &dyn Fn() -> Result<()>, times: &mut Vec<(String, Duration)>) -> Result<()> {
    process::announce(&format!("ci: {name}"));
    let started = Instant::now();
    let outcome = step().with_context(|| format!("ci stopped at {name}"));
    let name = if outcome.is_ok() { name.to_owned() } else { format!("{name} (failed)") };
    times.push((name, started.elapsed()));
    outcome
}

/// Apart from the build, so that linting leaves the bytes of a function alone. Hardly anything stands below them.
fn clippy_functions(workspace: &Workspace) -> Result<()> {
    let packages = [workspace.functions(), workspace.guests(), workspace.examples()].concat();
    let mut cargo = process::cargo_for_wasm(&workspace.root);
    cargo.arg("clippy").args(selection(&packages)).args(["--target", WASM_TARGET, "--", "-D", "warnings"]);
    process::run(&mut cargo)
}

fn table(times: &[(String, Duration)]) -> String {
    let total = times.iter().map(|(_, time)| *time).sum();
    let rows = times.iter().map(|(name, time)| (name.as_str(), *time)).chain([("in all", total)]);
    rows.map(|(name, time)| format!("{:>8.1} s  {name}", time.as_secs_f64())).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_step_is_named_and_timed() {
        let mut times = Vec::new();
        let error = timed("fmt", &|| anyhow::bail!("unformatted"), &mut times).err().map(|error| format!("{error:#}"));
        assert_eq!(error.as_deref(), Some("ci stopped at fmt: unformatted"));
        assert_eq!(times.first().map(|(name, _)| name.as_str()), Some("fmt (failed)"));
    }

    #[test]
    fn table_ends_with_the_sum() {
        let times = [("fmt".to_owned(), Duration::from_millis(1_500)), ("test".to_owned(), Duration::from_secs(60))];
        assert_eq!(table(&times), "     1.5 s  fmt\n    60.0 s  test\n    61.5 s  in all");
    }
}
