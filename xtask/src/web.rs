//! What is written in TypeScript: the client, `clients/js`, and the console, `web`, which the binary serves.
//!
//! Node is wanted as old as 18, which Debian has; where there is none, it is installed. npm brings what both are built with,
//! from the lock file and nothing else. A build is done again only if a file that it is made of is newer than the last one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::build::{self, Profile, write_if_changed};
use crate::process::{self, announce};
use crate::servers;
use crate::workspace::Workspace;

/// The packages, each after what it is made of.
const PACKAGES: [&str; 2] = ["clients/js", "web"];

/// The oldest Node that does.
const NODE: u32 = 18;

/// Folders of a package that are no source of it.
const NOT_SOURCES: [&str; 3] = ["node_modules", "dist", "tests"];

/// What the console consists of: where each file is, and where the binary looks for it.
const SERVED: [(&str, &str); 3] =
    [("web/dist", ""), ("clients/js/dist/index.js", "client.js"), ("examples/page.html", "example.html")];

/// Builds the client and the console, and puts what the binary serves where it is embedded from.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let stamp = workspace.console.with_extension("stamp");
    let inputs = ["package-lock.json", "examples/page.html"].into_iter().chain(PACKAGES);
    let newest = newest(&inputs.map(|input| workspace.root.join(input)).collect::<Vec<_>>())?;
    if workspace.console.is_dir() && build::modified(&stamp).is_ok_and(|built| built > newest) {
        return Ok(());
    }
    install(workspace)?;
    // Before the build: a file that is changed meanwhile is newer than this.
    let began = SystemTime::now();
    for package in PACKAGES {
        announce(&format!("web: {package}"));
        process::run(&mut npm(workspace, package, &["run", "build", "--silent"]))?;
    }
    let mut files = Vec::new();
    for (from, to) in SERVED {
        gather(&workspace.root.join(from), Path::new(to), &mut files)?;
    }
    discard(&workspace.console, Path::new(""), &files)?;
    for (to, bytes) in &files {
        write_if_changed(&workspace.console.join(to), bytes)?;
    }
    fs::write(&stamp, "").and_then(|()| fs::File::open(&stamp)?.set_modified(began))?;
    Ok(())
}

/// Whether the types agree.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    PACKAGES.iter().try_for_each(|package| process::run(&mut npm(workspace, package, &["run", "check", "--silent"])))
}

/// What the tests of a package came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) files: u32,
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// The tests that failed, by name.
    pub(crate) names: Vec<String>,
    /// Those that were not run, which there should be none of.
    pub(crate) skipped: Vec<String>,
}

/// Runs the tests of both packages against the host that was built; only those whose name contains `part`, if it is given.
pub(crate) fn tests(workspace: &Workspace, part: Option<&str>) -> Vec<Result<Came>> {
    PACKAGES.iter().map(|package| tests_of(workspace, package, part)).collect()
}

fn tests_of(workspace: &Workspace, package: &str, part: Option<&str>) -> Result<Came> {
    let report = workspace.target.join("vitest").join(package.replace('/', "-")).with_extension("json");
    // An old report is not to be taken for a new one.
    let _ = fs::remove_file(&report);
    let out = format!("--outputFile.json={}", report.display());
    let mut command = npm(
        workspace,
        package,
        &["test", "--silent", "--ignore-scripts", "--", "--reporter=default", "--reporter=json", &out],
    );
    command.args(part.iter().flat_map(|part| ["--testNamePattern", part]));
    command.env("ROLLCALL_BIN", build::binary(workspace, Profile::Dev, "rollcall"));
    announce(&format!("{} in {package}", process::line(&command)));
    let status = command.status().context("could not start npm")?;
    let text = fs::read_to_string(&report).with_context(|| format!("the tests of {package} wrote no report"))?;
    let came = Came::read(&serde_json::from_str(&text)?, part.is_some())?;
    ensure!(status.success() || came.failed > 0, "the tests of {package} did not run to their end: {status}");
    Ok(came)
}

impl Came {
    /// Reads a report as Vitest writes it. Tests that a name kept out count for nothing.
    fn read(report: &Value, chosen: bool) -> Result<Self> {
        let mut came = Self::default();
        let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        for file in list(report, "testResults") {
            came.files += 1;
            let tests = list(&file, "assertionResults");
            let word = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            if tests.is_empty() && word(&file, "status") == "failed" {
                came.failed += 1;
                came.names.push(word(&file, "name"));
            }
            for test in &tests {
                match word(test, "status").as_str() {
                    "passed" => came.passed += 1,
                    "failed" => {
                        came.failed += 1;
                        came.names.push(word(test, "fullName"));
                    }
                    _ if chosen => {}
                    _ => came.skipped.push(word(test, "fullName")),
                }
            }
        }
        ensure!(came.files > 0 || chosen, "a report of no tests at all");
        Ok(came)
    }
}

/// Node and npm, and the packages of the lock file.
fn install(workspace: &Workspace) -> Result<()> {
    ensure_node()?;
    let lock = workspace.root.join("package-lock.json");
    let installed = workspace.root.join("node_modules/.package-lock.json");
    if build::modified(&installed).is_ok_and(|installed| build::modified(&lock).is_ok_and(|lock| installed >= lock)) {
        return Ok(());
    }
    announce("web: npm ci");
    process::run(&mut npm(workspace, "", &["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    // npm dates what it installed by its own lights.
    fs::File::open(&installed).and_then(|file| file.set_modified(SystemTime::now()))?;
    Ok(())
}

fn ensure_node() -> Result<()> {
    let found = || process::output(Command::new("node").arg("--version")).ok();
    let is_there = |program: &str| servers::folders().iter().any(|folder| folder.join(program).is_file());
    let missing: Vec<_> =
        [("node", "nodejs"), ("npm", "npm")].into_iter().filter(|(program, _)| !is_there(program)).collect();
    if !missing.is_empty() {
        let packages = missing.iter().map(|(_, package)| *package).collect::<Vec<_>>();
        announce(&format!("installing what the console is built with: {}", packages.join(", ")));
        let advice = "the console is built with Node 18 or newer and npm, which are missing and could not be installed";
        servers::install(&packages).context(advice)?;
    }
    let version = found().context("`node --version` does not answer")?;
    match major(&version) {
        Some(major) if major >= NODE => Ok(()),
        _ => bail!("the console is built with Node {NODE} or newer; this is {}", version.trim()),
    }
}

/// The first number of what Node says of itself: `v18.20.4`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn npm(workspace: &Workspace, package: &str, args: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(workspace.root.join(package)).args(args);
    // Cargo set them for the build; to a host that a test starts, every ROLLCALL_ variable is a setting.
    for name in ["ROLLCALL_COMPONENTS", "ROLLCALL_CONSOLE"] {
        command.env_remove(name);
    }
    // Nobody is there to be told of a newer npm.
    command.env("NPM_CONFIG_UPDATE_NOTIFIER", "false");
    if env::var_os("CI").is_none() {
        command.env("CI", "true");
    }
    command
}

/// The time of the newest file in these.
fn newest(paths: &[PathBuf]) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for path in paths {
        let time = if path.is_dir() { self::newest(&sources(path)?)? } else { build::modified(path)? };
        newest = newest.max(time);
    }
    Ok(newest)
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_source =
        |path: &PathBuf| path.file_name().is_none_or(|name| !NOT_SOURCES.iter().any(|other| name == *other));
    Ok(entries.into_iter().filter(is_source).collect())
}

/// Every file below `from`, or that file, with where it goes.
fn gather(from: &Path, to: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    if !from.is_dir() {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        files.push((to.to_owned(), bytes));
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        gather(&entry.path(), &to.join(entry.file_name()), files)?;
    }
    Ok(())
}

/// Removes what is no part of the console any more: names of files change with what they hold.
fn discard(folder: &Path, below: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder.join(below)) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            discard(folder, &name, files)?;
        } else if !files.iter().any(|(file, _)| *file == name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_says_which_it_is() {
        assert_eq!(major("v18.20.4\n"), Some(18));
        assert_eq!(major("node"), None);
    }

    fn report() -> Value {
        let test = |name: &str, status: &str| json!({ "fullName": name, "status": status });
        json!({ "testResults": [
            { "name": "watch.test.ts", "status": "failed", "assertionResults": [
                test("a dot turns green", "passed"), test("a dot turns grey", "failed"), test("a dot blinks", "skipped"),
            ]},
            { "name": "broken.test.ts", "status": "failed", "assertionResults": [] },
        ]})
    }

    #[test]
    fn report_is_added_up_and_a_file_that_did_not_load_has_failed() -> Result<()> {
        let came = Came::read(&report(), false)?;
        assert_eq!((came.files, came.passed, came.failed), (2, 1, 2));
        assert_eq!(came.names, ["a dot turns grey", "broken.test.ts"]);
        assert_eq!(came.skipped, ["a dot blinks"]);
        Ok(())
    }

    #[test]
    fn tests_that_were_not_chosen_are_not_missed() -> Result<()> {
        assert_eq!(Came::read(&report(), true)?.skipped, Vec::<String>::new());
        assert!(Came::read(&json!({ "testResults": [] }), false).is_err());
        Ok(())
    }

    #[test]
    fn what_was_renamed_does_not_stay() -> Result<()> {
        let folder = env::temp_dir().join(format!("rollcall-xtask-{}-web", std::process::id()));
        let assets = folder.join("assets");
        fs::create_dir_all(&assets)?;
        fs::write(assets.join("old.js"), "")?;
        fs::write(assets.join("new.js"), "")?;
        let mut files = Vec::new();
        gather(&assets.join("new.js"), Path::new("assets/new.js"), &mut files)?;
        discard(&folder, Path::new(""), &files)?;
        assert!(assets.join("new.js").exists());
        assert!(!assets.join("old.js").exists());
        fs::remove_dir_all(&folder)?;
        Ok(())
    }
}
