//! What the tests saw run in which host: `cargo xtask reference` writes the README's table "Where it runs" from it.

use std::fs;

use crate::root;

/// What of Rollcall runs in a host. The texts are those of the table.
#[derive(Debug, Clone, Copy)]
pub enum Runs {
    /// All that there is.
    Everything,
    /// The HTTP API, and Redis notifications.
    HttpAndNotifications,
    /// The HTTP API; a schedule settles users.
    HttpAndSchedule,
    /// The functions, called by a program.
    Functions,
}

impl Runs {
    fn text(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::HttpAndNotifications => "everything but the WebSocket, metrics and the console",
            Self::HttpAndSchedule => "the same, with a schedule instead of Redis notifications",
            Self::Functions => "the functions, embedded in a program",
        }
    }
}

/// Records that a host passed its test.
pub fn passed(host: &str, version: &str, runs: Runs) {
    let folder = root().join("target/compatibility");
    fs::create_dir_all(&folder).expect("a folder for the record");
    let name = format!("{host} {version}").replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let record = format!("{host}\t{version}\t{}\n", runs.text());
    fs::write(folder.join(name), record).expect("the record is written");
}

/// The version of a package in `Cargo.lock`.
pub fn locked_version(package: &str) -> String {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let (_, rest) = lock.split_once(&format!("name = \"{package}\"\nversion = \"")).expect("a locked package");
    rest.split('"').next().expect("a version").to_owned()
}
