//! Rule for `docs/ARCHITECTURE.md`: its table of dependencies between packages must match `cargo metadata`.
//!
//! The table is in the section "Dependencies", with a row `| package | depends on |` for every package of `crates/`, and the
//! host. Names are without the prefix `rollcall-`. Development dependencies are not part of it. `cargo xtask reference` writes
//! the rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};

use super::Violation;
use super::tree::Tree;
use crate::build::write_if_changed;
use crate::workspace::Workspace;

/// The document with the table.
const DOCUMENT: &str = "docs/ARCHITECTURE.md";

/// The heading of its section.
const HEADING: &str = "## Dependencies";

/// The dependencies of each package within the workspace, by short name.
type Table = BTreeMap<String, BTreeSet<String>>;

/// The first two lines of the table.
const HEAD: &str = "| package | depends on |\n|---|---|\n";

/// Writes the table, as a section at the end of the document if there is none.
pub(crate) fn write(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    write_if_changed(&path, updated(&text, &workspace.dependencies()).as_bytes())
}

fn updated(text: &str, actual: &Table) -> String {
    let rows = actual.iter().map(|(name, of)| format!("| {name} | {} |\n", list(of))).collect::<String>();
    let table = format!("{HEAD}{rows}");
    let Some(section) = text.find(HEADING).and_then(|at| text.get(at..)) else {
        return format!("{text}\n{HEADING}\n\n{table}");
    };
    let lines = section.split_inclusive('\n').skip_while(|line| !line.starts_with('|'));
    let old = lines.take_while(|line| line.starts_with('|')).collect::<String>();
    if old.is_empty() {
        text.replacen(HEADING, &format!("{HEADING}\n\n{table}"), 1)
    } else {
        text.replacen(&old, &table, 1)
    }
}

/// Compares the table with the workspace.
pub(super) fn check(workspace: &Workspace, tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(DOCUMENT) else { return Vec::new() };
    compare(text, &workspace.dependencies())
}

fn compare(text: &str, actual: &Table) -> Vec<Violation> {
    let Some(rows) = rows(text) else {
        return vec![Violation::new(DOCUMENT, 1, format!("has no section `{HEADING}`: run `cargo xtask reference`"))];
    };
    let mut violations = Vec::new();
    for (line, name, documented) in &rows {
        match actual.get(name) {
            None => violations.push(Violation::new(DOCUMENT, *line, format!("`{name}` is not a package of the table"))),
            Some(found) if found != documented => {
                let message = format!("`{name}` depends on {}, not on {}", list(found), list(documented));
                violations.push(Violation::new(DOCUMENT, *line, message));
            }
            Some(_) => {}
        }
    }
    let last = rows.last().map_or(1, |(line, _, _)| *line);
    let missing = actual.iter().filter(|(name, _)| !rows.iter().any(|(_, row, _)| row == *name));
    violations.extend(missing.map(|(name, found)| {
        Violation::new(
            DOCUMENT,
            last,
            format!("the table lacks `| {name} | {} |`: run `cargo xtask reference`", list(found)),
        )
    }));
    violations
}

/// The rows of the table: line, package, dependencies. `None` if there is no such section.
fn rows(text: &str) -> Option<Vec<(usize, String, BTreeSet<String>)>> {
    let mut lines = (1..).zip(text.lines());
    lines.find(|(_, line)| line.trim() == HEADING)?;
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let cells = section.filter_map(|(number, line)| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        Some((number, cells.next()?, cells.next()?))
    });
    // The head of a table and the line below it.
    let cells = cells.skip(2);
    Some(cells.map(|(number, name, of)| (number, names(name).into_iter().collect(), names(of))).collect())
}

/// The names in a cell, with or without backticks. A dash stands for none.
fn names(cell: &str) -> BTreeSet<String> {
    let words = cell.split([',', ' ']).map(|word| word.trim_matches('`'));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).map(str::to_owned).collect()
}

fn list(names: &BTreeSet<String>) -> String {
    if names.is_empty() { "–".to_owned() } else { names.iter().cloned().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actual() -> Table {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        [("core".to_owned(), set(&[])), ("functions".to_owned(), set(&["core"]))].into()
    }

    fn found(rows: &str) -> Vec<String> {
        let text =
            format!("# A\n## Dependencies\n\n| package | depends on |\n|---|---|\n{rows}\n## Next\n| other | x |\n");
        compare(&text, &actual()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn matching_table_passes() {
        assert_eq!(found("| `core` | – |\n| functions | `core` |"), [""; 0]);
    }

    #[test]
    fn wrong_missing_and_unknown_rows_are_reported() {
        let expected = [
            "docs/ARCHITECTURE.md:6: `core` depends on –, not on functions",
            "docs/ARCHITECTURE.md:7: `gone` is not a package of the table",
            "docs/ARCHITECTURE.md:7: the table lacks `| functions | core |`: run `cargo xtask reference`",
        ];
        assert_eq!(found("| core | functions |\n| gone | core |"), expected);
    }

    #[test]
    fn written_table_passes() {
        let old =
            "# A\n## Dependencies\n\nText.\n\n| package | depends on |\n|---|---|\n| gone | core |\n\nMore.\n## B\n";
        for text in [old, "# A\n", "# A\n## Dependencies\n## B\n"] {
            assert_eq!(compare(&updated(text, &actual()), &actual()), Vec::new(), "{text}");
        }
        assert_eq!(updated(old, &actual()), old.replace("| gone | core |", "| core | – |\n| functions | core |"));
    }

    #[test]
    fn missing_section_is_reported() {
        assert_eq!(compare("# A\n", &actual()).len(), 1);
    }
}
