//! Rules for files of any kind: their size, which must not be committed, and which text they must not contain.

use super::Violation;
use super::tree::{File, MAX_FILE_BYTES, Tree};

/// The most lines of a code file; aim at 300.
const MAX_LINES: usize = 600;

/// The code files that the limit applies to.
const CODE: [&str; 3] = [".rs", ".ts", ".tsx"];

/// Built or local files, which must not be committed.
const BUILT: [&str; 3] = [".wasm", ".cwasm", ".sqlite"];

/// Files that must exist.
const REQUIRED: [&str; 4] = ["CHANGELOG.md", "LICENSE", "README.md", "docs/ARCHITECTURE.md"];

/// Cargo writes it, so no rule applies.
const LOCK: &str = "Cargo.lock";

/// Markers of unfinished work. In two parts, so that this file passes its own rule.
const UNFINISHED: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Folders with clones on developers' and build machines. In two parts for the same reason.
const MACHINES: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Checks every file of the tree.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let missing = REQUIRED.iter().filter(|path| !tree.contains(path)).map(|path| Violation::new(path, 1, "is missing"));
    let own = tree.files().filter(|(path, _)| *path != LOCK);
    missing.chain(own.flat_map(|(path, file)| check_file(path, file))).collect()
}

fn check_file(path: &str, file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    if file.bytes > MAX_FILE_BYTES {
        let message = format!("has {} KB, more than {}", file.bytes / 1024, MAX_FILE_BYTES / 1024);
        violations.push(Violation::new(path, 1, message));
    }
    if BUILT.iter().any(|ending| path.ends_with(ending)) {
        violations.push(Violation::new(path, 1, "is a built file: add it to .gitignore"));
    }
    let Some(text) = file.text.as_deref() else { return violations };
    let count = text.lines().count();
    if count > MAX_LINES && CODE.iter().any(|ending| path.ends_with(ending)) {
        violations.push(Violation::new(
            path,
            MAX_LINES + 1,
            format!("has {count} lines, more than {MAX_LINES}: split it"),
        ));
    }
    for (line, content) in (1..).zip(text.lines()) {
        violations.extend(check_line(path, content).map(|message| Violation::new(path, line, message)));
    }
    violations
}

fn check_line(path: &str, line: &str) -> impl Iterator<Item = String> {
    // Documents may mention the markers.
    let unfinished =
        UNFINISHED.iter().filter(|word| !path.ends_with(".md") && has_word(line, word) && !names_issue(line));
    let unfinished = unfinished.map(|word| format!("{word} without an issue: add its number, as in `{word}(#12)`"));
    let machine = MACHINES.iter().filter(|prefix| begins_path(line, prefix));
    unfinished.chain(machine.map(|prefix| format!("`{prefix}` is a path of one machine: use a relative path")))
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

/// Whether the line contains an absolute path with this prefix; `infra/home/` and `https://example.org/home/` do not count.
fn begins_path(line: &str, prefix: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*' | '~');
    line.match_indices(prefix).any(|(at, _)| !line.get(..at).unwrap_or("").ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::super::tree::violations;
    use super::*;

    /// The violations, without those about missing required files.
    fn found(path: &str, text: &str) -> Vec<String> {
        let mut found = violations(check, &[(path, text)]);
        found.retain(|violation| !violation.ends_with("is missing"));
        found
    }

    #[test]
    fn missing_required_files_are_reported() {
        let found = violations(check, &[("README.md", ""), ("LICENSE", "")]);
        assert_eq!(found, ["CHANGELOG.md:1: is missing", "docs/ARCHITECTURE.md:1: is missing"]);
    }

    #[test]
    fn long_code_file_is_reported() {
        assert_eq!(found("a.rs", &"\n".repeat(601)), ["a.rs:601: has 601 lines, more than 600: split it"]);
        assert_eq!(found("a.tsx", &"\n".repeat(601)).len(), 1);
        assert!(found("a.rs", &"\n".repeat(600)).is_empty() && found("a.md", &"\n".repeat(601)).is_empty());
    }

    #[test]
    fn large_file_is_reported_unless_lock_file() {
        let large = "x".repeat(512 * 1024 + 1);
        assert_eq!(found("data.csv", &large), ["data.csv:1: has 512 KB, more than 512"]);
        assert!(found("Cargo.lock", &large).is_empty());
    }

    #[test]
    fn built_file_is_reported() {
        for path in ["a.wasm", "b/c.cwasm", "last-seen.sqlite"] {
            assert_eq!(found(path, "").len(), 1, "{path}");
        }
    }

    #[test]
    fn unfinished_work_needs_an_issue() {
        for word in UNFINISHED {
            assert_eq!(found("a.rs", &format!("//! a\n// {word}: later")).len(), 1);
            assert!(found("a.rs", &format!("// {word}(#12): later")).is_empty());
            assert!(found("a.md", &format!("no {word} without an issue")).is_empty());
            assert!(found("a.rs", &format!("const {word}_LIST: u8 = 1;")).is_empty());
        }
    }

    #[test]
    fn path_of_one_machine_is_reported() {
        for prefix in MACHINES {
            assert_eq!(found("a.toml", &format!("x = 1\npath = \"{prefix}x\"")).len(), 1);
            assert_eq!(found("a.md", &format!("see file://{prefix}x")).len(), 1);
            assert!(found("a.md", &format!("see https://example.org{prefix}x and infra{prefix}x")).is_empty());
        }
    }
}
