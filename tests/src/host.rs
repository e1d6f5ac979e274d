//! A running host: the real binary on a free loopback port.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::Client;

/// A host process. Killed when dropped.
pub struct Host {
    child: Child,
    base: String,
    data: PathBuf,
    said: Arc<Mutex<String>>,
    _owned: Option<tempfile::TempDir>,
}

/// The built binary.
pub fn binary() -> PathBuf {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let path = target.join(profile).join("rollcall");
    assert!(path.exists(), "{} is not built: run `cargo xtask test`", path.display());
    path
}

impl Host {
    /// Starts a host with these arguments and its own data directory.
    pub fn start(arguments: &[&str]) -> Self {
        let owned = tempfile::tempdir().expect("a temporary directory");
        let data = owned.path().to_owned();
        let mut host = Self::start_in(&data, arguments);
        host._owned = Some(owned);
        host
    }

    /// Starts a host with an interval of one second and a tolerance of half a second.
    pub fn brisk(further: &[&str]) -> Self {
        let mut arguments = vec!["--interval", "1s", "--tolerance", "500ms"];
        if !further.contains(&"--evict-after") {
            arguments.extend(["--evict-after", "200ms"]);
        }
        arguments.extend(further);
        Self::start(&arguments)
    }

    /// Starts a host on a data directory that outlives it.
    pub fn start_in(data: &Path, arguments: &[&str]) -> Self {
        match Self::try_start_in(data, arguments) {
            Ok(host) => host,
            Err(said) => panic!("the host did not start:\n{said}"),
        }
    }

    /// Starts a host; returns its log if it refuses to start.
    pub fn try_start_in(data: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::try_start_with(data, arguments, &[])
    }

    /// The same, with these environment variables.
    pub fn try_start_with(data: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self, String> {
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data").arg(data).args(arguments);
        for (flag, value) in [("--listen", "127.0.0.1:0"), ("--log", "error")] {
            if !arguments.contains(&flag) {
                command.args([flag, value]);
            }
        }
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ROLLCALL_")) {
            command.env_remove(name);
        }
        let mut child = command
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stderr = child.stderr.take().expect("a pipe");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line).expect("a readable pipe");
        let Some(base) = line.trim().split(' ').find(|word| word.starts_with("http://")) else {
            let mut said = String::new();
            stderr.read_to_string(&mut said).expect("a readable pipe");
            child.wait().expect("the host ended");
            return Err(said);
        };
        // Read both pipes, so that the host never blocks on a full one.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let said = Arc::default();
        std::thread::spawn({
            let said = Arc::clone(&said);
            move || keep_log(stderr, &said)
        });
        Ok(Self { child, base: base.to_owned(), data: data.to_owned(), said, _owned: None })
    }

    /// Where it listens, as a URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Where it listens, as host and port.
    pub fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.said.lock().expect("a lock").clone()
    }

    /// One of its metrics, by name with labels; 0 if it is missing.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.client("ops").get("/metrics").text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// A client asking as this user.
    pub fn client(&self, user: &str) -> Client {
        Client::named(&self.base, user)
    }

    /// Stops it with SIGTERM; it must exit with success.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs");
        assert!(told.success());
        let mut exit = None;
        crate::eventually("the host ends", Duration::from_secs(20), || {
            exit = self.child.try_wait().expect("the host can be waited for");
            exit.is_some()
        });
        assert!(exit.is_some_and(|exit| exit.success()), "the host ended with {exit:?}");
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("the host can be killed");
        self.child.wait().expect("the host ended");
    }
}

/// Keeps the log of a host, and prints it.
fn keep_log(stderr: ChildStderr, said: &Mutex<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        eprintln!("{line}");
        let mut said = said.lock().expect("a lock");
        said.push_str(&line);
        said.push('\n');
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
