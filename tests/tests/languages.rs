//! The functions of the synchronous contract in hosts of other languages: the examples for Python and Node.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rollcall_tests::compatibility::{self, Runs};
use rollcall_tests::root;

/// The versions of wasmtime for Python, by folder: those that `cargo xtask test` installed.
fn wheels() -> Vec<PathBuf> {
    let installed = std::fs::read_dir(root().join("target/python")).expect("`cargo xtask test` installs the wheels");
    let mut wheels: Vec<_> = installed.map(|entry| entry.unwrap().path()).collect();
    wheels.sort();
    assert!(wheels.len() >= 3, "{wheels:?}");
    wheels
}

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).stdin(Stdio::null()).output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The steps that both examples print.
fn assert_steps(text: &str) {
    for step in [
        "alice looks at bob: online",
        "eve, blocked by bob, looks at him: hidden",
        "alice looks at bob: offline, last seen 46 s ago",
        "alice looks at bob: offline, last seen 106 s ago",
    ] {
        assert!(text.contains(step), "no `{step}` in\n{text}");
    }
}

#[test]
fn every_function_loads_in_several_versions_of_python_wheels() {
    for wheel in wheels() {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &wheel).args(["examples/embed-python/loads.py", "target/components/sync"]);
        assert_eq!(output(&mut python).lines().count(), 6, "{}", wheel.display());
    }
}

#[test]
fn python_example_runs_with_several_versions_of_wasmtime() {
    for wheel in wheels() {
        assert_steps(&output(
            Command::new("python3").env("PYTHONPATH", &wheel).arg("examples/embed-python/presence.py"),
        ));
        let version = wheel.file_name().unwrap().to_str().unwrap().trim_start_matches("wasmtime-");
        compatibility::passed("Python, with `wasmtime`", version, Runs::Functions);
    }
}

#[test]
fn node_example_runs() {
    assert_steps(&output(Command::new("node").arg("examples/embed-node/presence.mjs")));
    let version = output(Command::new("node").arg("--version"));
    compatibility::passed("Node, with jco", version.trim().trim_start_matches('v'), Runs::Functions);
}
