//! `cargo xtask publish`: makes ready what others fetch, and sends it where it is told to.
//!
//! Published are the contract, as one binary package of WIT, every function by itself, and every component of `dist/`. All
//! of them lie in one OCI image layout ([`layout`]), from which any tool copies to any registry; the contract lies beside it
//! as a file, for tools that take files.
//!
//! It works on what is built. Everything that was written is read back and checked before anything is said of it, let alone
//! sent; and what was sent is asked back, because some tools compress or rewrite what they copy.

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

/// What everything is published under: the namespace of the contract, which registries of WIT look under.
const NAMESPACE: &str = "rollcall";

/// The version of the components; the contract has one of its own.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the components are licensed under.
const LICENSE: &str = env!("CARGO_PKG_LICENSE");

/// Where `wkg` looks for what is said about the contract, and so do we.
const METADATA: &str = "wkg.toml";

/// What stands for the registry in a command that is shown.
const SOME_REGISTRY: &str = "REGISTRY";

/// Makes everything ready and checks it. With `to`, a registry and perhaps a path in it, sends it there as well; without,
/// shows the commands that would. A dry run says what there is, and stops.
pub(crate) fn run(workspace: &Workspace, dry_run: bool, to: Option<&str>) -> Result<()> {
    let folder = workspace.target.join("publish");
    let contract = contract(&workspace.root)?;
    let file = format!("{NAMESPACE}-{}.wasm", contract.name);
    let mut artifacts = vec![contract];
    artifacts.extend(components(&workspace.components, "", 1)?);
    let functions = artifacts.len() - 1;
    ensure!(functions > 0, "there is no component in {}: run `cargo xtask build`", workspace.components.display());
    artifacts.extend(components(&workspace.root.join("dist"), "", usize::MAX)?);
    announce(&format!("publish: the contract, {functions} functions, {} deployments", artifacts.len() - 1 - functions));

    let layout = Layout::write(folder.join("oci"), &artifacts, &created(&workspace.root)?)?;
    if let Some(contract) = artifacts.first() {
        write(&folder.join(file), &contract.bytes)?;
    }
    let stored = layout.read_back().context("what was just written does not read back as it should")?;
    ensure!(stored.len() == artifacts.len(), "{} of {} artifacts read back", stored.len(), artifacts.len());
    println!("{}", table(&stored));
    match to {
        _ if dry_run => Ok(()),
        Some(registry) => {
            let without = "sending needs skopeo; `wkg oci push` sends single components without it";
            process::output(Command::new("skopeo").arg("--version")).context(without)?;
            stored.iter().try_for_each(|artifact| send(&layout, artifact, registry))
        }
        None => {
            println!("\nTo send them, `cargo xtask publish --to {SOME_REGISTRY}`, or by hand:\n");
            for artifact in &stored {
                println!("{}", process::line(&copy(&layout, artifact, SOME_REGISTRY)).trim_matches('`'));
            }
            Ok(())
        }
    }
}

/// The contract as a binary package, named and versioned as it says itself.
fn contract(root: &Path) -> Result<Artifact> {
    let mut resolve = Resolve::default();
    let (id, _) = resolve.push_dir(root.join("wit"))?;
    let name = &resolve.packages.get(id).context("the contract is no package")?.name;
    ensure!(name.namespace == NAMESPACE, "the contract is of the namespace `{}`, not `{NAMESPACE}`", name.namespace);
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

/// What `wkg.toml` says about the contract.
#[derive(Debug, PartialEq, Eq)]
struct Metadata {
    description: String,
    license: String,
}

impl Metadata {
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not as it should be", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let manifest: Table = text.parse()?;
        let metadata = manifest.get("metadata").context("there is no `[metadata]`")?;
        let field = |name: &str| {
            let value = metadata.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.map(str::to_owned).with_context(|| format!("`[metadata]` has no `{name}`"))
        };
        Ok(Self { description: field("description")?, license: field("license")? })
    }
}

/// The components in a folder, and in the folders below it down to so many levels. One in a folder below is named after
/// that too: `spin-heartbeat`.
fn components(folder: &Path, prefix: &str, levels: usize) -> Result<Vec<Artifact>> {
    let mut artifacts = Vec::new();
    if levels == 0 || !folder.exists() {
        return Ok(artifacts);
    }
    for path in entries(folder)? {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let name = format!("{prefix}{}", stem.with_context(|| format!("{} has an odd name", path.display()))?);
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

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let about = || format!("cannot list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(about)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>().with_context(about)?;
    paths.sort_unstable();
    Ok(paths)
}

/// When the newest change was made, for the artifacts to carry: the same sources give the same digests, whoever publishes.
fn created(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(root).env("TZ", "UTC");
    git.args(["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]);
    Ok(process::output(&mut git)?.trim().to_owned())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies an artifact to a registry, and asks it back.
fn send(layout: &Layout, artifact: &Stored, registry: &str) -> Result<()> {
    process::run(&mut copy(layout, artifact, registry))?;
    let mut inspect = Command::new("skopeo");
    inspect.args(["inspect", "--raw"]).args(is_loopback(registry).then_some("--tls-verify=false"));
    let arrived = digest(process::output(inspect.arg(address(artifact, registry)))?.as_bytes());
    ensure!(arrived == artifact.digest, "{} was sent as {} and arrived as {arrived}", artifact.name, artifact.digest);
    Ok(())
}

/// The command that copies an artifact as it is: of other digests nobody could say what they are.
fn copy(layout: &Layout, artifact: &Stored, registry: &str) -> Command {
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--preserve-digests"]).args(is_loopback(registry).then_some("--dest-tls-verify=false"));
    skopeo.arg(format!("oci:{}:{}", layout.folder().display(), artifact.name)).arg(address(artifact, registry));
    skopeo
}

fn address(artifact: &Stored, registry: &str) -> String {
    format!("docker://{}/{NAMESPACE}/{}:{}", registry.trim_end_matches('/'), artifact.name, artifact.version)
}

/// A registry on this machine is a trial, and speaks plain HTTP.
fn is_loopback(registry: &str) -> bool {
    let host = registry.split('/').next().unwrap_or_default();
    let without_port = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let host = if host.ends_with(']') { host } else { without_port };
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// One line each: its name and version, the digest to pin it by, how large it is, and what it needs of its host.
fn table(stored: &[Stored]) -> String {
    let title = |one: &Stored| format!("{NAMESPACE}/{}:{}", one.name, one.version);
    let width = stored.iter().map(|one| title(one).len()).max().unwrap_or_default();
    let line = |one: &Stored| {
        let (title, kib, needs) = (title(one), one.bytes.div_ceil(1024), grouped(&one.imports));
        format!("{title:width$}  {}  {kib:>5} KiB  {needs}", one.digest)
    };
    stored.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The names of interfaces, each package named once: `rollcall:presence@0.1.0 {sessions, settings}`.
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
    fn contract_is_published_under_its_own_name_and_version() -> Result<()> {
        let contract = contract(root())?;
        assert_eq!((contract.name.as_str(), contract.version.as_str()), ("presence", "0.1.0"));
        assert_eq!(contract.license, LICENSE, "{METADATA} and Cargo.toml agree");
        Ok(())
    }

    #[test]
    fn metadata_that_lacks_something_is_refused() {
        let parse = |text: &str| Metadata::parse(text).map_err(|error| error.to_string());
        assert_eq!(parse("[other]"), Err("there is no `[metadata]`".to_owned()));
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
    fn packages_are_named_once() {
        let names = ["a:b/x@1.0.0", "a:b/y@1.0.0", "a:b/z@2.0.0", "plain"].map(str::to_owned);
        assert_eq!(grouped(&names), "a:b@1.0.0 {x, y} a:b@2.0.0 {z} plain {}");
        assert_eq!(grouped(&[]), "nothing");
    }

    #[test]
    fn only_a_registry_on_this_machine_is_spoken_to_in_the_clear() {
        for registry in ["localhost", "localhost:5000", "127.0.0.1:5000/x", "127.0.0.2", "[::1]:5000", "[::1]/x"] {
            assert!(is_loopback(registry), "{registry}");
        }
        for registry in ["registry.example", "localhost.example:5000", "10.0.0.1:5000", "127.example/localhost", ""] {
            assert!(!is_loopback(registry), "{registry}");
        }
    }
}
