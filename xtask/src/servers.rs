//! The servers and foreign clients that the tests run against.
//!
//! Looks for each in a few folders and installs the Debian packages of those that are missing. Only `test` and `ci` need them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{announce, output, run as run_command};

/// A program, or a file of a library, and its Debian package.
const PROGRAMS: [(&str, &str); 9] = [
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-benchmark", "redis-tools"),
    ("initdb", "postgresql"),
    ("postgres", "postgresql"),
    ("psql", "postgresql"),
    ("websockets/__init__.py", "python3-websockets"),
    ("chromium", "chromium"),
    ("curl", "curl"),
];

/// Prints the library folders of the system's Python, which may not be the one on the `PATH`.
const PYTHON: [&str; 3] = ["/usr/bin/python3", "-c", "import sys; print('\\n'.join(sys.path))"];

/// Where Debian keeps the programs of each version of PostgreSQL; they are not on the `PATH`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Debian packages start their services unless `policy-rc.d` forbids it; the tests start their own servers. Package lists are
/// fetched only if the installation fails without.
const INSTALL: &str = r#"
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' INT TERM
        printf '#!/bin/sh\nexit 101\n' > "$policy" && chmod 755 "$policy" || exit 1
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get install --yes --no-install-recommends "$@" && exit
    apt-get update && apt-get install --yes --no-install-recommends "$@"
"#;

/// Installs what is missing.
pub(crate) fn run() -> Result<()> {
    let missing = missing(&folders());
    if missing.is_empty() {
        return Ok(());
    }
    announce(&format!("installing programs for the tests: {}", listed(&missing)));
    install(&packages(&missing)).with_context(|| advice(&missing))?;
    let still = self::missing(&folders());
    if !still.is_empty() {
        bail!(advice(&still));
    }
    Ok(())
}

/// The folders to look in.
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir(POSTGRES_VERSIONS).into_iter().flatten().filter_map(Result::ok);
    let versions = versions.map(|version| version.path().join("bin"));
    let [python, args @ ..] = PYTHON;
    let libraries = output(Command::new(python).args(args)).unwrap_or_default();
    env::split_paths(&path).chain(versions).chain(libraries.lines().map(PathBuf::from)).collect()
}

/// The programs that none of the folders contains, each with its package.
fn missing(folders: &[PathBuf]) -> Vec<(&'static str, &'static str)> {
    let is_installed = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    PROGRAMS.into_iter().filter(|(program, _)| !is_installed(program)).collect()
}

/// The packages of these programs, each once.
fn packages(missing: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn listed(missing: &[(&str, &str)]) -> String {
    let listed = missing.iter().map(|(program, package)| format!("{program} (Debian package {package})"));
    listed.collect::<Vec<_>>().join(", ")
}

/// How to install these by hand.
fn advice(missing: &[(&'static str, &'static str)]) -> String {
    format!(
        "the tests need programs that are missing: {}.\n  \
         Debian, Ubuntu: sudo apt-get install {}\n  \
         macOS:          brew install redis postgresql chromium; /usr/bin/python3 -m pip install --user websockets\n",
        listed(missing),
        packages(missing).join(" ")
    )
}

/// Installs these Debian packages.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let user = output(Command::new("id").arg("-u"))?;
    if !folders().iter().any(|folder| folder.join("apt-get").is_file()) {
        bail!("apt-get is not on this machine");
    }
    run_command(&mut installer(user.trim() == "0", packages))
}

/// The command that installs packages: directly as root, otherwise with a `sudo` that must not ask for a password, because
/// there may be no terminal.
fn installer(root: bool, packages: &[&str]) -> Command {
    let words = ["sudo", "-n", "sh", "-c", INSTALL, "install-packages"];
    let words = if root { words.get(2..) } else { words.get(..) }.unwrap_or_default();
    let mut command = Command::new(words.first().map_or(OsStr::new("sh"), OsStr::new));
    command.args(words.iter().skip(1)).args(packages).current_dir(Path::new("/"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that contains these programs.
    fn folder(name: &str, programs: &[&str]) -> Result<PathBuf> {
        let folder = env::temp_dir().join(format!("rollcall-xtask-{}-servers-{name}", std::process::id()));
        for program in programs {
            let file = folder.join(program);
            fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            fs::write(file, "")?;
        }
        Ok(folder)
    }

    #[test]
    fn programs_may_be_spread_over_folders() -> Result<()> {
        let one = folder("one", &["redis-server", "redis-cli", "redis-benchmark"])?;
        let other = folder("other", &["initdb", "postgres", "psql", "websockets/__init__.py", "chromium", "curl"])?;
        assert!(missing(&[one.clone(), other.clone()]).is_empty());
        let lacking = ["postgresql", "python3-websockets", "chromium", "curl"];
        assert_eq!(packages(&missing(std::slice::from_ref(&one))), lacking);
        fs::remove_file(one.join("redis-cli"))?;
        assert_eq!(missing(&[one.clone(), other.clone()]), [("redis-cli", "redis-tools")]);
        fs::remove_dir_all(one)?;
        Ok(fs::remove_dir_all(other)?)
    }

    #[test]
    fn package_is_installed_once() {
        assert_eq!(
            packages(&missing(&[])),
            ["redis-server", "redis-tools", "postgresql", "python3-websockets", "chromium", "curl"]
        );
    }

    #[test]
    fn advice_names_program_package_command() {
        let advice = advice(&[("redis-cli", "redis-tools"), ("initdb", "postgresql")]);
        assert!(
            advice.contains("redis-cli (Debian package redis-tools), initdb (Debian package postgresql)"),
            "{advice}"
        );
        assert!(advice.contains("sudo apt-get install redis-tools postgresql\n"), "{advice}");
    }

    #[test]
    fn sudo_is_used_without_a_password() {
        let words = |root| {
            let command = installer(root, &["postgresql"]);
            let args = command.get_args().map(|word| word.to_string_lossy().into_owned());
            let words: Vec<_> =
                [command.get_program().to_string_lossy().into_owned()].into_iter().chain(args).collect();
            words.into_iter().filter(|word| word != INSTALL).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(false), "sudo -n sh -c install-packages postgresql");
        assert_eq!(words(true), "sh -c install-packages postgresql");
    }
}
