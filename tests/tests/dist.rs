//! The components for other hosts, in `dist/`: which files there are, which functions each contains, what each imports, and
//! that each can be instantiated. `deployments.rs` tests what they do.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use rollcall_tests::{component, root};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, OptLevel, Store};
use wit_parser::decoding::{DecodedWasm, decode};

const FUNCTIONS: [&str; 6] = ["heartbeat", "offline-sweep", "query", "restriction-check", "subscribe", "typing"];

/// The folders for Spin, each with a manifest.
const SPIN_FOLDERS: [&str; 6] = ["spin", "spin-redis", "spin-4.0", "spin-4.0-redis", "spin-3", "spin-3-redis"];

/// The imports Spin provides, and those every WASI 0.3 host provides.
const SPIN: [&str; 5] = ["wasi:", "spin:redis/", "spin:sqlite/", "spin:variables/", "fermyon:spin/"];
const WASI: [&str; 1] = ["wasi:"];

/// Interfaces that contain only types: no host provides anything for them.
const TYPES: [&str; 3] =
    ["rollcall:presence/types@0.1.0", "rollcall:presence/session-types@0.1.0", "rollcall:presence/policy-types@0.1.0"];

/// The functions inside a file.
fn inside(function: &str) -> Vec<&str> {
    match function {
        "redis-expiry" => vec!["offline-sweep"],
        "query" | "typing" => vec!["restriction-check", function],
        "subscribe" => vec!["restriction-check", "heartbeat", "typing", function],
        _ => vec![function],
    }
}

fn file(folder: &str, name: &str) -> PathBuf {
    root().join("dist").join(folder).join(name).with_extension("wasm")
}

/// Every deployed file, with the prefixes of what it may import.
fn deployed() -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let folders = SPIN_FOLDERS
        .map(|folder| (folder, &SPIN[..]))
        .into_iter()
        .chain([("wasi", &WASI[..]), ("wasi-0.2", &WASI[..])]);
    let everywhere = folders.flat_map(|(folder, imports)| FUNCTIONS.map(|name| (folder, name, imports)));
    let archiving = ["spin-sqlite", "spin-3-sqlite"]
        .into_iter()
        .flat_map(|folder| ["query", "subscribe", "offline-sweep"].map(|name| (folder, name, &SPIN[..])));
    let expiry = SPIN_FOLDERS.map(|folder| (folder, "redis-expiry", &SPIN[..]));
    everywhere.chain(archiving).chain(expiry).collect()
}

/// Whether a file contains functions of the synchronous contract.
fn is_synchronous(folder: &str, name: &str) -> bool {
    folder.starts_with("spin-3") || folder == "wasi-0.2" || folder.starts_with("spin-4.0") && name == "redis-expiry"
}

fn names(folder: &str, name: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let bytes = std::fs::read(file(folder, name)).unwrap();
    let DecodedWasm::Component(resolve, world) = decode(&bytes).unwrap() else { panic!("not a component") };
    let world = &resolve.worlds[world];
    let imports = world.imports.iter().map(|(key, _)| resolve.name_world_key(key)).collect();
    (imports, world.exports.iter().map(|(key, _)| resolve.name_world_key(key)).collect())
}

#[test]
fn dist_contains_nothing_else() {
    let mut found = BTreeSet::new();
    for folder in SPIN_FOLDERS.into_iter().chain(["spin-sqlite", "spin-3-sqlite", "wasi", "wasi-0.2"]) {
        for entry in std::fs::read_dir(root().join("dist").join(folder)).unwrap() {
            found.insert(entry.unwrap().path());
        }
    }
    let manifests = SPIN_FOLDERS.map(|folder| root().join("dist").join(folder).join("spin.toml"));
    assert_eq!(found, deployed().into_iter().map(|(folder, name, _)| file(folder, name)).chain(manifests).collect());
}

#[test]
fn dist_functions_are_byte_identical_to_hosts() {
    for (folder, name, _) in deployed() {
        let whole = std::fs::read(file(folder, name)).unwrap();
        for function in inside(name) {
            let part = if is_synchronous(folder, name) { format!("sync/{function}") } else { function.to_owned() };
            let part = std::fs::read(component(&part)).unwrap();
            let is_there = whole.windows(part.len()).any(|bytes| bytes == part);
            assert!(is_there, "dist/{folder}/{name}.wasm does not contain the host's {function}.wasm");
        }
    }
}

#[test]
fn imports_are_all_provided_by_the_platform() {
    for (folder, name, provided) in deployed() {
        let (imports, exports) = names(folder, name);
        let is_types = |import: &&String| TYPES.contains(&import.replace("presence-sync", "presence").as_str());
        for import in imports.iter().filter(|import| !is_types(import)) {
            assert!(provided.iter().any(|prefix| import.starts_with(prefix)), "{folder}/{name} imports {import}");
        }
        let handler = match name {
            "redis-expiry" if is_synchronous(folder, name) => "fermyon:spin/inbound-redis",
            "redis-expiry" => "spin:redis/inbound-redis@3.0.0",
            _ if is_synchronous(folder, name) => "wasi:http/incoming-handler@0.2.12",
            _ if folder.starts_with("spin-4.0") => "wasi:http/handler@0.3.0-rc-2026-03-15",
            _ => "wasi:http/handler@0.3.0",
        };
        if folder.starts_with("spin-4.0") {
            let newer = imports.iter().find(|import| import.ends_with("@0.3.0"));
            assert_eq!(newer, None, "{folder}/{name}: Spin 4.0 has the release candidate only");
        }
        if is_synchronous(folder, name) {
            let newer = imports.iter().find(|import| import.contains("@0.3."));
            assert_eq!(newer, None, "{folder}/{name}: the host has WASI 0.2 only");
        }
        assert!(exports.contains(handler), "{folder}/{name} exports {exports:?}");
        let has_archive = imports
            .iter()
            .any(|import| import.starts_with("spin:sqlite/") || import.starts_with("fermyon:spin/sqlite"));
        assert_eq!(
            has_archive,
            folder.ends_with("-sqlite"),
            "{folder}/{name}: only files in these folders have their own archive"
        );
    }
}

#[tokio::test]
async fn every_file_can_be_instantiated() {
    let mut config = Config::new();
    config.wasm_component_model_async(true);
    // Nothing is called, and each file has two megabytes: compile fast.
    config.cranelift_opt_level(OptLevel::None);
    let engine = Engine::new(&config).unwrap();
    for (folder, name, _) in deployed() {
        let component = Component::from_file(&engine, file(folder, name)).unwrap();
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate_async(&mut store, &component).await;
        instance.unwrap_or_else(|error| panic!("{folder}/{name}: {error:?}"));
    }
}
