//! `cargo xtask publish`: writes the contract and the components as OCI artifacts, and pushes them to a registry.
//!
//! Published are the contract as a binary WIT package, every function, and every component of `dist/`. They are written to one
//! OCI image layout ([`layout`]), which any OCI tool can copy to a registry. The contract is also written as a file.
//!
//! The layout is read back and checked before anything is pushed. After a push the manifest is fetched and its digest compared,
//! because some tools compress or rewrite what they copy.

mod layout;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};
use wit_parser::Resolve;

use crate::process::{self, announce};
use crate::workspace::Workspace;

use layout::{Artifact, Layout, Stored, digest};

/// The namespace of all artifacts: that of the contract, as WIT registries expect.
const NAMESPACE: &str = "rollcall";

/// The version of the components; the contract has its own.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The license of the components.
const LICENSE: &str = env!("CARGO_PKG_LICENSE");

/// The metadata of the contract; `wkg` reads the same file.
const METADATA: &str = "wkg.toml";

/// Placeholder for the registry in printed commands.
const SOME_REGISTRY: &str = "REGISTRY";

/// Writes and checks the layout. With `to`, a registry with an optional path, also pushes it; without, prints the commands for
/// that. A dry run lists the artifacts and stops.
pub(crate) fn run(workspace: &Workspace, dry_run: bool, to: Option<&str>) -> Result<()> {
    let folder = workspace.target.join("publish");
    let contract = contract(&workspace.root)?;
    let file = format!("{NAMESPACE}-{}.wasm", contract.name);
    let mut artifacts = vec![contract];
    artifacts.extend(components(&workspace.components, "", 1)?);
    let functions = artifacts.len() - 1;
    ensure!(functions > 0, "no component in {}: run `cargo xtask build`", workspace.components.display());
    artifacts.extend(components(&workspace.root.join("dist"), "", usize::MAX)?);
    announce(&format!("publish: the contract, {functions} functions, {} deployments", artifacts.len() - 1 - functions));

    let layout = Layout::write(folder.join("oci"), &artifacts, &created(&workspace.root)?)?;
    if let Some(contract) = artifacts.first() {
        write(&folder.join(file), &contract.bytes)?;
    }
    let stored = layout.read_back().context("the written layout is not valid")?;
    ensure!(stored.len() == artifacts.len(), "{} of {} artifacts read back", stored.len(), artifacts.len());
    println!("{}", table(&stored));
    match to {
        _ if dry_run => Ok(()),
        Some(registry) => {
            let advice = "pushing needs skopeo; `wkg oci push` pushes single components without it";
            process::output(Command::new("skopeo").arg("--version")).context(advice)?;
            stored.iter().try_for_each(|artifact| push(&layout, artifact, registry))
        }
        None => {
            println!("\nTo push them, run `cargo xtask publish --to {SOME_REGISTRY}`, or by hand:\n");
            for artifact in &stored {
                println!("{}", process::line(&copy(&layout, artifact, SOME_REGISTRY)).trim_matches('`'));
            }
            Ok(())
        }
    }
}

/// The contract as a binary WIT package, with the name and version in its source.
fn contract(root: &Path) -> Result<Artifact> {
    let mut resolve = Resolve::default();
    let (id, _) = resolve.push_dir(root.join("wit"))?;
    let name = &resolve.packages.get(id).context("the contract is not a package")?.name;
    ensure!(name.namespace == NAMESPACE, "the contract has the namespace `{}`, expected `{NAMESPACE}`", name.namespace);
    let version = name.version.as_ref().context("the contract has no version")?.to_string();
    let metadata = Metadata::read(&root.join(METADATA))?;
    let bytes = wit_component::encode(&resolve, id)?;
    Ok(Artifact {
        name: name.name.clone(),
        version,
        license: metadata.license,
        description: Some(metadata.description),
        bytes,
    })
}

/// The metadata of the contract in `wkg.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Metadata {
    description: String,
    license: String,
}

impl Metadata {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not valid", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let manifest: Table = text.parse()?;
        let metadata = manifest.get("metadata").context("`[metadata]` is missing")?;
        let field = |name: &str| {
            let value = metadata.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.map(str::to_owned).with_context(|| format!("`[metadata]` has no `{name}`"))
        };
        Ok(Self { description: field("description")?, license: field("license")? })
    }
}

/// The components in a folder and its subfolders, down to `levels`. The name of a subfolder becomes a prefix:
/// `spin-heartbeat`.
fn components(folder: &Path, prefix: &str, levels: usize) -> Result<Vec<Artifact>> {
    let mut artifacts = Vec::new();
    if levels == 0 || !folder.exists() {
        return Ok(artifacts);
    }
    for path in entries(folder)? {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let name = format!("{prefix}{}", stem.with_context(|| format!("the name of {} is not UTF-8", path.display()))?);
        if path.is_dir() {
            artifacts.extend(components(&path, &format!("{name}-"), levels - 1)?);
        } else if path.extension().is_some_and(|extension| extension == "wasm") {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let (version, license) = (VERSION.to_owned(), LICENSE.to_owned());
            artifacts.push(Artifact { name, version, license, description: None, bytes });
        }
    }
    Ok(artifacts)
}

/// The contents of a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let about = || format!("cannot list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(about)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>().with_context(about)?;
    paths.sort_unstable();
    Ok(paths)
}

/// The time of the last commit, which the artifacts carry: the same sources give the same digests.
fn created(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(root).env("TZ", "UTC");
    git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]);
    Ok(process::output(&mut git)?.trim().to_owned())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies an artifact to a registry and compares the digest of what arrived.
fn push(layout: &Layout, artifact: &Stored, registry: &str) -> Result<()> {
    process::run(&mut copy(layout, artifact, registry))?;
    let mut inspect = Command::new("skopeo");
    inspect.args(["inspect", "--raw"]).args(is_loopback(registry).then_some("--tls-verify=false"));
    let arrived = digest(process::output(inspect.arg(address(artifact, registry)))?.as_bytes());
    ensure!(arrived == artifact.digest, "{} was pushed as {} and arrived as {arrived}", artifact.name, artifact.digest);
    Ok(())
}

/// The command that copies an artifact without changing its digest.
fn copy(layout: &Layout, artifact: &Stored, registry: &str) -> Command {
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--preserve-digests"]).args(is_loopback(registry).then_some("--dest-tls-verify=false"));
    skopeo.arg(format!("oci:{}:{}", layout.folder().display(), artifact.name)).arg(address(artifact, registry));
    skopeo
}

fn address(artifact: &Stored, registry: &str) -> String {
    format!("docker://{}/{NAMESPACE}/{}:{}", registry.trim_end_matches('/'), artifact.name, artifact.version)
}

/// A registry on this machine is for tests, and uses plain HTTP.
fn is_loopback(registry: &str) -> bool {
    let host = registry.split('/').next().unwrap_or_default();
    let without_port = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let host = if host.ends_with(']') { host } else { without_port };
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// One line for each artifact: name and version, digest, size, imports.
fn table(stored: &[Stored]) -> String {
    let title = |one: &Stored| format!("{NAMESPACE}/{}:{}", one.name, one.version);
    let width = stored.iter().map(|one| title(one).len()).max().unwrap_or_default();
    let line = |one: &Stored| {
        let (title, kib, needs) = (title(one), one.bytes.div_ceil(1024), grouped(&one.imports));
        format!("{title:width$}  {}  {kib:>5} KiB  {needs}", one.digest)
    };
    stored.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Interface names grouped by package: `rollcall:presence@0.1.0 {sessions, settings}`.
fn grouped(names: &[String]) -> String {
    let mut packages = BTreeMap::<String, Vec<&str>>::new();
    for name in names {
        let (path, version) = name.split_once('@').map_or((name.as_str(), None), |(path, at)| (path, Some(at)));
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        let package = version.map_or_else(|| package.to_owned(), |version| format!("{package}@{version}"));
        packages.entry(package).or_default().push(interface);
    }
    if packages.is_empty() {
        return "nothing".to_owned();
    }
    let group = |(package, interfaces): (&String, &Vec<&str>)| format!("{package} {{{}}}", interfaces.join(", "));
    packages.iter().map(group).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
    }

    #[test]
    fn contract_keeps_its_name_and_version() -> Result<()> {
        let contract = contract(root())?;
        assert_eq!((contract.name.as_str(), contract.version.as_str()), ("presence", "0.1.0"));
        assert_eq!(contract.license, LICENSE, "{METADATA} and Cargo.toml agree");
        Ok(())
    }

    #[test]
    fn incomplete_metadata_is_refused() {
        let parse = |text: &str| Metadata::parse(text).map_err(|error| error.to_string());
        assert_eq!(parse("[other]"), Err("`[metadata]` is missing".to_owned()));
        assert_eq!(parse("[metadata]\nlicense = \"X\""), Err("`[metadata]` has no `description`".to_owned()));
        let whole = Metadata { description: "D".to_owned(), license: "X".to_owned() };
        assert_eq!(parse("[metadata]\nlicense = \"X\"\ndescription = \"D\""), Ok(whole));
    }

    #[test]
    fn components_are_named_after_their_folders() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("rollcall-xtask-{}-published", std::process::id()));
        fs::create_dir_all(folder.join("spin"))?;
        for file in ["query.wasm", "query.stamp", "spin/query.wasm", "spin/spin.toml"] {
            write(&folder.join(file), file.as_bytes())?;
        }
        let names = |levels| {
            let found = components(&folder, "", levels)?;
            anyhow::Ok(found.into_iter().map(|artifact| artifact.name).collect::<Vec<_>>())
        };
        assert_eq!(names(1)?, ["query"]);
        assert_eq!(names(2)?, ["query", "spin-query"]);
        assert!(components(&folder.join("none"), "", 1)?.is_empty());
        Ok(fs::remove_dir_all(folder)?)
    }

    #[test]
    fn imports_are_grouped_by_package() {
        let names = ["a:b/x@1.0.0", "a:b/y@1.0.0", "a:b/z@2.0.0", "plain"].map(str::to_owned);
        assert_eq!(grouped(&names), "a:b@1.0.0 {x, y} a:b@2.0.0 {z} plain {}");
        assert_eq!(grouped(&[]), "nothing");
    }

    #[test]
    fn only_loopback_registries_use_plain_http() {
        for registry in ["localhost", "localhost:5000", "127.0.0.1:5000/x", "127.0.0.2", "[::1]:5000", "[::1]/x"] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in ["registry.example", "localhost.example:5000", "10.0.0.1:5000", "127.example/localhost", ""] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }
}
