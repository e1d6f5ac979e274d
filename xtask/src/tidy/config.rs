//! The example config must be what `rollcall config --example` writes, so it lists every field and no other.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::Violation;
use crate::build::{self, Profile};
use crate::workspace::Workspace;
use crate::{process, setup};

/// The example.
const EXAMPLE: &str = "infra/rollcall.toml";

/// Compares the example with the output of the binary; builds the binary if it is missing.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<Violation>> {
    let binary = build::binary(workspace, Profile::Dev, "rollcall");
    if !binary.exists() {
        setup::run(workspace)?;
        build::run(workspace, Profile::Dev)?;
    }
    let mut program = Command::new(binary);
    // Cargo sets it for the build. The program reads every ROLLCALL_ variable as a setting.
    let written = process::output(program.env_remove("ROLLCALL_COMPONENTS").args(["config", "--example"]))?;
    let kept = fs::read_to_string(workspace.root.join(EXAMPLE)).ok();
    Ok(difference(kept.as_deref(), &written).into_iter().collect())
}

/// The first line that differs.
fn difference(kept: Option<&str>, written: &str) -> Option<Violation> {
    let fix = format!("run `target/debug/rollcall config --example > {EXAMPLE}`");
    let Some(kept) = kept else { return Some(Violation::new(EXAMPLE, 1, format!("is missing; {fix}"))) };
    if kept == written {
        return None;
    }
    let (mut left, mut right) = (kept.lines(), written.lines());
    let mut line = 1;
    loop {
        let pair = (left.next(), right.next());
        if pair.0 != pair.1 || pair.0.is_none() {
            let quote = |line: Option<&str>| line.map_or("no further line".to_owned(), |line| format!("`{line}`"));
            let message = format!("has {} where the program writes {}; {fix}", quote(pair.0), quote(pair.1));
            return Some(Violation::new(EXAMPLE, line, message));
        }
        line += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kept: Option<&str>, written: &str) -> Option<(usize, String)> {
        difference(kept, written).map(|violation| {
            let message = violation.message.split(';').next().unwrap_or_default().to_owned();
            (violation.line, message)
        })
    }

    #[test]
    fn stale_example_is_reported_with_line() {
        let message = "has `b = 2` where the program writes `b = 3`".to_owned();
        assert_eq!(found(Some("a = 1\nb = 2\n"), "a = 1\nb = 3\n"), Some((2, message)));
    }

    #[test]
    fn short_and_missing_examples_are_reported() {
        let message = "has no further line where the program writes `b = 3`".to_owned();
        assert_eq!(found(Some("a = 1\n"), "a = 1\nb = 3\n"), Some((2, message)));
        assert_eq!(found(Some("a = 1"), "a = 1\n").map(|(line, _)| line), Some(2));
        assert_eq!(found(None, "a = 1\n"), Some((1, "is missing".to_owned())));
    }

    #[test]
    fn same_example_passes() {
        assert_eq!(found(Some("a = 1\n"), "a = 1\n"), None);
    }
}
