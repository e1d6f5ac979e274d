//! The wheels of wasmtime for Python, which the tests of other languages use.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::{self, announce};
use crate::servers;
use crate::workspace::Workspace;

/// The oldest version that runs components, one in between, and the newest.
const WHEELS: [&str; 4] = ["39.0.0", "44.0.0", "48.0.0", "50.0.1"];

/// Installs each version into a folder of its own, for `PYTHONPATH`.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for version in WHEELS {
        let folder = workspace.root.join("target/python").join(format!("wasmtime-{version}"));
        if folder.join("wasmtime").exists() {
            continue;
        }
        if !has_pip() {
            servers::install(&["python3-pip"])?;
        }
        announce(&format!("python: wasmtime {version}"));
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--root-user-action=ignore",
            "--disable-pip-version-check",
            "--target",
        ]);
        process::run(pip.arg(&folder).arg(format!("wasmtime=={version}")))?;
    }
    Ok(())
}

fn has_pip() -> bool {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    pip.status().is_ok_and(|status| status.success())
}
