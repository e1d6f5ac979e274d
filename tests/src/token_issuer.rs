//! A signing key, and tokens signed with it.

use std::process::Command;

use tempfile::TempDir;

use crate::binary;

const SECRET: &str = "a secret that is surely long enough to sign with";

/// Issues tokens with `rollcall token`, like an application's backend.
pub struct TokenIssuer {
    folder: TempDir,
}

impl Default for TokenIssuer {
    fn default() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key"), SECRET).expect("a file");
        Self { folder }
    }
}

impl TokenIssuer {
    /// The path of the key file.
    pub fn key(&self) -> String {
        self.folder.path().join("key").display().to_string()
    }

    /// The secret.
    pub fn secret(&self) -> String {
        SECRET.to_owned()
    }

    /// A token for this user with these scopes.
    pub fn token(&self, user: &str, scopes: &[&str]) -> String {
        let mut command = Command::new(binary());
        command.args(["token", "--key", &self.key(), "--user", user]);
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        let output = command.output().expect("the binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }
}
