//! A real `redis-server`, and a real Cluster of them.

mod cluster;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Process, free_port, wait_until};

pub use cluster::Cluster;

/// A server starts in a tenth of a second; a busy machine gets a hundred times that.
const START: Duration = Duration::from_secs(10);

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The password of the default user.
    pub password: Option<String>,
    /// Whether data survives a kill.
    pub durable: bool,
    /// More arguments, as on the command line: `--maxmemory 10mb`.
    pub args: Vec<String>,
}

/// A server on its own loopback port.
#[derive(Debug)]
pub struct Redis {
    options: Options,
    port: u16,
    /// Declared before the folder, so that the process ends before the folder is deleted.
    process: Option<Process>,
    folder: TempDir,
}

impl Redis {
    /// Starts a server that keeps nothing on disk.
    pub fn start() -> Result<Self> {
        Self::with(Options::default())
    }

    /// Starts a server.
    pub fn with(options: Options) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("rollcall-redis-").tempdir()?;
        let mut server = Self { options, port: free_port()?, process: None, folder };
        server.launch()?;
        server.wait_for_answer()?;
        Ok(server)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of the server's process; none while it is killed.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// The URL for `--store`, with the password if there is one.
    pub fn url(&self) -> String {
        let credentials = self.options.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{credentials}127.0.0.1:{}", self.port)
    }

    /// The server's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the server at once, like a crash.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Restarts the server on the same port. A durable one has its data.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.launch()?;
        self.wait_for_answer()
    }

    /// Pauses the server: connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.process.as_ref().context("the server is not running")?.signal("STOP")
    }

    /// Resumes a paused server.
    pub fn resume(&self) -> Result<()> {
        self.process.as_ref().context("the server is not running")?.signal("CONT")
    }

    /// Sends a command through `redis-cli`. Returns its raw output, trimmed.
    pub fn ask(&self, args: &[&str]) -> Result<String> {
        cli(self.port, self.options.password.as_deref(), args)
    }

    fn launch(&mut self) -> Result<()> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.arg("--dir").arg(self.folder.path());
        // Tests use DEBUG commands to make a server hang.
        command.args(["--save", "", "--enable-debug-command", "yes"]);
        if self.options.durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        if let Some(password) = &self.options.password {
            command.args(["--requirepass", password]);
        }
        command.args(&self.options.args);
        self.process = Some(Process::start(&mut command, &self.log())?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    fn wait_for_answer(&mut self) -> Result<()> {
        let (port, password) = (self.port, self.options.password.clone());
        let process = self.process.as_mut().context("the server is not running")?;
        wait_until("a Redis to answer", START, || {
            process.must_run()?;
            Ok(cli(port, password.as_deref(), &["PING"]).is_ok_and(|answer| answer == "PONG"))
        })
    }
}

/// Sends a command to a server. An error reply is returned as text, like any other reply.
fn cli(port: u16, password: Option<&str>, args: &[&str]) -> Result<String> {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--no-auth-warning", "--raw"]);
    if let Some(password) = password {
        command.args(["-a", password]);
    }
    let output = command.args(args).stdin(Stdio::null()).output().context("cannot run redis-cli")?;
    if !output.status.success() {
        bail!("redis-cli {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
