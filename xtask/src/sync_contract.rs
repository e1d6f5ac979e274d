//! The synchronous contract, `wit-sync/`, made from `wit/` by `cargo xtask reference`. `tidy` checks that both agree.
//!
//! A host without asynchronous calls cannot call an `async func`, and the component model has no subtyping between the two.
//! So the same contract exists a second time, as the package `rollcall:presence-sync`: `async func` becomes `func`, and a
//! stream becomes a resource whose `next` waits for a bounded time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::build::write_if_changed;

/// The folders of the contract and of the worlds that `crates/contract` binds, each with the folder made from it.
pub(crate) const FOLDERS: [(&str, &str); 2] =
    [("wit", "wit-sync"), ("crates/contract/wit", "crates/contract/wit-sync")];

/// The package names.
const PACKAGES: (&str, &str) = ("rollcall:presence", "rollcall:presence-sync");

/// A stream of items and why it ended, as a function returns it: before and after the type of an item.
const STREAM: (&str, &str) = ("tuple<stream<", ">, future<result<_, error>>>");

/// Where a file comes from. At its end, because a comment before a package, an interface or a world counts as its documentation.
const FOOT: &str = "\n// Made from wit/ by `cargo xtask reference`: change that, not this.\n";

/// Sentences of `wit/` that are different without streams.
const SENTENCES: [(&str, &str); 3] = [
    ("The future says why the stream ended", "The error of `next` says why the stream ended"),
    ("the stream ends and the future says `unavailable`", "`next` fails with `unavailable`"),
    (" A reader that went away is noticed with the next update.", ""),
];

/// Writes the files and removes those that are no longer made.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (source, folder) in FOLDERS {
        let made = files(&root.join(source))?;
        for (name, text) in &made {
            write_if_changed(&root.join(folder).join(name), text.as_bytes())?;
        }
        for name in read(&root.join(folder))?.into_keys().filter(|name| !made.contains_key(name)) {
            fs::remove_file(root.join(folder).join(&name)).with_context(|| format!("cannot remove {folder}/{name}"))?;
        }
    }
    Ok(())
}

/// Whether a folder is not what [`write`] would leave.
pub(crate) fn is_stale(root: &Path, source: &str, folder: &str) -> Result<bool> {
    Ok(read(&root.join(folder)).unwrap_or_default() != files(&root.join(source))?)
}

/// The files made from the ones in this folder, by name.
fn files(source: &Path) -> Result<BTreeMap<String, String>> {
    let made = |(name, text): (String, String)| {
        let text = synchronous(&text).with_context(|| format!("cannot convert {}", source.join(&name).display()))?;
        Ok((name, text))
    };
    read(source)?.into_iter().map(made).collect()
}

/// The files of a folder, by name.
fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).context("a file name is not text")?;
        files.insert(name.to_owned(), text);
    }
    Ok(files)
}

/// One file of the contract without asynchronous calls and streams.
fn synchronous(text: &str) -> Result<String> {
    let (asynchronous, synchronous) = PACKAGES;
    let mut text = text.replace(asynchronous, synchronous).replace(": async func(", ": func(");
    for (before, after) in SENTENCES {
        text = text.replace(before, after);
    }
    while let Some((before, rest)) = text.split_once(STREAM.0) {
        let (item, after) = rest.split_once(STREAM.1).context("a stream is not returned together with its end")?;
        let (before, documented) = before.split_at(before.rfind("\n\n").context("a stream before any function")? + 1);
        text = format!("{before}\n{}{documented}{item}-stream{after}", resource(item));
    }
    ensure!(!text.contains("stream<") && !text.contains("future<"), "a stream is used in another place than a result");
    Ok(format!("{text}{FOOT}"))
}

/// The resource in place of a stream of these items.
fn resource(item: &str) -> String {
    format!(
        "  /// A stream of `{item}`. Dropping it ends the stream.
  resource {item}-stream {{
    /// The next items, oldest first. Waits for the first of them, at most `wait-ms` milliseconds; if none came, the list is
    /// empty. The error says why the stream ended; every further call fails.
    next: func(wait-ms: u32) -> result<list<{item}>, error>;
  }}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_becomes_a_resource() -> Result<()> {
        let made = synchronous(
            "package rollcall:presence@0.1.0;\n\ninterface topics {\n  use types.{item, error};\n\n  /// Watches.\n  \
             watch: async func(of: string) -> result<tuple<stream<item>, future<result<_, error>>>, error>;\n}\n",
        )?;
        let expected = format!(
            "package rollcall:presence-sync@0.1.0;\n\ninterface topics {{\n  use types.{{item, error}};\n\n{}\n  \
             /// Watches.\n  watch: func(of: string) -> result<item-stream, error>;\n}}\n{FOOT}",
            resource("item")
        );
        assert_eq!(made, expected);
        Ok(())
    }

    #[test]
    fn stream_in_another_place_is_refused() {
        for text in
            ["a {\n\n  x: async func(of: stream<u8>);\n}", "a {\n\n  x: async func() -> tuple<stream<u8>, u32>;\n}"]
        {
            assert!(synchronous(text).is_err(), "{text}");
        }
    }
}
