//! `cargo xtask serve`: from a fresh clone to a running server with one command.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::build::{self, Profile};
use crate::workspace::Workspace;
use crate::{process, setup};

/// Builds, then becomes the server: the process is replaced, so that signals and the terminal reach it directly.
/// Returns only if that fails.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    setup::run(workspace)?;
    build::run(workspace, Profile::Dev)?;
    let mut server = Command::new(build::binary(workspace, Profile::Dev, "rollcall"));
    // Cargo set them for the build; to the server, every ROLLCALL_ variable is a setting.
    server.env_remove("ROLLCALL_COMPONENTS").env_remove("ROLLCALL_CONSOLE").arg("serve").args(args);
    process::announce(&process::line(&server));
    Err(server.exec()).with_context(|| format!("could not start {}", process::line(&server)))
}
