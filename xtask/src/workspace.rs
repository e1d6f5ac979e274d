//! The packages of the workspace, from `cargo metadata`, and how each is built.
//!
//! *Functions* (`components/*`), triggers and adapters (below `components/`), *guests* (`tests/guests/*`, hostile
//! components for the tests) and *examples* (`examples/*`, if they are components) are built for wasm only. The rest is
//! *native*. The folder of a package decides; no list of packages is kept here.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build::WASM_TARGET;
use crate::process;

/// The package of the `rollcall` binary.
const HOST: &str = "rollcall-host";

/// Prefix of the names of packages.
const PREFIX: &str = "rollcall-";

/// Where the native libraries are.
const CRATES: &str = "crates";

/// The package of this program.
const XTASK: &str = env!("CARGO_PKG_NAME");

/// The folder of the functions.
const FUNCTIONS: &str = "components";

/// Where the triggers live.
const TRIGGERS: &str = "components/triggers";

/// The folder of the hostile components for the tests.
const GUESTS: &str = "tests/guests";

/// The folders of the other hosts.
const OTHER_HOSTS: [&str; 1] = ["tests/wasmtime"];

/// The component that the functions are measured against, on Spin.
const BASELINE: &str = "tests/baseline";

/// The features of `wit-bindgen` that let a call spawn tasks, and wake another call.
const SPAWNING: [&str; 2] = ["async-spawn", "inter-task-wakeup"];

/// The feature of triggers and adapters that builds them for the release candidate of WASI 0.3.0, which Spin 4.0 has.
pub(crate) const RELEASE_CANDIDATE: &str = "wasi-rc";

/// The feature of triggers and adapters that builds them for WASI 0.2 and the synchronous contract.
pub(crate) const WASI_0_2: &str = "wasi-0.2";

/// The feature of functions that builds them for the synchronous contract.
pub(crate) const SYNC: &str = "sync";

/// Features of a trigger that do not make a component of their own.
const NO_VARIANTS: [&str; 4] = ["default", "wasi", RELEASE_CANDIDATE, WASI_0_2];

/// The folder of the examples.
const EXAMPLES: &str = "examples";

/// The workspace on this machine.
#[derive(Clone)]
pub(crate) struct Workspace {
    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The target directory of cargo.
    pub(crate) target: PathBuf,
    /// The folder of the built components, which the `rollcall` binary embeds.
    pub(crate) components: PathBuf,
    /// The folder of the built console, which the `rollcall` binary embeds.
    pub(crate) console: PathBuf,
    packages: Vec<Package>,
    /// Whether everything except the functions is linted while it is compiled.
    is_linted: bool,
}

/// One package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    /// For example `rollcall-offline-sweep`.
    pub(crate) name: String,
    /// Relative to the root: `components/offline-sweep`.
    pub(crate) folder: PathBuf,
    /// The name of its dynamic library, which names the wasm file: `rollcall_offline_sweep`.
    pub(crate) cdylib: Option<String>,
    /// The names of its dependencies, without those for development.
    dependencies: Vec<String>,
    /// Whether it has a library, which may have doc tests.
    pub(crate) has_library: bool,
    /// A trigger's cargo features: it becomes one component with each of them.
    pub(crate) variants: Vec<String>,
    /// Whether it differs between WASI 0.3.0 and the release candidate, and is built for both.
    pub(crate) follows_wasi: bool,
    /// Whether it uses the features [`SPAWNING`]. With them a component makes more calls to its host whenever it waits, and
    /// cargo turns a feature on for all packages of a build. So packages without them are built separately.
    pub(crate) spawns: bool,
}

impl Workspace {
    /// Reads the workspace around the current folder from `cargo metadata`.
    pub(crate) fn load() -> Result<Self> {
        let mut command = process::cargo(Path::new("."));
        let json = process::output(command.args(["metadata", "--format-version", "1", "--no-deps"]))?;
        let mut workspace = Self::parse(&json).context("unexpected output of `cargo metadata`")?;
        // `.cargo/config.toml` sets them; they are absent only when the xtask binary runs without cargo.
        if let Some(folder) = env::var_os("ROLLCALL_COMPONENTS") {
            workspace.components = folder.into();
        }
        if let Some(folder) = env::var_os("ROLLCALL_CONSOLE") {
            workspace.console = folder.into();
        }
        Ok(workspace)
    }

    fn parse(json: &str) -> Result<Self> {
        let metadata: Value = serde_json::from_str(json)?;
        let root = PathBuf::from(text(&metadata, "workspace_root")?);
        let target = PathBuf::from(text(&metadata, "target_directory")?);
        let packages = metadata.get("packages").and_then(Value::as_array).context("no `packages`")?;
        let packages = packages.iter().map(|package| Package::parse(package, &root)).collect::<Result<_>>()?;
        let (components, console) = (root.join("target/components"), root.join("target/console"));
        Ok(Self { components, console, root, target, packages, is_linted: false })
    }

    /// The same workspace, with clippy as the compiler and lints as errors, except for the functions.
    pub(crate) fn linted(&self) -> Self {
        Self { is_linted: true, ..self.clone() }
    }

    /// The cargo that builds native packages and runs their tests.
    pub(crate) fn cargo(&self) -> Command {
        self.with_lints(process::cargo(&self.root))
    }

    /// The cargo that builds for this wasm target. Functions are never linted while they are built, so that their bytes are the
    /// same.
    pub(crate) fn cargo_for(&self, target: &str) -> Command {
        let cargo = process::cargo_for_wasm(&self.root);
        if target == WASM_TARGET { cargo } else { self.with_lints(cargo) }
    }

    fn with_lints(&self, mut cargo: Command) -> Command {
        if self.is_linted {
            process::lint(&mut cargo);
        }
        cargo
    }

    /// The functions.
    pub(crate) fn functions(&self) -> Vec<&Package> {
        self.select(|package| package.folder.parent() == Some(Path::new(FUNCTIONS)))
    }

    /// The triggers and adapters.
    pub(crate) fn triggers_and_adapters(&self) -> Vec<&Package> {
        self.select(|package| package.is_trigger_or_adapter())
    }

    /// The component that the functions are measured against.
    pub(crate) fn baselines(&self) -> Vec<&Package> {
        self.select(|package| package.folder == Path::new(BASELINE))
    }

    /// The hostile components.
    pub(crate) fn guests(&self) -> Vec<&Package> {
        self.select(|package| package.folder.parent() == Some(Path::new(GUESTS)))
    }

    /// The examples that become components.
    pub(crate) fn examples(&self) -> Vec<&Package> {
        self.select(Package::is_example)
    }

    /// The packages that run natively, without xtask. Cargo turns on a dependency's features for all packages that are
    /// selected together. So builds and tests select exactly these: any other selection has other features, and cargo would
    /// compile wasmtime a second time.
    pub(crate) fn natives(&self) -> Vec<&Package> {
        self.select(|package| {
            // A trigger that becomes several components has its unit tests run natively.
            let is_native = !package.is_wasm() || !package.variants.is_empty();
            is_native && !package.is_other_host() && package.name != XTASK
        })
    }

    /// xtask, by itself: it is built before everything else, and without the dependencies of the rest.
    pub(crate) fn xtask(&self) -> Vec<&Package> {
        self.select(|package| package.name == XTASK)
    }

    /// The other hosts, for the tests.
    pub(crate) fn other_hosts(&self) -> Vec<&Package> {
        self.select(Package::is_other_host)
    }

    /// The package of this name.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        let found = self.packages.iter().find(|package| package.name == name);
        found.with_context(|| format!("the workspace has no package `{name}`"))
    }

    /// The packages of `crates/` and the host, each with the packages of the workspace that it depends on, without development
    /// dependencies. Names are without the prefix `rollcall-`.
    pub(crate) fn dependencies(&self) -> BTreeMap<String, BTreeSet<String>> {
        let short = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        let is_ours = |name: &&String| self.packages.iter().any(|package| package.name == **name);
        let packages = self.select(|package| package.folder.starts_with(CRATES) || package.name == HOST);
        let row = |package: &&Package| {
            let names = package.dependencies.iter().filter(is_ours).map(|name| short(name));
            (short(&package.name), names.collect())
        };
        packages.iter().map(row).collect()
    }

    fn select(&self, wanted: impl Fn(&Package) -> bool) -> Vec<&Package> {
        self.packages.iter().filter(|package| wanted(package)).collect()
    }
}

impl Package {
    fn parse(json: &Value, root: &Path) -> Result<Self> {
        let name = text(json, "name")?.to_owned();
        let manifest = Path::new(text(json, "manifest_path")?);
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.with_context(|| format!("{name} is outside the workspace"))?.to_owned();
        let library = list(json, "targets").find(|target| list(target, "crate_types").any(|kind| kind == "cdylib"));
        let cdylib = library.map(|target| text(target, "name").map(str::to_owned)).transpose()?;
        let has_library = list(json, "targets").any(|target| list(target, "crate_types").any(|kind| kind == "lib"));
        let dependencies = list(json, "dependencies").filter(|it| it.get("kind").is_none_or(|kind| kind != "dev"));
        let dependencies = dependencies.map(|it| text(it, "name").map(str::to_owned)).collect::<Result<_>>()?;
        let spawns = list(json, "dependencies")
            .any(|it| list(it, "features").any(|it| SPAWNING.iter().any(|feature| it == feature)));
        let features = json.get("features").and_then(Value::as_object);
        let mut variants: Vec<String> = features.into_iter().flat_map(|features| features.keys().cloned()).collect();
        let follows_wasi = variants.iter().any(|feature| feature == RELEASE_CANDIDATE);
        variants.retain(|feature| folder.starts_with(TRIGGERS) && !NO_VARIANTS.contains(&feature.as_str()));
        Ok(Self { name, folder, cdylib, dependencies, has_library, variants, spawns, follows_wasi })
    }

    /// The name of its folder, `offline-sweep`; for triggers and adapters the path below `components/`, `triggers/http/query`.
    pub(crate) fn short_name(&self) -> &str {
        let path = self.folder.strip_prefix(FUNCTIONS).ok().filter(|_| self.is_trigger_or_adapter());
        let name = path.and_then(Path::to_str).or_else(|| self.folder.file_name()?.to_str());
        name.unwrap_or(&self.name)
    }

    fn is_wasm(&self) -> bool {
        let folders = [FUNCTIONS, GUESTS, BASELINE];
        folders.iter().any(|folder| self.folder.starts_with(folder)) && self.cdylib.is_some() || self.is_example()
    }

    fn is_other_host(&self) -> bool {
        OTHER_HOSTS.iter().any(|folder| self.folder == Path::new(folder))
    }

    fn is_trigger_or_adapter(&self) -> bool {
        self.folder.starts_with(FUNCTIONS)
            && self.folder.parent() != Some(Path::new(FUNCTIONS))
            && self.cdylib.is_some()
    }

    fn is_example(&self) -> bool {
        self.folder.parent() == Some(Path::new(EXAMPLES)) && self.cdylib.is_some()
    }
}

/// `-p` for each package, as cargo's commands take them.
pub(crate) fn selection<'a>(packages: &[&'a Package]) -> Vec<&'a str> {
    packages.iter().flat_map(|package| ["-p", package.name.as_str()]).collect()
}

fn text<'a>(json: &'a Value, key: &str) -> Result<&'a str> {
    json.get(key).and_then(Value::as_str).with_context(|| format!("no `{key}`"))
}

fn list<'a>(json: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    json.get(key).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, folder: &str, crate_type: &str, dependencies: &[&str]) -> Value {
        json!({
            "name": name,
            "manifest_path": format!("/repo/{folder}/Cargo.toml"),
            "targets": [{ "name": name.replace('-', "_"), "crate_types": [crate_type] }],
            "dependencies": dependencies.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
        })
    }

    fn workspace() -> Result<Workspace> {
        let mut trigger = package("rollcall-trigger-http", "components/triggers/http", "cdylib", &["wasip3"]);
        let features = json!({ "query": [], "typing": [] });
        trigger.as_object_mut().and_then(|fields| fields.insert("features".to_owned(), features));
        let metadata = json!({
            "workspace_root": "/repo",
            "target_directory": "/elsewhere",
            "packages": [
                package("rollcall-host", "host", "lib", &["wasmtime"]),
                package("rollcall-redis", "crates/redis", "lib", &[]),
                package("rollcall-servers", "tests/servers", "lib", &["tempfile"]),
                package("rollcall-tests", "tests", "lib", &["wit-component", "rollcall-host"]),
                package("rollcall-wasmtime", "tests/wasmtime", "bin", &["wasmtime"]),
                package("xtask", "xtask", "bin", &["wit-component"]),
                package("rollcall-offline-sweep", "components/offline-sweep", "cdylib", &["wit-bindgen"]),
                trigger,
                package("guest-loop", "tests/guests/loop", "cdylib", &["wit-bindgen"]),
                package("example-policy", "examples/policy", "cdylib", &["wit-bindgen"]),
            ],
        });
        Workspace::parse(&metadata.to_string())
    }

    fn names<'a>(packages: &[&'a Package]) -> Vec<&'a str> {
        packages.iter().map(|package| package.name.as_str()).collect()
    }

    #[test]
    fn folder_decides_how_package_is_built() -> Result<()> {
        let workspace = workspace()?;
        assert_eq!(names(&workspace.functions()), ["rollcall-offline-sweep"]);
        assert_eq!(names(&workspace.triggers_and_adapters()), ["rollcall-trigger-http"]);
        assert_eq!(names(&workspace.other_hosts()), ["rollcall-wasmtime"]);
        assert_eq!(names(&workspace.guests()), ["guest-loop"]);
        assert_eq!(names(&workspace.examples()), ["example-policy"]);
        let natives =
            ["rollcall-host", "rollcall-redis", "rollcall-servers", "rollcall-tests", "rollcall-trigger-http"];
        assert_eq!(names(&workspace.natives()), natives);
        assert_eq!(names(&workspace.xtask()), ["xtask"]);
        Ok(())
    }

    #[test]
    fn function_is_named_after_its_folder() -> Result<()> {
        let workspace = workspace()?;
        let function = workspace.functions().first().map(|package| (package.short_name(), package.cdylib.as_deref()));
        assert_eq!(function, Some(("offline-sweep", Some("rollcall_offline_sweep"))));
        let trigger = workspace.triggers_and_adapters().first().map(|package| package.short_name());
        assert_eq!(trigger, Some("triggers/http"));
        let variants = workspace.triggers_and_adapters().first().map(|package| package.variants.clone());
        assert_eq!(variants, Some(vec!["query".to_owned(), "typing".to_owned()]));
        Ok(())
    }

    #[test]
    fn spawning_package_is_known_by_its_features() -> Result<()> {
        let root = Path::new("/repo");
        let mut subscribe = package("rollcall-subscribe", "components/subscribe", "cdylib", &[]);
        assert!(!Package::parse(&subscribe, root)?.spawns);
        let spawning = json!([{ "name": "wit-bindgen", "features": ["async-spawn"] }]);
        subscribe.as_object_mut().and_then(|fields| fields.insert("dependencies".to_owned(), spawning));
        assert!(Package::parse(&subscribe, root)?.spawns);
        Ok(())
    }

    #[test]
    fn components_do_not_follow_target_folder() -> Result<()> {
        assert_eq!(workspace()?.components, Path::new("/repo/target/components"));
        assert_eq!(workspace()?.target, Path::new("/elsewhere"));
        Ok(())
    }
}
