//! `cargo xtask setup`: what a build needs and cargo does not fetch.
//!
//! If nothing is missing it costs two calls of rustc, so the other commands run it first. It installs Rust targets with rustup
//! and nothing else; a missing C compiler is an error. What only the tests need is in `servers.rs`.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{announce, output, run as run_command};
use crate::workspace::Workspace;

/// The first is for functions, which import nothing but the contract; the second for triggers and adapters.
const TARGETS: [&str; 2] = ["wasm32-unknown-unknown", "wasm32-wasip2"];

/// Tried in this order when `CC` is not set.
const C_COMPILERS: [&str; 3] = ["cc", "gcc", "clang"];

/// Adds missing targets and checks for a C compiler.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    for target in TARGETS {
        ensure_target(&workspace.root, target)?;
    }
    ensure_c_compiler()
}

/// Asks rustc, not rustup, whether the target is installed: rustup may not manage this Rust.
fn ensure_target(root: &Path, target: &str) -> Result<()> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let libraries = output(rustc.current_dir(root).args(["--print", "target-libdir", "--target", target]))?;
    if Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    announce(&format!("adding the Rust target {target}"));
    run_command(Command::new("rustup").current_dir(root).args(["target", "add", target]))
        .with_context(|| format!("the Rust target {target} is missing and could not be added"))
}

/// SQLite is compiled from C.
fn ensure_c_compiler() -> Result<()> {
    let chosen = env::var("CC").ok();
    let candidates = chosen.as_deref().map_or(C_COMPILERS.to_vec(), |compiler| vec![compiler]);
    if candidates.iter().any(|compiler| runs(compiler)) {
        return Ok(());
    }
    bail!(
        "no C compiler: tried {}. SQLite is compiled from source and needs one.\n  \
         Debian, Ubuntu: apt-get install gcc libc6-dev\n  \
         Fedora:         dnf install gcc\n  \
         macOS:          xcode-select --install",
        candidates.join(", ")
    )
}

/// Whether the program runs. `CC` may contain a wrapper and flags: `ccache gcc -m64`.
fn runs(program: &str) -> bool {
    let mut words = program.split_whitespace();
    let Some(name) = words.next() else { return false };
    let mut command = Command::new(name);
    command.args(words).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_detected() {
        assert!(!runs("rollcall-no-such-compiler"));
        assert!(!runs(""));
    }

    #[test]
    fn compiler_may_have_a_wrapper() {
        assert!(runs("env -u CC ls"));
    }
}
