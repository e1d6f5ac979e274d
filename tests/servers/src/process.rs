//! A server process: it ends with the test, is killed by its id, and is never waited for without a deadline.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The pause between two checks of a condition. Short compared with any server's start.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a program and kills it when the pipe at standard input closes. The kernel closes it however the test ends, also if
/// the test is killed or the server is in a `static`, which is never dropped. The pipe is copied to descriptor 3, because a
/// shell redirects the standard input of background jobs.
const KEEPER: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
echo "$server" > "$0"
(read -r word <&3; [ -n "$word" ] || : > "$0.orphan"; kill -9 "$server" 2>/dev/null) &
reader=$!
wait "$server"
status=$?
kill "$reader" 2>/dev/null
folder=${0%/*}
[ -e "$0.orphan" ] && case "$folder" in */rollcall-*) rm -rf "$folder" ;; esac
exit "$status"
"#;

/// How long a shell may take to write the id of the process it started.
const SHELL: Duration = Duration::from_secs(10);

/// A process that ends with this value, or with the test.
#[derive(Debug)]
pub struct Process {
    keeper: Child,
    id: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output goes to the file `log`, so that no full pipe blocks it.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log).context("cannot open the log")?;
        let err = out.try_clone()?;
        let id_file = log.with_extension("pid");
        // The id of an earlier process must not be read.
        let _ = std::fs::remove_file(&id_file);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(KEEPER).arg(&id_file).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        let keeper = shell.stdin(Stdio::piped()).stdout(out).stderr(err).spawn().context("cannot start a shell")?;
        let mut process = Self { keeper, id: 0, log: log.to_owned() };
        wait_until("a process to have an id", SHELL, || {
            process.id = std::fs::read_to_string(&id_file).unwrap_or_default().trim().parse().unwrap_or(0);
            Ok(process.id != 0)
        })?;
        Ok(process)
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Kills the process at once, like a crash, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut pipe) = self.keeper.stdin.take() {
            // Fails only if the shell has ended.
            let _ = pipe.write_all(b"end\n");
        }
        // Fails only if it has ended already.
        let _ = self.keeper.wait();
    }

    /// Sends the process a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status()?;
        if !status.success() {
            bail!("cannot send {name} to process {}", self.id());
        }
        Ok(())
    }

    /// Fails with the process's output if it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.keeper.try_wait()? {
            bail!("the process ended with {status}:\n{}", self.log());
        }
        Ok(())
    }

    /// The process's output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A free loopback port. Another process may take it before the server does; then the server fails to start, which is an
/// error and not a wrong result.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the condition holds. `what` completes "timed out waiting for …".
pub fn wait_until(what: &str, timeout: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + timeout;
    while !holds()? {
        if Instant::now() >= end {
            bail!("timed out waiting for {what}, after {timeout:?}");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
