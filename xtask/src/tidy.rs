//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy checks.
//!
//! Each rule is a pure function from the tree of files to violations, so a test can show that it detects bad input. It fixes
//! nothing: a violation names the place and what to do.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::reference;
use crate::sync_contract;
use crate::tidy::tree::Tree;
use crate::workspace::Workspace;

mod config;
mod contract;
pub(crate) mod dependencies;
mod files;
mod manifests;
mod names;
mod prose;
mod rust;
mod tree;
mod words;

/// One violation of one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks every rule. Builds the `rollcall` binary if it is missing, because it writes the example config.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let violations = check_files(workspace)?;
    let example = config::check(workspace)?;
    report([violations, example].concat())
}

/// Checks the rules that need only the files.
pub(crate) fn files(workspace: &Workspace) -> Result<()> {
    report(check_files(workspace)?)
}

/// Checks that the example config is the one that the built `rollcall` binary writes.
pub(crate) fn example(workspace: &Workspace) -> Result<()> {
    report(config::check(workspace)?)
}

fn check_files(workspace: &Workspace) -> Result<Vec<Violation>> {
    let tree = Tree::read(&workspace.root)?;
    let mut violations = contract::check(&workspace.root);
    violations.extend(reference(&workspace.root)?);
    violations.extend(synchronous(&workspace.root)?);
    violations.extend(dependencies::check(workspace, &tree));
    for rule in [files::check, names::check, rust::check, manifests::check, prose::check, words::check] {
        violations.extend(rule(&tree));
    }
    Ok(violations)
}

/// `docs/API.md` must be what `cargo xtask reference` writes.
fn reference(root: &Path) -> Result<Option<Violation>> {
    let stale = fs::read_to_string(root.join(reference::PAGE)).ok() != Some(reference::page(root)?);
    Ok(stale.then(|| Violation::new(reference::PAGE, 1, "is not up to date: run `cargo xtask reference`")))
}

/// `wit-sync/` must be what `cargo xtask reference` writes.
fn synchronous(root: &Path) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for (source, folder) in sync_contract::FOLDERS {
        if sync_contract::is_stale(root, source, folder)? {
            violations.push(Violation::new(
                folder,
                1,
                format!("is not made from {source}: run `cargo xtask reference`"),
            ));
        }
    }
    Ok(violations)
}

fn report(mut violations: Vec<Violation>) -> Result<()> {
    violations.sort();
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("tidy: no violations");
            Ok(())
        }
        1 => bail!("tidy found 1 violation"),
        count => bail!("tidy found {count} violations"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_has_path_and_line() {
        assert_eq!(Violation::new("host/src/lib.rs", 7, "is wrong").to_string(), "host/src/lib.rs:7: is wrong");
    }

    #[test]
    fn any_violation_fails() {
        assert!(report(Vec::new()).is_ok());
        assert!(report(vec![Violation::new("a", 1, "is wrong")]).is_err());
    }
}
