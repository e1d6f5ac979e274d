//! `cargo xtask build`: functions to components, components to machine code, and the binary that embeds both.
//!
//! The `rollcall` binary embeds the output of the `precompile` binary. So `precompile`, and the library that it shares with
//! `rollcall`, must compile before there is any component.
//!
//! A file is written only when its bytes change. Cargo compares times: a component that was rebuilt to the same bytes must
//! not make cargo rebuild the host.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use wit_component::ComponentEncoder;

use crate::compose::{Part, composed};
use crate::process::{self, announce};
use crate::web;
use crate::workspace::{Package, RELEASE_CANDIDATE, SYNC, WASI_0_2, Workspace, selection};

/// The target of functions. It has no operating system, so they can import nothing but the contract.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// The target of triggers and adapters, which use WASI.
pub(crate) const WASI_TARGET: &str = "wasm32-wasip2";

/// The cargo profile of components.
const WASM_PROFILE: &str = "guest";

/// The function that decides visibility.
const CHECK: &str = "restriction-check";

/// The functions that import it.
const IMPORTERS: [&str; 3] = ["query", "subscribe", "typing"];

/// How native code is built. Components are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For development and tests.
    Dev,
    /// For deployment and benchmarks.
    Release,
}

impl Profile {
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// Builds the components, the console and the `rollcall` binary.
pub(crate) fn run(workspace: &Workspace, profile: Profile) -> Result<()> {
    if !binary(workspace, profile, "precompile").exists() {
        announce("the first build takes about ten minutes on 2 cores: it compiles wasmtime");
    }
    let components = functions(workspace)?;
    in_folder(workspace, &workspace.examples(), "examples")?;
    compose(workspace, &components)?;
    // Before the host, which embeds it.
    web::build(workspace)?;
    announce("host: precompile");
    cargo_build(workspace, profile, "precompile")?;
    let precompiler = binary(workspace, profile, "precompile");
    for component in &components {
        precompile(&precompiler, component)?;
    }
    announce("host: rollcall");
    cargo_build(workspace, profile, "rollcall")
}

/// Builds the functions.
pub(crate) fn functions(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let functions = workspace.functions();
    ensure!(!functions.is_empty(), "no package in components/ is a function");
    by_features(workspace, functions, WASM_TARGET, Flavour::Released)
}

/// Builds the functions for the synchronous contract.
pub(crate) fn synchronous_functions(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.components.join(SYNC);
    components(workspace, &workspace.functions(), &folder, WASM_TARGET, Flavour::Synchronous)
}

/// Builds triggers and adapters for WASI 0.3 and 0.2, and those that use WASI 0.3 once more for its release candidate.
pub(crate) fn triggers_and_adapters(workspace: &Workspace) -> Result<()> {
    let mut all = workspace.triggers_and_adapters();
    by_features(workspace, all.clone(), WASI_TARGET, Flavour::Released)?;
    components(workspace, &all, &workspace.components.join(WASI_0_2), WASI_TARGET, Flavour::Wasi02)?;
    all.retain(|package| package.follows_wasi);
    by_features(workspace, all, WASI_TARGET, Flavour::ReleaseCandidate).map(drop)
}

/// Which contract and which WASI a component is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    /// WASI 0.3.0; also for what does not depend on it.
    Released,
    /// WASI 0.3.0-rc-2026-03-15, which Spin 4.0 has.
    ReleaseCandidate,
    /// WASI 0.2 and the synchronous contract.
    Wasi02,
    /// A function of the synchronous contract.
    Synchronous,
}

impl Flavour {
    /// The cargo options that select it.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Released => &[],
            Self::ReleaseCandidate => &["--no-default-features", "--features", RELEASE_CANDIDATE],
            Self::Wasi02 => &["--no-default-features", "--features", WASI_0_2],
            Self::Synchronous => &["--features", SYNC],
        }
    }
}

/// Builds the packages that spawn tasks and those that do not with one cargo call each: cargo unifies features within a call.
fn by_features(workspace: &Workspace, packages: Vec<&Package>, target: &str, flavour: Flavour) -> Result<Vec<PathBuf>> {
    let folder = match flavour {
        Flavour::ReleaseCandidate => workspace.components.join(RELEASE_CANDIDATE),
        _ => workspace.components.clone(),
    };
    let (spawning, plain): (Vec<_>, Vec<_>) = packages.into_iter().partition(|package| package.spawns);
    let mut built = Vec::new();
    for group in [plain, spawning].iter().filter(|group| !group.is_empty()) {
        built.extend(components(workspace, group, &folder, target, flavour)?);
    }
    Ok(built)
}

/// Builds the hostile components for the tests.
pub(crate) fn guests(workspace: &Workspace) -> Result<()> {
    in_folder(workspace, &workspace.guests(), "guests")
}

/// Builds the other hosts that the tests deploy to. Each in its own cargo call, so that the features it needs of wasmtime are
/// not turned on in the wasmtime of our host.
pub(crate) fn other_hosts(workspace: &Workspace, profile: Profile) -> Result<()> {
    for package in workspace.other_hosts() {
        announce(&format!("another host: {}", package.short_name()));
        let release: &[&str] = if profile == Profile::Release { &["--release"] } else { &[] };
        process::run(workspace.cargo().args(["build", "-p", &package.name]).args(release))?;
    }
    Ok(())
}

/// Builds the component that the functions are measured against, for WASI 0.3 and 0.2.
pub(crate) fn baselines(workspace: &Workspace) -> Result<()> {
    let folder = workspace.components.join("baselines");
    components(workspace, &workspace.baselines(), &folder, WASI_TARGET, Flavour::Released)?;
    components(workspace, &workspace.baselines(), &folder.join(WASI_0_2), WASI_TARGET, Flavour::Wasi02).map(drop)
}

/// Builds components that the binary does not embed into a folder of their own.
fn in_folder(workspace: &Workspace, packages: &[&Package], folder: &str) -> Result<()> {
    if !packages.is_empty() {
        components(workspace, packages, &workspace.components.join(folder), WASM_TARGET, Flavour::Released)?;
    }
    Ok(())
}

/// Composes each function that imports the visibility check with it, for hosts that do not link components.
fn compose(workspace: &Workspace, components: &[PathBuf]) -> Result<()> {
    let named = |name: &str| components.iter().find(|path| path.file_stem().is_some_and(|stem| stem == name));
    let Some(check) = named(CHECK) else { return Ok(()) };
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let check = read(check)?;
    for path in IMPORTERS.into_iter().filter_map(named) {
        let importer = read(path)?;
        let parts = [Part { name: CHECK, bytes: &check }, Part { name: "its importer", bytes: &importer }];
        let composed = composed(&parts).with_context(|| format!("cannot compose {CHECK} and {}", path.display()))?;
        let file = path.file_name().with_context(|| format!("{} is not a file", path.display()))?;
        write_if_changed(&workspace.components.join("composed").join(file), &composed)?;
    }
    Ok(())
}

/// Where cargo puts a binary of the host.
pub(crate) fn binary(workspace: &Workspace, profile: Profile, name: &str) -> PathBuf {
    workspace.target.join(profile.folder()).join(name)
}

fn cargo_build(workspace: &Workspace, profile: Profile, name: &str) -> Result<()> {
    let mut cargo = workspace.cargo();
    cargo.arg("build").args(selection(&workspace.natives())).args(["--bin", name]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    process::run(&mut cargo)
}

/// Builds these packages and writes each as a component to `folder`, named after the folder of the package.
fn components(
    workspace: &Workspace,
    packages: &[&Package],
    folder: &Path,
    target: &str,
    flavour: Flavour,
) -> Result<Vec<PathBuf>> {
    let names = packages.iter().map(|package| package.short_name()).collect::<Vec<_>>();
    announce(&format!("components: {}", names.join(", ")));
    let (plain, varied): (Vec<_>, Vec<_>) = packages.iter().copied().partition(|package| package.variants.is_empty());
    let mut built = Vec::new();
    if !plain.is_empty() {
        compile(workspace, &plain, target, flavour, None)?;
        for package in plain {
            built.push(component(workspace, package, &folder.join(package.short_name()), target)?);
        }
    }
    // Cargo gives every variant the same file name, so each is taken away before the next is built. Only the package itself is
    // compiled again: its dependencies are the same.
    for package in varied {
        for variant in &package.variants {
            compile(workspace, &[package], target, flavour, Some(variant))?;
            built.push(component(workspace, package, &folder.join(package.short_name()).join(variant), target)?);
        }
    }
    Ok(built)
}

fn compile(
    workspace: &Workspace,
    packages: &[&Package],
    target: &str,
    flavour: Flavour,
    variant: Option<&str>,
) -> Result<()> {
    let mut cargo = workspace.cargo_for(target);
    cargo.arg("build").args(selection(packages)).args(["--target", target, "--profile", WASM_PROFILE]);
    cargo.args(flavour.options());
    if let Some(variant) = variant {
        cargo.args(["--features", variant]);
    }
    process::run(&mut cargo)
}

/// Writes the component of a package that was compiled. `path` lacks the extension.
fn component(workspace: &Workspace, package: &Package, path: &Path, target: &str) -> Result<PathBuf> {
    let library = package.cdylib.as_deref().with_context(|| {
        format!("{}/Cargo.toml: a component needs `crate-type = [\"cdylib\"]` under `[lib]`", package.folder.display())
    })?;
    let file = workspace.target.join(target).join(WASM_PROFILE).join(library).with_extension("wasm");
    let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    // On this target the linker writes a component.
    let component = if target == WASI_TARGET { Ok(bytes) } else { encode(&bytes) };
    let component = component.with_context(|| format!("cannot make a component of {}", package.name))?;
    let path = path.with_extension("wasm");
    write_if_changed(&path, &component)?;
    Ok(path)
}

/// Makes a component of a core module, whose world `wit-bindgen` left in a custom section.
fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default().validate(true).module(module)?.encode()
}

/// Compiles `x.wasm` to `x.cwasm` beside it, unless neither the component nor the precompiler changed since.
///
/// The precompiler is linked again whenever the host changes, and nearly always writes the same bytes. So the time of the last
/// run is kept in a stamp file, and the `.cwasm` keeps its own time as long as its bytes stay the same.
fn precompile(precompiler: &Path, component: &Path) -> Result<()> {
    let compiled = component.with_extension("cwasm");
    let stamp = component.with_extension("stamp");
    if compiled.exists() && is_newer(&stamp, &[component, precompiler])? {
        return Ok(());
    }
    let fresh = component.with_extension("cwasm.new");
    process::run(Command::new(precompiler).arg(component).arg(&fresh))?;
    let bytes = fs::read(&fresh).with_context(|| format!("cannot read {}", fresh.display()))?;
    write_if_changed(&compiled, &bytes)?;
    fs::remove_file(&fresh).with_context(|| format!("cannot remove {}", fresh.display()))?;
    fs::write(&stamp, []).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Whether the file exists and is at least as new as all inputs.
fn is_newer(file: &Path, inputs: &[&Path]) -> Result<bool> {
    if !file.exists() {
        return Ok(false);
    }
    let written = modified(file)?;
    for input in inputs {
        if modified(input)? > written {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn modified(path: &Path) -> Result<SystemTime> {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    time.with_context(|| format!("cannot read the time of {}", path.display()))
}

pub(crate) fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    match fs::read(path) {
        Ok(old) if old == bytes => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use wit_component::{StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use super::*;

    /// A core module with one function, exported as `ring`, that does nothing.
    const MODULE: &[u8] =
        b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x08\x01\x04ring\0\0\x0a\x04\x01\x02\0\x0b";

    /// How every component begins: the magic bytes, version 13, layer 1.
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    fn folder(name: &str) -> Result<PathBuf> {
        let folder = std::env::temp_dir().join(format!("rollcall-xtask-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    #[test]
    fn module_with_a_world_becomes_a_component() -> Result<()> {
        let mut resolve = Resolve::default();
        let package = resolve.push_source("bell.wit", "package test:bell; world bell { export ring: func(); }")?;
        let world = resolve.select_world(&[package], Some("bell"))?;
        let mut module = MODULE.to_vec();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
        assert!(encode(&module)?.starts_with(COMPONENT));
        Ok(())
    }

    #[test]
    fn module_without_its_worlds_exports_is_refused() -> Result<()> {
        let mut resolve = Resolve::default();
        let package = resolve.push_source("bell.wit", "package test:bell; world bell { export toll: func(); }")?;
        let world = resolve.select_world(&[package], Some("bell"))?;
        let mut module = MODULE.to_vec();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
        assert!(encode(&module).is_err());
        Ok(())
    }

    #[test]
    fn same_bytes_keep_the_time_of_the_file() -> Result<()> {
        let folder = folder("same")?;
        let file = folder.join("below/x.wasm");
        write_if_changed(&file, b"one")?;
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        fs::File::options().write(true).open(&file)?.set_modified(old)?;
        write_if_changed(&file, b"one")?;
        assert_eq!(modified(&file)?, old);
        write_if_changed(&file, b"two")?;
        assert_eq!((fs::read(&file)?, modified(&file)? > old), (b"two".to_vec(), true));
        Ok(fs::remove_dir_all(folder)?)
    }

    #[test]
    fn precompiler_runs_again_only_when_something_is_newer() -> Result<()> {
        let folder = folder("precompile")?;
        let precompiler = folder.join("precompile");
        fs::write(&precompiler, "#!/bin/sh\necho run >> \"$(dirname \"$0\")/log\"\ncp \"$1\" \"$2\"\n")?;
        fs::set_permissions(&precompiler, fs::Permissions::from_mode(0o755))?;
        let component = folder.join("x.wasm");
        fs::write(&component, "one")?;
        let runs = || -> Result<usize> { Ok(fs::read_to_string(folder.join("log"))?.lines().count()) };

        precompile(&precompiler, &component)?;
        precompile(&precompiler, &component)?;
        assert_eq!((runs()?, fs::read_to_string(folder.join("x.cwasm"))?.as_str()), (1, "one"));

        let later = SystemTime::now() + Duration::from_secs(5);
        fs::File::options().write(true).open(&precompiler)?.set_modified(later)?;
        let before = modified(&folder.join("x.cwasm"))?;
        precompile(&precompiler, &component)?;
        assert_eq!((runs()?, modified(&folder.join("x.cwasm"))?), (2, before));
        Ok(fs::remove_dir_all(folder)?)
    }
}
