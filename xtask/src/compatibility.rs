//! The README's table "Where it runs", from what the last run of the tests saw.
//!
//! A test that passes in a host leaves a record in `target/compatibility`: host, version, and what ran. Rows of hosts that need
//! an option of `cargo xtask test` carry a date and stay until the next run with that option.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::build::write_if_changed;
use crate::process;

const PAGE: &str = "README.md";

/// The first two lines of the table.
const HEAD: &str = "| host | versions | what runs | how it was tried |\n|---|---|---|---|\n";

/// What the table says of hosts that every run tries.
const EVERY_RUN: &str = "every run of the tests";

/// The hosts that are tried only with an option.
const OPTIONS: [(&str, &str); 2] = [("Spin", "--spin=PATH"), ("`wasmtime serve`", "--wasmtime")];

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    host: String,
    versions: String,
    runs: String,
    how: String,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        let [host, versions, runs, how] = cells.try_into().ok()?;
        Some(Self { host: host.into(), versions: versions.into(), runs: runs.into(), how: how.into() })
    }

    fn line(&self) -> String {
        format!("| {} | {} | {} | {} |\n", self.host, self.versions, self.runs, self.how)
    }
}

/// Below the checkout, like the components, wherever cargo builds.
fn folder(root: &Path) -> PathBuf {
    root.join("target/compatibility")
}

/// Removes the records of the last run.
pub(crate) fn forget(root: &Path) -> Result<()> {
    match fs::remove_dir_all(folder(root)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes the table. Without records it stays as it is.
pub(crate) fn write(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(PAGE))?;
    let (before, rows, after) = split(&text)?;
    let seen = seen(root)?;
    if seen.is_empty() {
        return Ok(());
    }
    let lines: String = merged(rows, seen).iter().map(Row::line).collect();
    write_if_changed(&root.join(PAGE), format!("{before}{HEAD}{lines}{after}").as_bytes())
}

/// Every host that the table says every run tries must have passed in this run.
pub(crate) fn check(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(PAGE))?;
    let (_, rows, _) = split(&text)?;
    let seen = seen(root)?;
    for row in rows.iter().filter(|row| row.how == EVERY_RUN) {
        let is_seen = seen.iter().any(|one| one.host == row.host && one.runs == row.runs);
        ensure!(is_seen, "{PAGE} says that {} is tried in every run, and it was not", row.host);
    }
    Ok(())
}

/// The page before the table, its rows, and the page after it.
fn split(text: &str) -> Result<(&str, Vec<Row>, &str)> {
    let (before, rest) = text.split_once(HEAD).with_context(|| format!("{PAGE} has no table of hosts"))?;
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let (rows, after) = rest.split_at(end);
    Ok((before, rows.lines().filter_map(Row::parse).collect(), after))
}

/// The rows for the records, one for the versions of a host that run the same.
fn seen(root: &Path) -> Result<Vec<Row>> {
    let mut versions: BTreeMap<(String, String, String), Vec<String>> = BTreeMap::new();
    let Ok(records) = fs::read_dir(folder(root)) else { return Ok(Vec::new()) };
    for record in records {
        let path = record?.path();
        let text = fs::read_to_string(&path)?;
        let [host, version, runs] = text.trim().split('\t').collect::<Vec<_>>().try_into().ok().context("a record")?;
        let how = match OPTIONS.iter().find(|(name, _)| *name == host) {
            Some((_, option)) => {
                let date = process::output(Command::new("date").args(["-u", "+%F", "-r"]).arg(&path))?;
                format!("`cargo xtask test {option}`, last on {}", date.trim())
            }
            None => EVERY_RUN.to_owned(),
        };
        versions.entry((host.to_owned(), runs.to_owned(), how)).or_default().push(version.to_owned());
    }
    Ok(versions
        .into_iter()
        .map(|((host, runs, how), mut versions)| {
            versions.sort();
            Row { host, versions: versions.join(", "), runs, how }
        })
        .collect())
}

/// The new rows in the order of the old ones, and old rows of hosts that need an option and were not tried now.
fn merged(old: Vec<Row>, mut seen: Vec<Row>) -> Vec<Row> {
    let mut rows = Vec::new();
    for row in old {
        match seen.iter().position(|one| one.host == row.host) {
            Some(index) => rows.push(seen.remove(index)),
            None if row.how != EVERY_RUN => rows.push(row),
            None => {}
        }
    }
    rows.extend(seen);
    rows
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn row(host: &str, versions: &str, how: &str) -> Row {
        Row { host: host.into(), versions: versions.into(), runs: "all".into(), how: how.into() }
    }

    #[test]
    fn rows_are_replaced_kept_and_removed() {
        let old = vec![row("Spin", "3", "by hand"), row("Node", "20", EVERY_RUN), row("gone", "1", EVERY_RUN)];
        let seen = vec![row("Deno", "2", EVERY_RUN), row("Node", "22", EVERY_RUN)];
        let expected = [row("Spin", "3", "by hand"), row("Node", "22", EVERY_RUN), row("Deno", "2", EVERY_RUN)];
        assert_eq!(merged(old, seen), expected);
    }

    #[test]
    fn table_is_found_on_the_page() {
        let line = row("Node", "20", EVERY_RUN).line();
        let page = format!("before\n\n{HEAD}{line}\nafter\n");
        let (before, rows, after) = split(&page).unwrap();
        assert_eq!((before, rows, after), ("before\n\n", vec![row("Node", "20", EVERY_RUN)], "\nafter\n"));
    }
}
