//! The files that the rules check: those that git tracks or would track, by path from the root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The largest file of a repository of text; larger ones are data.
pub(super) const MAX_FILE_BYTES: u64 = 512 * 1024;

/// A set of files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

/// What the rules need of a file.
#[derive(Debug)]
pub(super) struct File {
    /// Its size.
    pub(super) bytes: u64,
    /// Its content; `None` if it is too large or not UTF-8.
    pub(super) text: Option<String>,
}

impl Tree {
    /// Reads what git tracks and what `git add .` would add; a tracked file that was deleted is left out.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::output(&mut git)?;
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            let full = root.join(path);
            let Ok(metadata) = fs::symlink_metadata(&full) else { continue };
            if !metadata.is_file() {
                continue;
            }
            let text = if metadata.len() <= MAX_FILE_BYTES {
                String::from_utf8(fs::read(&full).with_context(|| format!("cannot read {path}"))?).ok()
            } else {
                None
            };
            files.insert(path.to_owned(), File { bytes: metadata.len(), text });
        }
        Ok(Self { files })
    }

    /// Every file and its path, sorted by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The text files whose path has this suffix.
    pub(super) fn texts(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        let texts = self.files().filter_map(|(path, file)| Some((path, file.text.as_deref()?)));
        texts.filter(move |(path, _)| path.ends_with(suffix))
    }

    /// One text file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether this is a file, or a folder that contains a file.
    pub(super) fn contains(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(next, _)| next.starts_with(&folder))
    }

    /// A tree in memory.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File { bytes: text.len() as u64, text: Some(text.to_owned()) };
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect() }
    }
}

/// The violations of a rule in a tree of these files, one line each.
#[cfg(test)]
pub(super) fn violations(rule: fn(&Tree) -> Vec<super::Violation>, files: &[(&str, &str)]) -> Vec<String> {
    rule(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_exists_if_it_contains_a_file() {
        let tree = Tree::of(&[("docs/adr/0001.md", ""), ("docs-old.md", "")]);
        assert!(tree.contains("docs/adr") && tree.contains("docs") && tree.contains("docs/adr/0001.md"));
        assert!(!tree.contains("doc") && !tree.contains("docs-old") && !tree.contains("docs/adr/0001"));
    }
}
