//! Starts other programs: in which folder, with which environment, and with which error if one fails.
//!
//! Output is captured only if the caller asks for it: a build that takes minutes shows its progress.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Prefixes of the variables that `cargo run` sets to describe xtask. To build scripts they would look like a change, and
/// cargo would rebuild what `cargo build` had built.
const ABOUT_XTASK: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_NAME", "CARGO_PRIMARY_"];

/// Variables with flags for native code: `-C target-cpu=native`, sanitizers, other linkers.
const NATIVE_FLAGS: [&str; 3] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"];

/// Prints on stderr what comes next.
pub(crate) fn announce(what: &str) {
    eprintln!("==> {what}");
}

/// The cargo that runs xtask, in the root of the workspace.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    without_package_variables(&mut command);
    command
}

/// Removes the variables by which `cargo run` describes xtask.
pub(crate) fn without_package_variables(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| ABOUT_XTASK.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
}

/// The same for wasm, without native flags: the same source must give the same bytes.
pub(crate) fn cargo_for_wasm(root: &Path) -> Command {
    let mut command = cargo(root);
    for name in NATIVE_FLAGS {
        command.env_remove(name);
    }
    command
}

/// Compiles the packages of the workspace with clippy, and all others with rustc, as `cargo clippy` does for a check. Clippy
/// reads its arguments from the environment, each followed by a fixed separator.
pub(crate) fn lint(cargo: &mut Command) {
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    cargo.env("CLIPPY_ARGS", ["-D", "warnings"].map(|arg| format!("{arg}__CLIPPY_HACKERY__")).concat());
}

/// Runs a command to its end, with xtask's own stdio. The error names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("could not start {}", line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns its stdout. Its stderr is xtask's own.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("could not start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", line(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed text that is not UTF-8", line(command)))
}

/// The command as it is typed, with the program's name instead of its path.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy());
    format!("`{}`", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`sh -c exit 3` failed: exit status: 3"));
    }

    #[test]
    fn missing_program_is_named() {
        let error = run(&mut Command::new("rollcall-no-such-program")).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("could not start `rollcall-no-such-program`"));
    }

    #[test]
    fn wasm_is_built_without_native_flags() {
        let command = cargo_for_wasm(Path::new("."));
        for name in NATIVE_FLAGS {
            assert!(command.get_envs().any(|(key, value)| key == name && value.is_none()), "{name} is inherited");
        }
    }
}
