//! The tables of `docs/EMBEDDING.md`, checked against the built components and the contract.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;

use rollcall_tests::{component, root};
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, TypeDefKind};

/// The six functions.
const FUNCTIONS: [&str; 6] = ["heartbeat", "offline-sweep", "query", "restriction-check", "subscribe", "typing"];

fn document() -> String {
    std::fs::read_to_string(root().join("docs/EMBEDDING.md")).unwrap()
}

/// The rows of the table below a heading; of each cell, the words in backticks.
fn table(heading: &str) -> Vec<Vec<BTreeSet<String>>> {
    let document = document();
    let section = document.split(&format!("\n## {heading}\n")).nth(1).expect("the heading exists");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    rows.map(|row| row.trim_matches('|').split('|').map(quoted).collect()).collect()
}

/// The contract interfaces that a component imports and exports, without those that contain only types. Fails on any other
/// interface.
fn shape(name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let bytes = std::fs::read(component(name)).unwrap();
    let DecodedWasm::Component(resolve, world) = decode(&bytes).unwrap() else { panic!("{name} is not a component") };
    let world = &resolve.worlds[world];
    let short = |key: &wit_parser::WorldKey| {
        let whole = resolve.name_world_key(key);
        let short = whole.strip_prefix("rollcall:presence/").and_then(|name| name.strip_suffix("@0.1.0"));
        short.unwrap_or_else(|| panic!("{name} has {whole}, which is not in the contract")).to_owned()
    };
    let imports = world.imports.keys().map(short).filter(|import| !import.ends_with("types")).collect();
    (imports, world.exports.keys().map(short).collect())
}

#[test]
fn component_table_lists_imports_and_exports() {
    let rows = table("The components");
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| row[0].iter().map(String::as_str)).collect();
    assert_eq!(named, FUNCTIONS.into(), "every function has a row");
    for row in &rows {
        let name = row[0].first().unwrap();
        assert_eq!((row[2].clone(), row[1].clone()), shape(name), "{name}");
    }
}

#[test]
fn error_table_has_every_case() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let types = resolve.packages[package].interfaces["types"];
    let error = &resolve.types[resolve.interfaces[types].types["error"]];
    let TypeDefKind::Variant(error) = &error.kind else { panic!("the error is not a variant") };
    let cases: Vec<&str> = error.cases.iter().map(|case| case.name.as_str()).collect();
    let rows = table("Errors");
    let documented: Vec<&str> = rows.iter().map(|row| row[0].first().unwrap().as_str()).collect();
    assert_eq!(documented, cases, "in the order of the contract");
}

#[test]
fn documented_version_is_the_contract_version() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root().join("wit")).unwrap();
    let name = resolve.packages[package].name.to_string();
    assert!(document().contains(&format!("`{name}`")), "{name}");
}
