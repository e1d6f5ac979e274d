//! The servers that tests run against, and clients that are not ours: real ones, so they have to be on the machine.
//!
//! Looks whether each is there, which costs a few looks at folders, and installs the Debian packages of those that are
//! not. Only `test` and `ci` need them: neither building nor serving does.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{announce, output, run as run_command};

/// A program, or a library by its first file, and the Debian package that has it.
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

/// The system's Python, whatever else is on the `PATH`: it knows where its libraries are.
const PYTHON: [&str; 3] = ["/usr/bin/python3", "-c", "import sys; print('\\n'.join(sys.path))"];

/// Where Debian keeps the programs of each version of PostgreSQL, off the `PATH`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// The packages start their services, unless `policy-rc.d` says no: on a machine that had none, none is to run because
/// of a test. Lists are fetched only if what is known of them does not do.
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

/// Brings the machine to where the tests find their servers.
pub(crate) fn run() -> Result<()> {
    let missing = missing(&folders());
    if missing.is_empty() {
        return Ok(());
    }
    announce(&format!("installing what the tests need: {}", listed(&missing)));
    install(&packages(&missing)).with_context(|| advice(&missing))?;
    let still = self::missing(&folders());
    if !still.is_empty() {
        bail!(advice(&still));
    }
    Ok(())
}

/// Where to look.
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir(POSTGRES_VERSIONS).into_iter().flatten().filter_map(Result::ok);
    let versions = versions.map(|version| version.path().join("bin"));
    let [python, args @ ..] = PYTHON;
    // Where there is no Python there is no library of it.
    let libraries = output(Command::new(python).args(args)).unwrap_or_default();
    env::split_paths(&path).chain(versions).chain(libraries.lines().map(PathBuf::from)).collect()
}

/// The programs that are in none of the folders, each with its package.
fn missing(folders: &[PathBuf]) -> Vec<(&'static str, &'static str)> {
    let is_there = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    PROGRAMS.into_iter().filter(|(program, _)| !is_there(program)).collect()
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

/// What people can do where we could not.
fn advice(missing: &[(&'static str, &'static str)]) -> String {
    format!(
        "the tests need programs that are missing: {}.\n  \
         Debian, Ubuntu: sudo apt-get install {}\n  \
         macOS:          brew install redis postgresql chromium; /usr/bin/python3 -m pip install --user websockets\n",
        listed(missing),
        packages(missing).join(" ")
    )
}

/// Installs these Debian packages, or says why not.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let user = output(Command::new("id").arg("-u"))?;
    if !folders().iter().any(|folder| folder.join("apt-get").is_file()) {
        bail!("there is no apt-get here");
    }
    run_command(&mut installer(user.trim() == "0", packages))
}

/// The command that installs: at once if we are root; otherwise by a `sudo` that must not ask, because nobody may be
/// there to answer.
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

    /// A folder with these programs in it.
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
    fn a_package_is_installed_once() {
        assert_eq!(
            packages(&missing(&[])),
            ["redis-server", "redis-tools", "postgresql", "python3-websockets", "chromium", "curl"]
        );
    }

    #[test]
    fn advice_names_program_package_and_command() {
        let advice = advice(&[("redis-cli", "redis-tools"), ("initdb", "postgresql")]);
        assert!(
            advice.contains("redis-cli (Debian package redis-tools), initdb (Debian package postgresql)"),
            "{advice}"
        );
        assert!(advice.contains("sudo apt-get install redis-tools postgresql\n"), "{advice}");
    }

    #[test]
    fn who_is_not_root_asks_sudo_which_asks_nobody() {
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
