//! `cargo xtask bench`: measures the release build.

use anyhow::Result;

use crate::build::{self, Profile};
use crate::workspace::Workspace;
use crate::{dist, process, setup};

/// Builds for release, then runs the `bench` binary of the tests with these arguments.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    setup::run(workspace)?;
    build::run(workspace, Profile::Release)?;
    dist::run(workspace)?;
    build::baselines(workspace)?;
    let mut bench = process::cargo(&workspace.root);
    bench.args(["run", "--release", "-p", "rollcall-tests", "--bin", "bench", "--"]).args(args);
    process::announce(&process::line(&bench));
    process::run(&mut bench)
}
