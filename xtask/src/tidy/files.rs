//! Rules for files of any kind: their size, what must not be kept in the repository, and what must not stand in them.

use super::Finding;
use super::tree::{File, MAX_FILE_BYTES, Tree};

/// A file of code aims at 300 lines and stops here.
const MAX_LINES: usize = 600;

/// The kinds of code that the limit holds for.
const CODE: [&str; 3] = [".rs", ".ts", ".tsx"];

/// Built or local files: they are made, never kept.
const MADE: [&str; 3] = [".wasm", ".cwasm", ".sqlite"];

/// Files that must be there.
const REQUIRED: [&str; 4] = ["CHANGELOG.md", "LICENSE", "README.md", "docs/ARCHITECTURE.md"];

/// Cargo writes it: its size and its content are not ours.
const LOCK: &str = "Cargo.lock";

/// Words for work that is left. In two parts, so that this file does not break its own rule.
const LEFT: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Where people and build machines keep their clones. In two parts for the same reason.
const MACHINES: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Checks every file of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let missing = REQUIRED.iter().filter(|path| !tree.contains(path)).map(|path| Finding::new(path, 1, "is missing"));
    let own = tree.files().filter(|(path, _)| *path != LOCK);
    missing.chain(own.flat_map(|(path, file)| check_file(path, file))).collect()
}

fn check_file(path: &str, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.bytes > MAX_FILE_BYTES {
        let message = format!("has {} KB, more than {}", file.bytes / 1024, MAX_FILE_BYTES / 1024);
        findings.push(Finding::new(path, 1, message));
    }
    if MADE.iter().any(|ending| path.ends_with(ending)) {
        findings.push(Finding::new(path, 1, "is made by a program: it belongs into .gitignore, not into git"));
    }
    let Some(text) = file.text.as_deref() else { return findings };
    let count = text.lines().count();
    if count > MAX_LINES && CODE.iter().any(|ending| path.ends_with(ending)) {
        findings.push(Finding::new(path, MAX_LINES + 1, format!("has {count} lines, more than {MAX_LINES}: split it")));
    }
    for (line, content) in (1..).zip(text.lines()) {
        findings.extend(check_line(path, content).map(|message| Finding::new(path, line, message)));
    }
    findings
}

fn check_line(path: &str, line: &str) -> impl Iterator<Item = String> {
    // Prose may speak of such words; code that carries one has something left to do.
    let left = LEFT.iter().filter(|word| !path.ends_with(".md") && has_word(line, word) && !names_issue(line));
    let left = left.map(|word| format!("{word} without an issue: add its number, as in `{word}(#12)`"));
    let machine = MACHINES.iter().filter(|prefix| begins_path(line, prefix));
    left.chain(machine.map(|prefix| format!("`{prefix}` is a place on one machine: use a relative path")))
}

fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (line.get(..at).unwrap_or(""), line.get(at + word.len()..).unwrap_or(""));
        !before.ends_with(joins) && !after.starts_with(joins)
    })
}

fn names_issue(line: &str) -> bool {
    line.split('#').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether an absolute path with this beginning stands in the line; `infra/home/` and `https://example.org/home/` do not
/// count.
fn begins_path(line: &str, prefix: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*' | '~');
    line.match_indices(prefix).any(|(at, _)| !line.get(..at).unwrap_or("").ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::super::tree::findings;
    use super::*;

    /// What the rules find beyond the files that are missing from so small a tree.
    fn found(path: &str, text: &str) -> Vec<String> {
        let mut found = findings(check, &[(path, text)]);
        found.retain(|finding| !finding.ends_with("is missing"));
        found
    }

    #[test]
    fn required_files_are_missed() {
        let found = findings(check, &[("README.md", ""), ("LICENSE", "")]);
        assert_eq!(found, ["CHANGELOG.md:1: is missing", "docs/ARCHITECTURE.md:1: is missing"]);
    }

    #[test]
    fn long_file_of_code_is_found() {
        assert_eq!(found("a.rs", &"\n".repeat(601)), ["a.rs:601: has 601 lines, more than 600: split it"]);
        assert_eq!(found("a.tsx", &"\n".repeat(601)).len(), 1);
        assert!(found("a.rs", &"\n".repeat(600)).is_empty() && found("a.md", &"\n".repeat(601)).is_empty());
    }

    #[test]
    fn large_file_is_found_unless_cargo_wrote_it() {
        let large = "x".repeat(512 * 1024 + 1);
        assert_eq!(found("data.csv", &large), ["data.csv:1: has 512 KB, more than 512"]);
        assert!(found("Cargo.lock", &large).is_empty());
    }

    #[test]
    fn made_file_is_found() {
        for path in ["a.wasm", "b/c.cwasm", "last-seen.sqlite"] {
            assert_eq!(found(path, "").len(), 1, "{path}");
        }
    }

    #[test]
    fn work_left_needs_an_issue() {
        for word in LEFT {
            assert_eq!(found("a.rs", &format!("//! a\n// {word}: later")).len(), 1);
            assert!(found("a.rs", &format!("// {word}(#12): later")).is_empty());
            assert!(found("a.md", &format!("no {word} without an issue")).is_empty());
            assert!(found("a.rs", &format!("const {word}_LIST: u8 = 1;")).is_empty());
        }
    }

    #[test]
    fn place_on_one_machine_is_found() {
        for prefix in MACHINES {
            assert_eq!(found("a.toml", &format!("x = 1\npath = \"{prefix}x\"")).len(), 1);
            assert_eq!(found("a.md", &format!("see file://{prefix}x")).len(), 1);
            assert!(found("a.md", &format!("see https://example.org{prefix}x and infra{prefix}x")).is_empty());
        }
    }
}
