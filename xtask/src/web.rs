//! The packages in TypeScript: the client, `clients/js`, and the console, `web`, which the binary serves.
//!
//! They need Node 18, which Debian has; a missing Node is installed. npm installs exactly the lock file. A package is built
//! again only if one of its sources is newer than the last build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::build::{self, Profile, write_if_changed};
use crate::process::{self, announce};
use crate::servers;
use crate::test::summary::Summary;
use crate::workspace::Workspace;

/// The packages, each after the one it depends on.
const PACKAGES: [&str; 2] = ["clients/js", "web"];

/// The oldest Node that works.
const NODE: u32 = 18;

/// Folders of a package that are not its sources.
const NOT_SOURCES: [&str; 3] = ["node_modules", "dist", "tests"];

/// The files of the console: where each is built, and its path in the binary.
const SERVED: [(&str, &str); 3] =
    [("web/dist", ""), ("clients/js/dist/index.js", "client.js"), ("examples/page.html", "example.html")];

/// Builds the client and the console, and copies them to the folder that the binary embeds.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let stamp = workspace.console.with_extension("stamp");
    let inputs = ["package-lock.json", "examples/page.html"].into_iter().chain(PACKAGES);
    let newest = newest(&inputs.map(|input| workspace.root.join(input)).collect::<Vec<_>>())?;
    if workspace.console.is_dir() && build::modified(&stamp).is_ok_and(|built| built > newest) {
        return Ok(());
    }
    install(workspace)?;
    // Taken before the build: a source that changes during the build is then newer than the stamp.
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

/// Checks the types.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    PACKAGES.iter().try_for_each(|package| process::run(&mut npm(workspace, package, &["run", "check", "--silent"])))
}

/// Runs the tests of both packages against the built host; only those whose name contains one of `names`, if there are any.
pub(crate) fn tests(workspace: &Workspace, names: &[String]) -> Vec<Result<Summary>> {
    PACKAGES.iter().map(|package| package_tests(workspace, package, names)).collect()
}

fn package_tests(workspace: &Workspace, package: &str, names: &[String]) -> Result<Summary> {
    let report = workspace.target.join("vitest").join(package.replace('/', "-")).with_extension("json");
    // The report of an earlier run must not be read as that of this one.
    let _ = fs::remove_file(&report);
    let out = format!("--outputFile.json={}", report.display());
    let mut command = npm(
        workspace,
        package,
        &["test", "--silent", "--ignore-scripts", "--", "--reporter=default", "--reporter=json", &out],
    );
    if !names.is_empty() {
        command.args(["--testNamePattern", &names.join("|")]);
    }
    command.env("ROLLCALL_BIN", build::binary(workspace, Profile::Dev, "rollcall"));
    announce(&format!("{} in {package}", process::line(&command)));
    let status = command.status().context("could not start npm")?;
    let text = fs::read_to_string(&report).with_context(|| format!("the tests of {package} wrote no report"))?;
    let summary = read_report(package, &serde_json::from_str(&text)?, !names.is_empty())?;
    ensure!(status.success() || summary.failed > 0, "the tests of {package} did not run to their end: {status}");
    Ok(summary)
}

/// Reads a report of Vitest. If tests were selected by name, the others are not counted.
fn read_report(package: &str, report: &Value, is_selection: bool) -> Result<Summary> {
    let mut summary = Summary::default();
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for file in list(report, "testResults") {
        summary.suites += 1;
        let tests = list(&file, "assertionResults");
        if tests.is_empty() && text(&file, "status") == "failed" {
            summary.failed += 1;
            summary.failures.push(text(&file, "name"));
        }
        for test in &tests {
            let name = text(test, "fullName");
            let time = test.get("duration").and_then(Value::as_f64).map(|ms| ms / 1000.0);
            let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            summary.times.extend(time.map(|time| (time, format!("{package}: {name}"))));
            match text(test, "status").as_str() {
                "passed" => summary.passed += 1,
                "failed" => {
                    summary.failed += 1;
                    summary.failures.push(name);
                }
                _ if is_selection => {}
                _ => {
                    summary.ignored += 1;
                    summary.not_run.push(name);
                }
            }
        }
    }
    ensure!(summary.suites > 0 || is_selection, "the report of {package} contains no tests");
    Ok(summary)
}

/// Installs Node and npm if they are missing, and the packages of the lock file.
fn install(workspace: &Workspace) -> Result<()> {
    ensure_node()?;
    let lock = workspace.root.join("package-lock.json");
    let installed = workspace.root.join("node_modules/.package-lock.json");
    if build::modified(&installed).is_ok_and(|installed| build::modified(&lock).is_ok_and(|lock| installed >= lock)) {
        return Ok(());
    }
    announce("web: npm ci");
    process::run(&mut npm(workspace, "", &["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    // npm may set an older time.
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
        announce(&format!("installing Node for the console: {}", packages.join(", ")));
        let advice = "the console is built with Node 18 or newer and npm; they are missing and could not be installed";
        servers::install(&packages).context(advice)?;
    }
    let version = found().context("`node --version` does not answer")?;
    match major(&version) {
        Some(major) if major >= NODE => Ok(()),
        _ => bail!("the console is built with Node {NODE} or newer; this is {}", version.trim()),
    }
}

/// The major version in the output of `node --version`: 18 of `v18.20.4`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn npm(workspace: &Workspace, package: &str, args: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(workspace.root.join(package)).args(args);
    // Cargo sets them for the build. A host that a test starts reads every ROLLCALL_ variable as a setting.
    for name in ["ROLLCALL_COMPONENTS", "ROLLCALL_CONSOLE"] {
        command.env_remove(name);
    }
    // No notice about a newer npm.
    command.env("NPM_CONFIG_UPDATE_NOTIFIER", "false");
    if env::var_os("CI").is_none() {
        command.env("CI", "true");
    }
    command
}

/// The time of the newest file in these paths.
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

/// Reads every file below `from`, or that file, each with its path below `to`.
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

/// Removes files of older builds: Vite names files after a hash of their content.
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
    fn major_version_of_node_is_read() {
        assert_eq!(major("v18.20.4\n"), Some(18));
        assert_eq!(major("node"), None);
    }

    fn report() -> Value {
        let test = |name: &str, status: &str| json!({ "fullName": name, "status": status, "duration": 1500.0 });
        json!({ "testResults": [
            { "name": "watch.test.ts", "status": "failed", "assertionResults": [
                test("a dot turns green", "passed"), test("a dot turns grey", "failed"), test("a dot blinks", "skipped"),
            ]},
            { "name": "broken.test.ts", "status": "failed", "assertionResults": [] },
        ]})
    }

    #[test]
    fn file_that_did_not_load_counts_as_failed() -> Result<()> {
        let summary = read_report("web", &report(), false)?;
        assert_eq!((summary.suites, summary.passed, summary.failed, summary.ignored), (2, 1, 2, 1));
        assert_eq!(summary.failures, ["a dot turns grey", "broken.test.ts"]);
        assert_eq!(summary.not_run, ["a dot blinks"]);
        assert_eq!(summary.times.first(), Some(&(Duration::from_millis(1_500), "web: a dot turns green".to_owned())));
        Ok(())
    }

    #[test]
    fn unselected_tests_are_not_counted() -> Result<()> {
        assert_eq!(read_report("web", &report(), true)?.not_run, Vec::<String>::new());
        assert!(read_report("web", &json!({ "testResults": [] }), false).is_err());
        Ok(())
    }

    #[test]
    fn files_of_older_builds_are_removed() -> Result<()> {
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
