//! `cargo xtask serve`: builds the server and runs it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::{self, Profile};
use crate::workspace::Workspace;
use crate::{process, setup};

/// Builds, then replaces this process with the server, so that signals and the terminal reach it directly. Returns only if
/// that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    setup::run(workspace)?;
    build::run(workspace, Profile::Dev)?;
    let mut server = Command::new(build::binary(workspace, Profile::Dev, "rollcall"));
    // Cargo sets them for the build. The server reads every ROLLCALL_ variable as a setting.
    server.env_remove("ROLLCALL_COMPONENTS").env_remove("ROLLCALL_CONSOLE").arg("serve").args(args);
    process::announce(&process::line(&server));
    Err(server.exec()).with_context(|| format!("could not start {}", process::line(&server)))
}
