//! The example config is what the program itself writes: it cannot name a field that is gone or miss a new one.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::Finding;
use crate::build::{self, Profile};
use crate::workspace::Workspace;
use crate::{process, setup};

/// Where the example is kept.
const EXAMPLE: &str = "infra/rollcall.toml";

/// Compares the example with what the binary writes; builds the binary if it is not there.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<Finding>> {
    let binary = build::binary(workspace, Profile::Dev, "rollcall");
    if !binary.exists() {
        setup::run(workspace)?;
        build::run(workspace, Profile::Dev)?;
    }
    let mut program = Command::new(binary);
    // Cargo set it for the build; to the program, every ROLLCALL_ variable is a setting.
    let written = process::output(program.env_remove("ROLLCALL_COMPONENTS").args(["config", "--example"]))?;
    let kept = fs::read_to_string(workspace.root.join(EXAMPLE)).ok();
    Ok(difference(kept.as_deref(), &written).into_iter().collect())
}

/// The first line at which the two differ.
fn difference(kept: Option<&str>, written: &str) -> Option<Finding> {
    let mend = format!("write it anew: `target/debug/rollcall config --example > {EXAMPLE}`");
    let Some(kept) = kept else { return Some(Finding::new(EXAMPLE, 1, format!("is missing; {mend}"))) };
    if kept == written {
        return None;
    }
    let (mut left, mut right) = (kept.lines(), written.lines());
    let mut line = 1;
    loop {
        let pair = (left.next(), right.next());
        if pair.0 != pair.1 || pair.0.is_none() {
            let quote = |line: Option<&str>| line.map_or("nothing more".to_owned(), |line| format!("`{line}`"));
            let message = format!("has {} where the program writes {}; {mend}", quote(pair.0), quote(pair.1));
            return Some(Finding::new(EXAMPLE, line, message));
        }
        line += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kept: Option<&str>, written: &str) -> Option<(usize, String)> {
        difference(kept, written).map(|finding| {
            let message = finding.message.split(';').next().unwrap_or_default().to_owned();
            (finding.line, message)
        })
    }

    #[test]
    fn stale_example_is_found_at_its_line() {
        let message = "has `b = 2` where the program writes `b = 3`".to_owned();
        assert_eq!(found(Some("a = 1\nb = 2\n"), "a = 1\nb = 3\n"), Some((2, message)));
    }

    #[test]
    fn short_and_missing_examples_are_found() {
        let message = "has nothing more where the program writes `b = 3`".to_owned();
        assert_eq!(found(Some("a = 1\n"), "a = 1\nb = 3\n"), Some((2, message)));
        assert_eq!(found(Some("a = 1"), "a = 1\n").map(|(line, _)| line), Some(2));
        assert_eq!(found(None, "a = 1\n"), Some((1, "is missing".to_owned())));
    }

    #[test]
    fn same_example_passes() {
        assert_eq!(found(Some("a = 1\n"), "a = 1\n"), None);
    }
}
