//! `cargo xtask ci`: everything that must pass before a change is merged, the cheap checks first.
//!
//! It stops at the first step that fails.
//!
//! All but the functions is linted while it is compiled: a separate `cargo clippy` would check wasmtime and all other
//! dependencies once more, which on a fresh machine takes longer than all the tests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build::{self, Profile, WASM_TARGET};
use crate::workspace::{Workspace, selection};
use crate::{dist, infra, process, publish, python, servers, setup, test, tidy, web};

/// The name of a step and its action.
type Step<'a> = (&'a str, &'a dyn Fn() -> Result<()>);

/// Runs every step and prints the time of each.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let workspace = &workspace.linted();
    let steps: [Step<'_>; 12] = [
        ("setup", &|| setup::run(workspace).and_then(|()| servers::run()).and_then(|()| python::run(workspace))),
        ("fmt", &|| process::run(process::cargo(&workspace.root).args(["fmt", "--all", "--check"]))),
        ("tidy: files", &|| tidy::files(workspace)),
        ("web", &|| web::build(workspace).and_then(|()| web::check(workspace))),
        ("build", &|| build::run(workspace, Profile::Dev)),
        ("dist", &|| dist::run(workspace).and_then(|()| build::baselines(workspace))),
        ("tidy: example config", &|| tidy::example(workspace)),
        ("clippy: functions", &|| clippy_functions(workspace)),
        ("tests: compile", &|| test::compile_all(workspace)),
        ("infra", &|| infra::run(workspace)),
        ("publish: dry run", &|| publish::run(workspace, true, None)),
        ("tests", &|| test::run_all(workspace)),
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

/// Lints the functions in a build of their own, so that linting does not change their bytes. They have few dependencies.
fn clippy_functions(workspace: &Workspace) -> Result<()> {
    let packages = [workspace.functions(), workspace.guests(), workspace.examples()].concat();
    let mut cargo = process::cargo_for_wasm(&workspace.root);
    cargo.arg("clippy").args(selection(&packages)).args(["--target", WASM_TARGET, "--", "-D", "warnings"]);
    process::run(&mut cargo)
}

fn table(times: &[(String, Duration)]) -> String {
    let total = times.iter().map(|(_, time)| *time).sum();
    let rows = times.iter().map(|(name, time)| (name.as_str(), *time)).chain([("total", total)]);
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
    fn table_ends_with_total() {
        let times = [("fmt".to_owned(), Duration::from_millis(1_500)), ("test".to_owned(), Duration::from_secs(60))];
        assert_eq!(table(&times), "     1.5 s  fmt\n    60.0 s  test\n    61.5 s  total");
    }
}
