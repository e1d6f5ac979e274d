//! A server's process: started by us, ended with us by its own id, and never waited for without a deadline.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a condition is looked at again. Short beside the start of any server.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs a program and ends it when the pipe at standard input is closed, which the system does however the test ends:
/// also if it is killed, or if the server is in a `static`, which nothing drops. The pipe is copied to 3, because a
/// shell takes standard input away from what it runs in the background.
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

/// How long a shell may take to say which process it started, and to end it.
const SHELL: Duration = Duration::from_secs(10);

/// A process that ends with this value, or with the test.
#[derive(Debug)]
pub struct Process {
    keeper: Child,
    id: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a program. What it writes goes to the file `log`, so that no pipe fills up and blocks it.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::options().create(true).append(true).open(log).context("cannot open the log")?;
        let err = out.try_clone()?;
        let id_file = log.with_extension("pid");
        // One of an earlier process would be taken for this one's.
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

    /// Kills the process at once, as a crash would, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut pipe) = self.keeper.stdin.take() {
            // It fails only if nobody is there to read it.
            let _ = pipe.write_all(b"end\n");
        }
        // It fails only if it has ended already.
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

    /// An error with what the process wrote, if it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.keeper.try_wait()? {
            bail!("it ended with {status}:\n{}", self.log());
        }
        Ok(())
    }

    /// What the process wrote so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port of the loopback interface that nobody listens on. Somebody else may take it before the server does; then the
/// server says so and does not start, which is an error and not a wrong result.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until the condition holds. `what` completes "waited in vain for …".
pub fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + patience;
    while !holds()? {
        if Instant::now() >= end {
            bail!("waited in vain for {what}, {patience:?} long");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
