//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy knows.
//!
//! Each rule is a pure function from the tree of files to findings, so that a test can show it failing on a bad input.
//! It mends nothing: a finding names the place and says what to do.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::reference;
use crate::tidy::tree::Tree;
use crate::workspace::Workspace;

mod config;
mod contract;
mod files;
mod manifests;
mod names;
mod prose;
mod rust;
mod tree;

/// One breach of one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Every rule. Builds the `rollcall` binary if it is not there, because it writes the example config.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let findings = static_findings(workspace)?;
    let example = config::check(workspace)?;
    report([findings, example].concat())
}

/// The rules that need nothing but the files.
pub(crate) fn files(workspace: &Workspace) -> Result<()> {
    report(static_findings(workspace)?)
}

/// The rule that needs the built `rollcall` binary: the example config is the one that it writes.
pub(crate) fn example(workspace: &Workspace) -> Result<()> {
    report(config::check(workspace)?)
}

fn static_findings(workspace: &Workspace) -> Result<Vec<Finding>> {
    let tree = Tree::read(&workspace.root)?;
    let mut findings = contract::check(&workspace.root);
    findings.extend(reference(&workspace.root)?);
    for rule in [files::check, names::check, rust::check, manifests::check, prose::check] {
        findings.extend(rule(&tree));
    }
    Ok(findings)
}

/// The page about the API is the one that is written from its document.
fn reference(root: &Path) -> Result<Option<Finding>> {
    let stale = fs::read_to_string(root.join(reference::PAGE)).ok() != Some(reference::page(root)?);
    Ok(stale.then(|| Finding::new(reference::PAGE, 1, "is not what `cargo xtask reference` writes: run it")))
}

fn report(mut findings: Vec<Finding>) -> Result<()> {
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: nothing to mend");
            Ok(())
        }
        1 => bail!("tidy found 1 thing to mend"),
        count => bail!("tidy found {count} things to mend"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_reads_like_a_compiler_message() {
        assert_eq!(Finding::new("host/src/lib.rs", 7, "is wrong").to_string(), "host/src/lib.rs:7: is wrong");
    }

    #[test]
    fn any_finding_is_a_failure() {
        assert!(report(Vec::new()).is_ok());
        assert!(report(vec![Finding::new("a", 1, "is wrong")]).is_err());
    }
}
