//! `cargo xtask dist`: the components for other hosts: `dist/spin`, `dist/spin-redis` and `dist/spin-sqlite` for Spin 4.1,
//! `dist/spin-4.0` and `dist/spin-4.0-redis` for Spin 4.0, `dist/spin-3`, `dist/spin-3-redis` and `dist/spin-3-sqlite` for any
//! Spin since 3.0, `dist/wasi` and `dist/wasi-0.2` for any host of WASI 0.3 and 0.2.
//!
//! A folder for Spin has its own manifest, so that it can be copied to where it runs; they are made from `spin.toml`.
//!
//! Each file is composed of a trigger, its function with the functions that it imports, and the adapters that implement their
//! capabilities. The functions are byte for byte those that our host embeds.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::build::{self, write_if_changed};
use crate::compose::{Part, composed};
use crate::process::announce;
use crate::workspace::{RELEASE_CANDIDATE, SYNC, WASI_0_2, Workspace};

/// The deployed functions, each with all functions in its file, importers after what they import.
const DEPLOYED: [(&str, &[&str]); 6] = [
    ("heartbeat", &["heartbeat"]),
    ("query", &["restriction-check", "query"]),
    ("subscribe", &["restriction-check", "heartbeat", "typing", "subscribe"]),
    ("typing", &["restriction-check", "typing"]),
    ("restriction-check", &["restriction-check"]),
    ("offline-sweep", &["offline-sweep"]),
];

/// The functions that publish or subscribe.
const USING_TOPICS: [&str; 2] = ["subscribe", "typing"];

/// The adapter for topics, beside `adapters/redis-tcp`.
const TOPICS: &str = "adapters/redis-topics";

/// The functions that use the archive.
const USING_ARCHIVE: [&str; 3] = ["query", "subscribe", "offline-sweep"];

/// The component for Spin's Redis trigger, and its function.
const EXPIRY: (&str, &[&str]) = ("triggers/redis-expiry", &["offline-sweep"]);

/// On Spin, over a socket: all commands of a call are pipelined and changes are pushed; Spin's own connection takes one command
/// at a time.
const ON_SPIN: &[&str] = &["adapters/spin-variables", "adapters/redis-tcp"];

/// On Spin, over Spin's own connection, which resolves names and supports TLS.
const BY_SPIN: &[&str] = &["adapters/spin-variables", "adapters/spin-redis"];

/// On hosts with WASI only.
const ON_WASI: &[&str] = &["adapters/environment", "adapters/redis-tcp"];

/// The archive in SQLite.
const SQLITE: &str = "adapters/spin-sqlite";

/// The adapters that do not use WASI 0.3: they run with the release candidate as they are.
const WITHOUT_WASI: [&str; 2] = ["adapters/environment", "adapters/spin-variables"];

/// The manifest for Spin 4.1, over sockets, which the others are made from.
const MANIFEST: &str = "spin.toml";

/// The folders for Spin, and the edits that make their manifest from [`MANIFEST`].
const MANIFESTS: [(&str, &[(&str, &str)]); 6] = [
    ("spin", &[]),
    ("spin-redis", &[BY_SPIN_EDIT]),
    ("spin-4.0", &[FOR_4_0_EDIT]),
    ("spin-4.0-redis", &[BY_SPIN_EDIT, FOR_4_0_EDIT]),
    ("spin-3", &[FOR_3_EDIT]),
    ("spin-3-redis", &[BY_SPIN_EDIT, FOR_3_EDIT]),
];

/// Spin itself connects to Redis.
const BY_SPIN_EDIT: (&str, &str) = ("tcp://{{ redis_addresses }}", "redis://{{ redis_host }}");

/// The version that a manifest needs.
const FOR_4_0_EDIT: (&str, &str) = (
    "It needs Spin 4.1 or newer, which supports WASI 0.3.",
    "It needs Spin 4.0, with the release candidate of WASI 0.3.",
);

/// The version that a manifest needs.
const FOR_3_EDIT: (&str, &str) =
    ("It needs Spin 4.1 or newer, which supports WASI 0.3.", "It needs Spin 3.0 or newer; it uses only WASI 0.2.");

/// One file of `dist/`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deployment {
    /// Its path, relative to `dist/`.
    file: PathBuf,
    /// Its parts; each imports only from those before it.
    parts: Vec<String>,
}

/// Builds the triggers and adapters, and writes `dist/`.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    build::triggers_and_adapters(workspace)?;
    build::synchronous_functions(workspace)?;
    let deployments = deployments();
    announce(&format!("dist: {} files", deployments.len()));
    let mut read = HashMap::new();
    for deployment in &deployments {
        for part in &deployment.parts {
            if !read.contains_key(part) {
                read.insert(part.clone(), component(workspace, part)?);
            }
        }
        write(workspace, deployment, &read)?;
    }
    let path = workspace.root.join(MANIFEST);
    let shipped = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for (folder, edits) in MANIFESTS {
        let made = manifest(&shipped, edits).with_context(|| format!("cannot make the manifest of dist/{folder}"))?;
        write_if_changed(&workspace.root.join("dist").join(folder).join(MANIFEST), made.as_bytes())?;
    }
    Ok(())
}

/// The manifest of a folder: its components are beside it, and nothing is built there.
fn manifest(shipped: &str, edits: &[(&str, &str)]) -> Result<String> {
    let (before, rest) = shipped.split_once("[component.heartbeat.build]\n").context("no `build` of heartbeat")?;
    let (_, after) = rest.split_once("\n\n").context("no end of `build`")?;
    let mut made = format!("{before}\n{after}").replace("\"dist/spin/", "\"");
    for (old, new) in edits {
        ensure!(made.contains(old), "{MANIFEST} has no `{old}`");
        made = made.replace(old, new);
    }
    Ok(made)
}

fn write(workspace: &Workspace, deployment: &Deployment, read: &HashMap<String, Vec<u8>>) -> Result<()> {
    let parts = deployment.parts.iter().filter_map(|name| Some(Part { name, bytes: read.get(name)? }));
    let bytes = composed(&parts.collect::<Vec<_>>());
    let bytes = bytes.with_context(|| format!("cannot compose {}", deployment.file.display()))?;
    write_if_changed(&workspace.root.join("dist").join(&deployment.file), &bytes)
}

fn component(workspace: &Workspace, name: &str) -> Result<Vec<u8>> {
    let path = workspace.components.join(Path::new(name).with_extension("wasm"));
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// All files of `dist/`.
fn deployments() -> Vec<Deployment> {
    let mut all = Vec::new();
    for (function, functions) in DEPLOYED {
        let trigger = format!("triggers/http/{function}");
        let topics: &[&str] = if USING_TOPICS.contains(&function) { &[TOPICS] } else { &[] };
        all.push(deployment("spin", function, &[ON_SPIN, topics], functions, &trigger));
        all.push(deployment("spin-redis", function, &[BY_SPIN], functions, &trigger));
        all.push(deployment("wasi", function, &[ON_WASI, topics], functions, &trigger));
        all.push(deployment("spin-4.0", function, &[ON_SPIN, topics], functions, &trigger).for_release_candidate());
        all.push(deployment("spin-4.0-redis", function, &[BY_SPIN], functions, &trigger).for_release_candidate());
        all.push(deployment("spin-3", function, &[ON_SPIN, topics], functions, &trigger).synchronous());
        all.push(deployment("spin-3-redis", function, &[BY_SPIN], functions, &trigger).synchronous());
        all.push(deployment("wasi-0.2", function, &[ON_WASI, topics], functions, &trigger).synchronous());
        if USING_ARCHIVE.contains(&function) {
            let adapters = [ON_SPIN, topics, &[SQLITE]];
            all.push(deployment("spin-sqlite", function, &adapters, functions, &trigger));
            all.push(deployment("spin-3-sqlite", function, &adapters, functions, &trigger).synchronous());
        }
    }
    let (trigger, functions) = EXPIRY;
    // An instance handles one message, so its own connection would gain nothing over Spin's.
    for folder in ["spin", "spin-redis"] {
        all.push(deployment(folder, "redis-expiry", &[BY_SPIN], functions, trigger));
    }
    // Also for Spin 4.0: measuring CPU time there, its Redis trigger panics after a call of an asynchronous function.
    for folder in ["spin-4.0", "spin-4.0-redis", "spin-3", "spin-3-redis"] {
        all.push(deployment(folder, "redis-expiry", &[BY_SPIN], functions, trigger).synchronous());
    }
    all
}

impl Deployment {
    /// The same with the triggers and adapters that were built for the release candidate.
    fn for_release_candidate(mut self) -> Self {
        for part in &mut self.parts {
            // Functions have no folder, and do not depend on WASI.
            if part.contains('/') && !WITHOUT_WASI.contains(&part.as_str()) {
                *part = format!("{RELEASE_CANDIDATE}/{part}");
            }
        }
        self
    }

    /// The same with the functions of the synchronous contract, and triggers and adapters that were built for WASI 0.2.
    fn synchronous(mut self) -> Self {
        for part in &mut self.parts {
            let folder = if part.contains('/') { WASI_0_2 } else { SYNC };
            *part = format!("{folder}/{part}");
        }
        self
    }
}

fn deployment(folder: &str, name: &str, adapters: &[&[&str]], functions: &[&str], trigger: &str) -> Deployment {
    let file = Path::new(folder).join(name).with_extension("wasm");
    let parts = [adapters.concat().as_slice(), functions, &[trigger]].concat();
    Deployment { file, parts: parts.into_iter().map(str::to_owned).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_deployed_with_its_adapters() {
        let all = deployments();
        let parts = |file: &str| all.iter().find(|one| one.file == Path::new(file)).map(|one| one.parts.join(" "));
        for (function, _) in DEPLOYED {
            for folder in
                ["spin", "spin-redis", "spin-4.0", "spin-4.0-redis", "spin-3", "spin-3-redis", "wasi", "wasi-0.2"]
            {
                assert!(parts(&format!("{folder}/{function}.wasm")).is_some(), "{folder}: {function}");
            }
        }
        let query = "adapters/spin-variables adapters/redis-tcp adapters/spin-sqlite restriction-check query triggers/http/query";
        assert_eq!(parts("spin-sqlite/query.wasm").as_deref(), Some(query));
        assert_eq!(parts("spin-sqlite/heartbeat.wasm"), None);
        let typing = "adapters/environment adapters/redis-tcp adapters/redis-topics restriction-check typing triggers/http/typing";
        assert_eq!(parts("wasi/typing.wasm").as_deref(), Some(typing));
        let beat = "adapters/spin-variables wasi-rc/adapters/redis-tcp heartbeat wasi-rc/triggers/http/heartbeat";
        assert_eq!(parts("spin-4.0/heartbeat.wasm").as_deref(), Some(beat));
        let beat = "wasi-0.2/adapters/spin-variables wasi-0.2/adapters/redis-tcp sync/heartbeat wasi-0.2/triggers/http/heartbeat";
        assert_eq!(parts("spin-3/heartbeat.wasm").as_deref(), Some(beat));
    }

    #[test]
    fn manifest_is_made_for_its_folder() -> Result<()> {
        let shipped = "# It needs Spin 4.1 or newer, which supports WASI 0.3.\n[component.heartbeat]\nsource = \"dist/spin/heartbeat.wasm\"\n\
            allowed = [\"tcp://{{ redis_addresses }}:1\"]\n[component.heartbeat.build]\ncommand = \"x\"\n\n[component.query]\n";
        let made = manifest(shipped, &[BY_SPIN_EDIT, FOR_4_0_EDIT])?;
        let expected = "# It needs Spin 4.0, with the release candidate of WASI 0.3.\n[component.heartbeat]\nsource = \"heartbeat.wasm\"\n\
            allowed = [\"redis://{{ redis_host }}:1\"]\n\n[component.query]\n";
        assert_eq!(made, expected);
        assert!(manifest(shipped, &[("absent", "")]).is_err());
        Ok(())
    }
}
