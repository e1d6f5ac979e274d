//! `cargo xtask bench`: measures the release build.

use anyhow::Result;

use crate::build::{self, Profile};
use crate::test::SPINS;
use crate::workspace::Workspace;
use crate::{dist, process, python, setup};

/// Builds for release, then runs the `bench` binary of the tests with these arguments. `--spin=PATH`, several times, names the
/// Spins to measure; without it that is the one on the `PATH`. With `--wasmtime` it builds `wasmtime serve`, too.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    setup::run(workspace)?;
    build::run(workspace, Profile::Release)?;
    dist::run(workspace)?;
    build::baselines(workspace)?;
    python::run(workspace)?;
    let (spins, args): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--spin="));
    let (wasmtime, names): (Vec<_>, Vec<_>) = args.into_iter().partition(|arg| *arg == "--wasmtime");
    if !wasmtime.is_empty() {
        build::other_hosts(workspace, Profile::Release)?;
    }
    let mut bench = process::cargo(&workspace.root);
    if !spins.is_empty() {
        let programs: Vec<_> = spins.iter().map(|option| option.trim_start_matches("--spin=")).collect();
        bench.env(SPINS, programs.join(":"));
    }
    bench.args(["run", "--release", "-p", "rollcall-tests", "--bin", "bench", "--"]).args(names);
    process::announce(&process::line(&bench));
    process::run(&mut bench)
}
