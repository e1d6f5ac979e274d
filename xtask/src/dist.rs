//! What is deployed to hosts that are not ours: `dist/spin` and its relatives for Spin, `dist/wasi` for any host of WASI 0.3.
//!
//! Each file is a trigger, the function behind it with the functions that it asks, and the adapters that provide what they
//! import, composed. The functions inside are the ones that the host embeds, byte for byte.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::build::{self, write_if_changed};
use crate::compose::{Part, composed};
use crate::process::announce;
use crate::workspace::Workspace;

/// The functions that are deployed, each with all that stands between its trigger and the adapters, in the order in which each
/// needs those before it.
const DEPLOYED: [(&str, &[&str]); 6] = [
    ("heartbeat", &["heartbeat"]),
    ("query", &["restriction-check", "query"]),
    ("subscribe", &["restriction-check", "heartbeat", "typing", "subscribe"]),
    ("typing", &["restriction-check", "typing"]),
    ("restriction-check", &["restriction-check"]),
    ("offline-sweep", &["offline-sweep"]),
];

/// The functions that tell of changes.
const TELLING: [&str; 2] = ["subscribe", "typing"];

/// What provides for that, beside `adapters/redis-tcp`.
const TOPICS: &str = "adapters/redis-topics";

/// The functions that ask the archive.
const ARCHIVING: [&str; 3] = ["query", "subscribe", "offline-sweep"];

/// The trigger of Spin's Redis trigger, and what is behind it.
const EXPIRY: (&str, &[&str]) = ("triggers/redis-expiry", &["offline-sweep"]);

/// On Spin, by a socket: all commands of a call go in one piece, which Spin's own connection takes one by one, and whoever
/// watches is told at once: docs/adr/0016-triggers-and-adapters.md.
const ON_SPIN: &[&str] = &["adapters/spin-variables", "adapters/redis-tcp"];

/// On Spin, by Spin's own connection, which knows names and TLS.
const BY_SPIN: &[&str] = &["adapters/spin-variables", "adapters/spin-redis"];

/// What provides everything where there is nothing but WASI.
const ON_WASI: &[&str] = &["adapters/environment", "adapters/redis-tcp"];

/// An archive of the application's own.
const SQLITE: &str = "adapters/spin-sqlite";

/// One file of `dist/`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deployment {
    /// Where it goes, relative to `dist/`.
    file: PathBuf,
    /// Its parts, each needing only those before it.
    parts: Vec<String>,
}

/// Builds the triggers and the adapters, and writes all of `dist/`.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    build::connectors(workspace)?;
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
    Ok(())
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

/// All that is deployed.
fn deployments() -> Vec<Deployment> {
    let mut all = Vec::new();
    for (function, functions) in DEPLOYED {
        let trigger = format!("triggers/http/{function}");
        let topics: &[&str] = if TELLING.contains(&function) { &[TOPICS] } else { &[] };
        all.push(deployment("spin", function, &[ON_SPIN, topics], functions, &trigger));
        all.push(deployment("spin-redis", function, &[BY_SPIN], functions, &trigger));
        all.push(deployment("wasi", function, &[ON_WASI, topics], functions, &trigger));
        if ARCHIVING.contains(&function) {
            all.push(deployment("spin-sqlite", function, &[ON_SPIN, topics, &[SQLITE]], functions, &trigger));
        }
    }
    let (trigger, functions) = EXPIRY;
    // An instance lives for one message, so nothing is gained by a connection that is ours.
    all.push(deployment("spin", "redis-expiry", &[BY_SPIN], functions, trigger));
    all
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
    fn every_function_is_deployed_everywhere_with_the_adapters_that_it_needs() {
        let all = deployments();
        let parts = |file: &str| all.iter().find(|one| one.file == Path::new(file)).map(|one| one.parts.join(" "));
        for (function, _) in DEPLOYED {
            for folder in ["spin", "spin-redis", "wasi"] {
                assert!(parts(&format!("{folder}/{function}.wasm")).is_some(), "{folder}: {function}");
            }
        }
        let query = "adapters/spin-variables adapters/redis-tcp adapters/spin-sqlite restriction-check query triggers/http/query";
        assert_eq!(parts("spin-sqlite/query.wasm").as_deref(), Some(query));
        assert_eq!(parts("spin-sqlite/heartbeat.wasm"), None);
        let typing = "adapters/environment adapters/redis-tcp adapters/redis-topics restriction-check typing triggers/http/typing";
        assert_eq!(parts("wasi/typing.wasm").as_deref(), Some(typing));
    }
}
